//! Address lookup: which VM has an address in a network.
//!
//! Two hash tables with open addressing, built once. A lookup visits at most [`MAX_PROBES`] slots for
//! every address that an attacker may choose: the seed is drawn until every configured address fits
//! within this bound.
//!
//! A VM with a network is found in that network, a VM without one in all networks. A packet of
//! unknown network finds both kinds, unless several VMs have its address.

use crate::config::{Config, ConfigError, Network, VmRef};
use crate::parse::Kind;
use p4shield_abi::Direction;
use p4shield_frame::neighbour::Discovery;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::IpAddr;

/// Most slots that a lookup visits.
const MAX_PROBES: usize = 8;
/// Seeds that are tried before the table is doubled.
const SEEDS: usize = 16;

/// Network key of VMs without a network. VNIs are smaller.
const ANY_NETWORK: u64 = 1 << 32;
/// Network key of all VMs, for packets of unknown network.
const UNKNOWN_NETWORK: u64 = 2 << 32;
/// Entry of an address that several VMs have. No VM has this index: [`ConfigError::TooMany`].
const SEVERAL: VmRef = VmRef { tenant: u16::MAX, vm: u16::MAX };

/// The VMs by address.
#[derive(Debug)]
pub(crate) struct Lookup {
    v4: AddressTable<(u64, u32)>,
    v6: AddressTable<(u64, u128)>,
    /// VMs whose ingress program judges packets at the transmit side of their ports; sorted.
    deferred: Box<[VmRef]>,
    /// VMs that send from ports of their own only; sorted.
    bound: Box<[VmRef]>,
    /// VMs whose packets bypass the P4 VM, by [`Direction`]; sorted.
    skipped: [Box<[VmRef]>; 2],
    /// Whether several VMs share any address.
    overlap: bool,
}

impl Lookup {
    /// Builds the tables.
    ///
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
        Ok(Self {
            v4: AddressTable::new(&v4),
            v6: AddressTable::new(&v6),
            deferred: Box::default(),
            bound: Box::default(),
            skipped,
            overlap,
        })
    }

    /// Defers the ingress of these VMs, and of no others, to the transmit side of their ports.
    pub(crate) fn defer_ingress(&mut self, vms: &[VmRef]) {
        self.deferred = vms.into();
        self.deferred.sort_unstable();
    }

    /// Sets the VMs that send from ports of their own only.
    pub(crate) fn bind(&mut self, vms: &[VmRef]) {
        self.bound = vms.into();
        self.bound.sort_unstable();
    }

    /// Takes over which VMs are deferred and bound, as far as they are kept.
    pub(crate) fn inherit(&mut self, old: &Self, is_kept: impl Fn(VmRef) -> bool) {
        self.deferred = old.deferred.iter().copied().filter(|vm| is_kept(*vm)).collect();
        self.bound = old.bound.iter().copied().filter(|vm| is_kept(*vm)).collect();
    }

    /// Whether the source address is a VM's that sends from ports of its own only.
    #[inline]
    pub(crate) fn has_bound_source(&self, kind: Kind, network: Network) -> bool {
        !self.bound.is_empty()
            && self.sender(kind, network).is_some_and(|vm| self.bound.binary_search(&vm).is_ok())
    }

    /// Whether packets of this VM bypass the P4 VM in this direction.
    #[inline]
    pub(crate) fn skips(&self, vm: VmRef, direction: Direction) -> bool {
        self.skipped[direction as usize].binary_search(&vm).is_ok()
    }

    /// Returns the receiving VM if its ingress program judges the packet where it comes in.
    #[inline]
    pub(crate) fn receiver_here(&self, kind: Kind, network: Network) -> Option<VmRef> {
        self.receiver(kind, network).filter(|vm| self.deferred.binary_search(vm).is_err())
    }

    /// Returns the receiving VM if its ingress is deferred.
    #[inline]
    pub(crate) fn deferred_receiver(&self, kind: Kind, network: Network) -> Option<VmRef> {
        if self.deferred.is_empty() {
            return None;
        }
        self.receiver(kind, network).filter(|vm| self.deferred.binary_search(vm).is_ok())
    }

    /// Returns the VM that has the source address.
    #[inline]
    pub(crate) fn sender(&self, kind: Kind, network: Network) -> Option<VmRef> {
        self.source(kind, network).filter(|vm| *vm != SEVERAL)
    }

    /// Returns the VM that has the destination address.
    #[inline]
    pub(crate) fn receiver(&self, kind: Kind, network: Network) -> Option<VmRef> {
        self.destination(kind, network).filter(|vm| *vm != SEVERAL)
    }

    /// Whether several VMs have the source address, or several the destination address.
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
            // Other machines' link-layer addresses are nothing that a program judges.
            Kind::Discovery(Discovery { source, is_router: true, .. }) => {
                find(network, |n| self.v6.get((n, source)))
            }
            Kind::Arp(_) | Kind::Discovery(_) | Kind::Other | Kind::Refused => None,
        }
    }

    #[inline]
    fn destination(&self, kind: Kind, network: Network) -> Option<VmRef> {
        match kind {
            Kind::V4 { destination, .. } => find(network, |n| self.v4.get((n, destination))),
            Kind::V6 { destination, .. } => find(network, |n| self.v6.get((n, destination))),
            Kind::Arp(_) | Kind::Discovery(_) | Kind::Other | Kind::Refused => None,
        }
    }
}

