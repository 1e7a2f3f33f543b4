//! Which VM an address belongs to, in which network.
//!
//! Two tables, prebuilt and never changed, with a bound on the work of a look-up that holds for every address an
//! attacker can think of: the seed is drawn until no run of occupied places is longer than [`MAX_RUN`].
//!
//! A VM that is said to be in a network is found in that one, any other in all of them. What comes without a network finds
//! both, as long as one VM alone has the address.

use crate::config::{Config, ConfigError, Network, VmRef};
use crate::parse::Kind;
use p4shield_abi::Direction;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::IpAddr;

/// Places that a look-up visits at most.
const MAX_RUN: usize = 8;
/// Seeds that are tried before a table is doubled.
const SEEDS: usize = 16;

/// In place of a network's number: VMs that are in no particular one.
const ANYWHERE: u64 = 1 << 32;
/// In place of a network's number: all VMs, for packets whose network is not known.
const UNSAID: u64 = 2 << 32;
/// In place of the VM, where several have an address. No VM has this number: [`ConfigError::TooMany`].
const SEVERAL: VmRef = VmRef { tenant: u16::MAX, vm: u16::MAX };

/// The VMs by address.
#[derive(Debug)]
pub(crate) struct Lookup {
    v4: Table<(u64, u32)>,
    v6: Table<(u64, u128)>,
    /// VMs whose ingress is asked where packets are handed to them; in order.
    elsewhere: Box<[VmRef]>,
    /// VMs of which nobody is asked in a direction; by [`Direction`], in order.
    skipped: [Box<[VmRef]>; 2],
    /// Whether any address is that of several VMs.
    overlap: bool,
}

impl Lookup {
    /// # Errors
    /// If two VMs have one address in one network.
    pub(crate) fn new(config: &Config) -> Result<Self, ConfigError> {
        let (mut v4, mut v6, mut overlap) = (Vec::new(), Vec::new(), false);
        for ((network, address), vm) in entries(config)? {
            overlap |= vm == SEVERAL;
            match address {
                IpAddr::V4(a) => v4.push(((network, a.to_bits()), vm)),
                IpAddr::V6(a) => v6.push(((network, a.to_bits()), vm)),
            }
        }
        let skipped = Direction::ALL.map(|d| skipped(config, d));
        Ok(Self { v4: Table::new(&v4), v6: Table::new(&v6), elsewhere: Box::default(), skipped, overlap })
    }

    /// From now on the ingress of these VMs, and of no others, is asked elsewhere.
    pub(crate) fn defer_ingress(&mut self, vms: &[VmRef]) {
        self.elsewhere = vms.into();
        self.elsewhere.sort_unstable();
    }

    /// Whether packets of this VM pass in this direction without anybody being asked.
    #[inline]
    pub(crate) fn skips(&self, vm: VmRef, direction: Direction) -> bool {
        self.skipped[direction as usize].binary_search(&vm).is_ok()
    }

    /// The VM that a packet is for, if its ingress is to be asked where the packet came in.
    #[inline]
    pub(crate) fn asked(&self, kind: Kind, network: Network) -> Option<VmRef> {
        self.receiver(kind, network).filter(|vm| self.elsewhere.binary_search(vm).is_err())
    }

    /// The VM that a packet is for, if its ingress is to be asked elsewhere.
    #[inline]
    pub(crate) fn asked_elsewhere(&self, kind: Kind, network: Network) -> Option<VmRef> {
        if self.elsewhere.is_empty() {
            return None;
        }
        self.receiver(kind, network).filter(|vm| self.elsewhere.binary_search(vm).is_ok())
    }

    /// The VM that sent a packet.
    #[inline]
    pub(crate) fn sender(&self, kind: Kind, network: Network) -> Option<VmRef> {
        self.source(kind, network).filter(|vm| *vm != SEVERAL)
    }

    /// The VM that a packet is for.
    #[inline]
    pub(crate) fn receiver(&self, kind: Kind, network: Network) -> Option<VmRef> {
        self.destination(kind, network).filter(|vm| *vm != SEVERAL)
    }

    /// Whether nobody can tell which of several VMs a packet is from, or for.
    #[inline]
    pub(crate) fn is_ambiguous(&self, kind: Kind, network: Network) -> bool {
        let several = |vm| vm == Some(SEVERAL);
        self.overlap && (several(self.source(kind, network)) || several(self.destination(kind, network)))
    }

    #[inline]
    fn source(&self, kind: Kind, network: Network) -> Option<VmRef> {
        match kind {
            Kind::V4 { source, .. } => find(network, |n| self.v4.get((n, source))),
            Kind::V6 { source, .. } => find(network, |n| self.v6.get((n, source))),
            Kind::Other => None,
        }
    }

    #[inline]
    fn destination(&self, kind: Kind, network: Network) -> Option<VmRef> {
        match kind {
            Kind::V4 { destination, .. } => find(network, |n| self.v4.get((n, destination))),
            Kind::V6 { destination, .. } => find(network, |n| self.v6.get((n, destination))),
            Kind::Other => None,
        }
    }
}

