//! Which VM an address belongs to.
//!
//! Two tables, prebuilt and never changed, with a bound on the work of a look-up that holds for every address an
//! attacker can think of: the seed is drawn until no run of occupied places is longer than [`MAX_RUN`].

use crate::config::{Config, ConfigError, VmRef};
use crate::parse::Kind;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::IpAddr;

/// Places that a look-up visits at most.
const MAX_RUN: usize = 8;
/// Seeds that are tried before a table is doubled.
const SEEDS: usize = 16;

/// The VMs by address.
#[derive(Debug)]
pub(crate) struct Lookup {
    v4: Table<u32>,
    v6: Table<u128>,
    /// VMs whose ingress is asked where packets are handed to them; in order.
    elsewhere: Box<[VmRef]>,
}

impl Lookup {
    /// # Errors
    /// If two VMs have one address.
    pub(crate) fn new(config: &Config) -> Result<Self, ConfigError> {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (address, vm) in addresses(config) {
            match address {
                IpAddr::V4(a) => v4.push((a.to_bits(), vm)),
                IpAddr::V6(a) => v6.push((a.to_bits(), vm)),
            }
        }
        let ambiguous = |address: IpAddr, [first, second]: [VmRef; 2]| ConfigError::Ambiguous {
            address,
            first: describe(config, first),
            second: describe(config, second),
        };
        Ok(Self {
            v4: Table::new(v4).map_err(|(a, vms)| ambiguous(std::net::Ipv4Addr::from_bits(a).into(), vms))?,
            v6: Table::new(v6).map_err(|(a, vms)| ambiguous(std::net::Ipv6Addr::from_bits(a).into(), vms))?,
            elsewhere: Box::default(),
        })
    }

    /// From now on the ingress of these VMs, and of no others, is asked elsewhere.
    pub(crate) fn ask_elsewhere(&mut self, vms: &[VmRef]) {
        self.elsewhere = vms.into();
        self.elsewhere.sort_unstable();
    }

    /// The VM that a packet is for, if its ingress is to be asked where the packet came in.
    #[inline]
    pub(crate) fn asked(&self, kind: Kind) -> Option<VmRef> {
        self.receiver(kind).filter(|vm| self.elsewhere.binary_search(vm).is_err())
    }

    /// The VM that sent a packet.
    #[inline]
    pub(crate) fn sender(&self, kind: Kind) -> Option<VmRef> {
        match kind {
            Kind::V4 { source, .. } => self.v4.get(source),
            Kind::V6 { source, .. } => self.v6.get(source),
            Kind::Other => None,
        }
    }

    /// The VM that a packet is for.
    #[inline]
    pub(crate) fn receiver(&self, kind: Kind) -> Option<VmRef> {
        match kind {
            Kind::V4 { destination, .. } => self.v4.get(destination),
            Kind::V6 { destination, .. } => self.v6.get(destination),
            Kind::Other => None,
        }
    }
}

fn addresses(config: &Config) -> impl Iterator<Item = (IpAddr, VmRef)> {
    config.tenants.iter().zip(0..).flat_map(|(tenant, t)| {
        tenant.vms.iter().zip(0..).flat_map(move |(vm, v)| {
            vm.addresses.iter().map(move |address| (*address, VmRef { tenant: t, vm: v }))
        })
    })
}

fn describe(config: &Config, vm: VmRef) -> String {
    let tenant = &config.tenants[usize::from(vm.tenant)];
    format!("{}/{}", tenant.name, tenant.vms[usize::from(vm.vm)].name)
}

/// An address as a key.
trait Key: Copy + Eq {
    fn mix(self, seed: [u64; 2]) -> u64;
}

/// Multiply and fold: the high half of a 128-bit product depends on every bit of both factors.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

impl Key for u32 {
    #[inline]
    fn mix(self, seed: [u64; 2]) -> u64 {
        fold(u64::from(self) ^ seed[0], seed[1] | 1)
    }
}

impl Key for u128 {
    #[inline]
    fn mix(self, seed: [u64; 2]) -> u64 {
        fold(fold(self as u64 ^ seed[0], seed[1] | 1) ^ (self >> 64) as u64, seed[0] | 1)
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
    /// The table, or an address that two VMs have.
    fn new(mut entries: Vec<(K, VmRef)>) -> Result<Self, (K, [VmRef; 2])>
    where
        K: Ord,
    {
        entries.sort_unstable();
        entries.dedup();
        if let Some([(key, a), (_, b)]) = entries.array_windows().find(|[(a, _), (b, _)]| a == b) {
            return Err((*key, [*a, *b]));
        }
        let mut size = (entries.len() * 4).next_power_of_two().max(MAX_RUN);
        loop {
            if let Some(table) = (0..SEEDS).find_map(|_| Self::build(&entries, size, random_seed())) {
                return Ok(table);
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
        VmConfig { name: name.into(), addresses }
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
            assert_eq!(lookup.sender(v4), expected);
            assert_eq!(lookup.receiver(v6), expected);
            assert_eq!(lookup.receiver(v4), None);
        }
    }

    #[test]
    fn a_mapped_address_is_not_the_address() {
        let config = Config {
            tenants: vec![TenantConfig::new("a", vec![vm("v", vec![Ipv4Addr::new(10, 0, 0, 1).into()])])],
        };
        let lookup = Lookup::new(&config).expect("no address twice");
        let mapped = Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped().to_bits();
        assert_eq!(lookup.sender(Kind::V6 { source: mapped, destination: mapped }), None);
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
}