impl Config {
    /// Checks everything that a mediator would refuse.
    ///
    /// # Errors
    /// What is invalid.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.check()?;
        Lookup::new(self).map(drop)
    }
}

/// Looks an address up under the keys of its network.
#[inline]
fn find(network: Network, get: impl Fn(u64) -> Option<VmRef>) -> Option<VmRef> {
    match network {
        Network::Unknown => get(UNKNOWN_NETWORK),
        Network::Number(number) => get(number.into()).or_else(|| get(ANY_NETWORK)),
        Network::Foreign => get(ANY_NETWORK),
    }
}

/// Returns the entries of both tables: network key and address, VM.
fn entries(config: &Config) -> Result<BTreeMap<(u64, IpAddr), VmRef>, ConfigError> {
    let mut found = BTreeMap::new();
    for (network, address, vm) in addresses(config) {
        let own = network.map_or(ANY_NETWORK, u64::from);
        let unknown = found.get(&(UNKNOWN_NETWORK, address)).copied();
        // A VM that is found in all networks shares its addresses with no other VM.
        let rival = if own == ANY_NETWORK { unknown } else { found.get(&(ANY_NETWORK, address)).copied() };
        if let Some(first) = found.insert((own, address), vm).or(rival).filter(|first| *first != vm) {
            let first = if first == SEVERAL { holder(config, address, vm) } else { first };
            let (first, second) = (describe(config, first), describe(config, vm));
            return Err(ConfigError::Ambiguous { address, first, second });
        }
        let alone = unknown.is_none_or(|other| other == vm);
        found.insert((UNKNOWN_NETWORK, address), if alone { vm } else { SEVERAL });
    }
    Ok(found)
}

/// Returns the first VM other than `vm` that has an address.
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

/// VMs whose packets bypass the P4 VM in a direction; sorted, because the configuration lists them by index.
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

/// Network key and address.
trait AddressKey: Copy + Eq {
    fn hash(self, seed: [u64; 2]) -> u64;
}

/// Multiplies and folds: the high half of a 128-bit product depends on every bit of both factors.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

impl AddressKey for (u64, u32) {
    #[inline]
    fn hash(self, seed: [u64; 2]) -> u64 {
        // The rotation moves the bits of the network away from those of the address.
        fold(u64::from(self.1) ^ self.0.rotate_left(32) ^ seed[0], seed[1] | 1)
    }
}

impl AddressKey for (u64, u128) {
    #[inline]
    fn hash(self, seed: [u64; 2]) -> u64 {
        let (network, address) = self;
        fold(fold(address as u64 ^ seed[0], seed[1] | 1) ^ (address >> 64) as u64 ^ network, seed[0] | 1)
    }
}