/// Looks where a packet of this network may be found.
#[inline]
fn find(network: Network, get: impl Fn(u64) -> Option<VmRef>) -> Option<VmRef> {
    match network {
        Network::Unknown => get(UNSAID),
        Network::Number(number) => get(number.into()).or_else(|| get(ANYWHERE)),
        Network::Foreign => get(ANYWHERE),
    }
}

/// What is in the tables: network or what stands for one, address, VM.
fn entries(config: &Config) -> Result<BTreeMap<(u64, IpAddr), VmRef>, ConfigError> {
    let mut found = BTreeMap::new();
    for (network, address, vm) in addresses(config) {
        let own = network.map_or(ANYWHERE, u64::from);
        let unsaid = found.get(&(UNSAID, address)).copied();
        // Who is found in all networks shares an address with nobody.
        let rival = if own == ANYWHERE { unsaid } else { found.get(&(ANYWHERE, address)).copied() };
        if let Some(first) = found.insert((own, address), vm).or(rival).filter(|first| *first != vm) {
            let first = if first == SEVERAL { holder(config, address, vm) } else { first };
            let (first, second) = (describe(config, first), describe(config, vm));
            return Err(ConfigError::Ambiguous { address, first, second });
        }
        let alone = unsaid.is_none_or(|other| other == vm);
        found.insert((UNSAID, address), if alone { vm } else { SEVERAL });
    }
    Ok(found)
}

/// The first VM with an address but `vm`.
fn holder(config: &Config, address: IpAddr, vm: VmRef) -> VmRef {
    let mut others = addresses(config).filter(|(_, a, other)| *a == address && *other != vm);
    others.next().map_or(vm, |(.., other)| other)
}

fn addresses(config: &Config) -> impl Iterator<Item = (Option<u32>, IpAddr, VmRef)> {
    config.tenants.iter().zip(0..).flat_map(|(tenant, t)| {
        tenant.vms.iter().zip(0..).flat_map(move |(vm, v)| {
            vm.addresses.iter().map(move |address| (vm.network, *address, VmRef { tenant: t, vm: v }))
        })
    })
}

/// In order, since a configuration is.
fn skipped(config: &Config, direction: Direction) -> Box<[VmRef]> {
    let vms = config.tenants.iter().zip(0..).flat_map(|(tenant, t)| {
        tenant.vms.iter().zip(0..).map(move |(vm, v)| (VmRef { tenant: t, vm: v }, vm.skipped))
    });
    vms.filter(|(_, skipped)| skipped[direction as usize]).map(|(vm, _)| vm).collect()
}

fn describe(config: &Config, vm: VmRef) -> String {
    let tenant = &config.tenants[usize::from(vm.tenant)];
    format!("{}/{}", tenant.name, tenant.vms[usize::from(vm.vm)].name)
}

/// An address, in a network, as a key.
trait Key: Copy + Eq {
    fn mix(self, seed: [u64; 2]) -> u64;
}

/// Multiply and fold: the high half of a 128-bit product depends on every bit of both factors.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

impl Key for (u64, u32) {
    #[inline]
    fn mix(self, seed: [u64; 2]) -> u64 {
        // The rotation moves all bits of a network's number away from those of the address.
        fold(u64::from(self.1) ^ self.0.rotate_left(32) ^ seed[0], seed[1] | 1)
    }
}

impl Key for (u64, u128) {
    #[inline]
    fn mix(self, seed: [u64; 2]) -> u64 {
        let (network, address) = self;
        fold(fold(address as u64 ^ seed[0], seed[1] | 1) ^ (address >> 64) as u64 ^ network, seed[0] | 1)
    }
}

/// Open addressing, at most a quarter full.
#[derive(Debug)]
struct Table<K> {
    seed: [u64; 2],
    mask: usize,
    places: Box<[Option<(K, VmRef)>]>,
}

impl<K: Key> Table<K> {
    fn new(entries: &[(K, VmRef)]) -> Self {
        let mut size = (entries.len() * 4).next_power_of_two().max(MAX_RUN);
        loop {
            if let Some(table) = (0..SEEDS).find_map(|_| Self::build(entries, size, random_seed())) {
                return table;
            }
            size *= 2;
        }
    }

    /// None if an entry would be further than [`MAX_RUN`] from its place.
    fn build(entries: &[(K, VmRef)], size: usize, seed: [u64; 2]) -> Option<Self> {
        let mut table = Self { seed, mask: size - 1, places: vec![None; size].into_boxed_slice() };
        for (key, vm) in entries {
            let free = table.run(*key).find(|place| table.places[*place].is_none())?;
            table.places[free] = Some((*key, *vm));
        }
        Some(table)
    }

    #[inline]
    fn run(&self, key: K) -> impl Iterator<Item = usize> + use<K> {
        let (start, mask) = (key.mix(self.seed) as usize, self.mask);
        (0..MAX_RUN).map(move |i| start.wrapping_add(i) & mask)
    }

    #[inline]
    fn get(&self, key: K) -> Option<VmRef> {
        for place in self.run(key) {
            match self.places[place] {
                Some((k, vm)) if k == key => return Some(vm),
                Some(_) => {}
                None => return None,
            }
        }
        None
    }
}

