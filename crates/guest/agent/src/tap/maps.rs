//! The maps of `tap.bpf.c`, byte by byte. Their integers have the machine's byte order.

use std::net::IpAddr;

use libbpf_rs::{MapCore, MapFlags};
use p4shield_abi::Direction;
use zeroize::Zeroizing;

use super::{TapError, kernel};
use crate::audit::Counts;

/// Keys with which packets are digested at once.
pub(super) const KEYS: usize = 2;

/// `struct config`.
#[derive(Clone)]
pub(super) struct Settings {
    /// `None`: packets are not digested with it.
    pub(super) keys: [Option<Zeroizing<[u8; 16]>>; KEYS],
    pub(super) cover: u32,
    pub(super) every_ip: bool,
}

impl Settings {
    pub(super) fn store(&self, map: &impl MapCore) -> Result<(), TapError> {
        self.store_unused(map, KEYS)
    }

    /// Stores all keys, of which key number `unused` is not used yet.
    pub(super) fn store_unused(&self, map: &impl MapCore, unused: usize) -> Result<(), TapError> {
        let mut value = Zeroizing::new([0; 48]);
        let mut used = 0_u32;
        for (i, key) in self.keys.iter().enumerate() {
            let Some(key) = key else { continue };
            used |= u32::from(i != unused) << i;
            value[16 * i..][..8].copy_from_slice(&word(key, 0).to_ne_bytes());
            value[16 * i + 8..][..8].copy_from_slice(&word(key, 8).to_ne_bytes());
        }
        value[32..36].copy_from_slice(&used.to_ne_bytes());
        value[36..40].copy_from_slice(&self.cover.to_ne_bytes());
        value[40..44].copy_from_slice(&u32::from(self.every_ip).to_ne_bytes());
        map.update(&0u32.to_ne_bytes(), &*value, MapFlags::ANY).map_err(kernel("configure"))
    }
}

/// Returns eight bytes of a SipHash key, which are little-endian on every machine.
fn word(key: &[u8; 16], at: usize) -> u64 {
    let mut w = [0; 8];
    w.copy_from_slice(&key[at..at + 8]);
    u64::from_le_bytes(w)
}

/// `struct tally`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) counts: Counts,
}

/// Size of `struct tally`: lock and padding, then seven words.
const TALLY_SIZE: usize = 8 + 7 * 8;

impl Tally {
    pub(super) fn load(map: &impl MapCore, direction: Direction) -> Result<Self, TapError> {
        let mut value = [0; TALLY_SIZE];
        let key = (direction as u32).to_ne_bytes();
        let found = map.lookup_into(&key, &mut value, MapFlags::LOCK).map_err(kernel("read"))?;
        if !found {
            return Err(TapError::Map("tallies"));
        }
        let [packets, bytes, _digest, _other, not_whole, others, _other_bytes] = std::array::from_fn(|i| {
            let mut w = [0; 8];
            w.copy_from_slice(&value[8 + 8 * i..16 + 8 * i]);
            u64::from_ne_bytes(w)
        });
        Ok(Self { counts: Counts { packets, bytes, not_whole, others } })
    }
}

/// Returns a key of `addresses`, `struct address`: the address, zeros behind an IPv4 one, and the IP
/// version. Without the version, an IPv6 packet from ::ffff:a.b.c.d would count as one from a.b.c.d.
pub(super) fn address_key(address: IpAddr) -> [u8; 20] {
    let mut key = [0; 20];
    let version = match address {
        IpAddr::V4(v4) => {
            key[..4].copy_from_slice(&v4.octets());
            4
        }
        IpAddr::V6(v6) => {
            key[..16].copy_from_slice(&v6.octets());
            6_u32
        }
    };
    key[16..].copy_from_slice(&version.to_ne_bytes());
    key
}