/// Hash table with open addressing, at most a quarter full.
#[derive(Debug)]
struct AddressTable<K> {
    seed: [u64; 2],
    mask: usize,
    slots: Box<[Option<(K, VmRef)>]>,
}

impl<K: AddressKey> AddressTable<K> {
    fn new(entries: &[(K, VmRef)]) -> Self {
        let mut size = (entries.len() * 4).next_power_of_two().max(MAX_PROBES);
        loop {
            if let Some(table) = (0..SEEDS).find_map(|_| Self::build(entries, size, random_seed())) {
                return table;
            }
            size *= 2;
        }
    }

    /// Returns none if an entry finds no free slot within [`MAX_PROBES`].
    fn build(entries: &[(K, VmRef)], size: usize, seed: [u64; 2]) -> Option<Self> {
        let mut table = Self { seed, mask: size - 1, slots: vec![None; size].into_boxed_slice() };
        for (key, vm) in entries {
            let free = table.probes(*key).find(|slot| table.slots[*slot].is_none())?;
            table.slots[free] = Some((*key, *vm));
        }
        Some(table)
    }

    #[inline]
    fn probes(&self, key: K) -> impl Iterator<Item = usize> + use<K> {
        let (start, mask) = (key.hash(self.seed) as usize, self.mask);
        (0..MAX_PROBES).map(move |i| start.wrapping_add(i) & mask)
    }

    #[inline]
    fn get(&self, key: K) -> Option<VmRef> {
        for slot in self.probes(key) {
            match self.slots[slot] {
                Some((k, vm)) if k == key => return Some(vm),
                Some(_) => {}
                None => return None,
            }
        }
        None
    }
}

/// Random, from the system, through the standard library's hasher.
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

    /// Otherwise a tenant's choice of addresses makes the tables grow without limit.
    #[test]
    fn hashes_spread_keys_that_share_their_low_bits() {
        const SEED: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xc2b2_ae3d_27d4_eb4f];
        let spreads = |hash: &dyn Fn(u64) -> u64| {
            let places: std::collections::HashSet<u64> = (0..1000).map(|i| hash(i) & 0xfff).collect();
            // A random function reaches about 890 of 4096 places.
            assert!(places.len() > 800, "{} places", places.len());
        };
        spreads(&|i| (i, 1_u32).hash(SEED));
        spreads(&|i| (5, (i as u32) << 16).hash(SEED));
        spreads(&|i| (i << 32, 1_u128).hash(SEED));
        spreads(&|i| (5, u128::from(i) << 32).hash(SEED));
        spreads(&|i| (5, u128::from(i) << 96).hash(SEED));
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

    /// Two VMs in networks 5 and 6 that share an address and have another each, and a VM without a network.
    fn overlapping() -> Config {
        let in_network = |name, network, own: u32| {
            let addresses = [1, own].map(|a| Ipv4Addr::from_bits(a).into()).into();
            VmConfig { network: Some(network), ..vm(name, addresses) }
        };
        let in_all = vm("x", vec![Ipv4Addr::from_bits(9).into()]);
        let tenants = [
            TenantConfig::new("a", vec![in_network("v", 5, 2)]),
            TenantConfig::new("b", vec![in_network("w", 6, 3), in_all]),
        ];
        Config { tenants: tenants.into() }
    }

    #[test]
    fn networks_distinguish_vms_with_one_address() {
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
    fn an_address_in_all_networks_belongs_to_one_vm() {
        for network in [None, Some(5)] {
            let mut config = overlapping();
            let third = vec![Ipv4Addr::from_bits(1).into()];
            config.tenants[1].vms.push(VmConfig { network, ..vm("y", third) });
            let error = Lookup::new(&config).expect_err("two VMs of one network with one address");
            assert!(error.to_string().contains("a/v and b/y"), "{error}");
            config.tenants[1].vms.rotate_right(1);
            config.tenants.reverse();
            Lookup::new(&config).expect_err("in any order");
        }
    }
}