/// From the system, through the standard library's hasher.
fn random_seed() -> [u64; 2] {
    std::array::from_fn(|_| RandomState::new().build_hasher().finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{TenantConfig, VmConfig};
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn vm(name: &str, addresses: Vec<IpAddr>) -> VmConfig {
        VmConfig::new(name, addresses)
    }

    const fn to(destination: u32) -> Kind {
        Kind::V4 { source: 0, destination }
    }

    #[test]
    fn finds_every_address_and_no_other() {
        let vms = (0..200_u32)
            .map(|i| {
                let v6 = Ipv6Addr::from_bits(u128::from(i) << 64 | 1);
                vm("vm", vec![Ipv4Addr::from_bits(0x0a00_0000 | i).into(), v6.into()])
            })
            .collect();
        let config = Config { tenants: vec![TenantConfig::new("a", vec![]), TenantConfig::new("b", vms)] };
        let lookup = Lookup::new(&config).expect("no address twice");
        for i in 0..1000_u32 {
            let expected = (i < 200).then_some(VmRef { tenant: 1, vm: i as u16 });
            let v4 = Kind::V4 { source: 0x0a00_0000 | i, destination: 0 };
            let v6 = Kind::V6 { source: 0, destination: u128::from(i) << 64 | 1 };
            assert_eq!(lookup.sender(v4, Network::Unknown), expected);
            assert_eq!(lookup.receiver(v6, Network::Foreign), expected);
            assert_eq!(lookup.receiver(v4, Network::Number(7)), None);
        }
    }

    #[test]
    fn a_mapped_address_is_not_the_address() {
        let config = Config {
            tenants: vec![TenantConfig::new("a", vec![vm("v", vec![Ipv4Addr::new(10, 0, 0, 1).into()])])],
        };
        let lookup = Lookup::new(&config).expect("no address twice");
        let mapped = Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped().to_bits();
        assert_eq!(lookup.sender(Kind::V6 { source: mapped, destination: mapped }, Network::Unknown), None);
    }

    #[test]
    fn one_address_of_two_vms_is_refused() {
        let address: IpAddr = Ipv4Addr::LOCALHOST.into();
        let config = Config {
            tenants: vec![
                TenantConfig::new("a", vec![vm("v", vec![address])]),
                TenantConfig::new("b", vec![vm("w", vec![address])]),
            ],
        };
        let error = Lookup::new(&config).expect_err("two VMs with one address");
        let (first, second) = ("a/v".to_owned(), "b/w".to_owned());
        assert_eq!(error, ConfigError::Ambiguous { address, first, second });
    }

    /// Two VMs in networks 5 and 6 with an address in common, each with one of its own, and one in no particular network.
    fn overlapping() -> Config {
        let in_network = |name, network, own: u32| {
            let addresses = [1, own].map(|a| Ipv4Addr::from_bits(a).into()).into();
            VmConfig { network: Some(network), ..vm(name, addresses) }
        };
        let anywhere = vm("x", vec![Ipv4Addr::from_bits(9).into()]);
        let tenants = [
            TenantConfig::new("a", vec![in_network("v", 5, 2)]),
            TenantConfig::new("b", vec![in_network("w", 6, 3), anywhere]),
        ];
        Config { tenants: tenants.into() }
    }

    #[test]
    fn networks_tell_apart_vms_with_one_address() {
        const A: VmRef = VmRef { tenant: 0, vm: 0 };
        const B: VmRef = VmRef { tenant: 1, vm: 0 };
        const X: VmRef = VmRef { tenant: 1, vm: 1 };
        let lookup = Lookup::new(&overlapping()).expect("each address once in each network");
        let (five, six, seven) = (Network::Number(5), Network::Number(6), Network::Number(7));
        for (network, found) in [
            (five, [Some(A), Some(A), None, Some(X)]),
            (six, [Some(B), None, Some(B), Some(X)]),
            (seven, [None, None, None, Some(X)]),
            (Network::Foreign, [None, None, None, Some(X)]),
            (Network::Unknown, [None, Some(A), Some(B), Some(X)]),
        ] {
            assert_eq!([1, 2, 3, 9].map(|a| lookup.receiver(to(a), network)), found, "{network:?}");
            let ambiguous = [1, 2, 3, 9].map(|a| lookup.is_ambiguous(to(a), network));
            assert_eq!(ambiguous, [network == Network::Unknown, false, false, false], "{network:?}");
        }
    }

    #[test]
    fn an_address_of_all_networks_is_that_of_one_vm() {
        for network in [None, Some(5)] {
            let mut config = overlapping();
            let third = vec![Ipv4Addr::from_bits(1).into()];
            config.tenants[1].vms.push(VmConfig { network, ..vm("y", third) });
            let error = Lookup::new(&config).expect_err("two VMs of one network with one address");
            assert!(error.to_string().contains("a/v and b/y"), "{error}");
            config.tenants[1].vms.rotate_right(1);
            config.tenants.reverse();
            Lookup::new(&config).expect_err("in whatever order");
        }
    }
}
