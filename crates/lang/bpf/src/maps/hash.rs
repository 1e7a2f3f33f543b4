//! Keys of a hash map: preallocated, in chains, with a keyed hash.
//!
//! The senders of packets choose keys, so the hash is SipHash with a secret per map: an attacker cannot
//! compute collisions. The length of chains is bounded in any case, so that the time of a lookup has a
//! limit that does not depend on the hash function.

use siphasher::sip::SipHasher13;

use super::{MapError, UpdateFlag};

/// Maximum number of keys in a chain. An insert that exceeds it is refused as if the map were full. With
/// twice as many buckets as entries and a random hash, chains of 32 keys practically never occur.
const MAX_CHAIN: usize = 32;
const NONE: u32 = u32::MAX;

/// Mapping from keys to slots.
#[derive(Debug)]
pub(crate) struct HashKeys {
    hasher: SipHasher13,
    key_size: usize,
    /// First slot of each chain. The length is a power of two.
    heads: Vec<u32>,
    /// Next slot of the same chain, or of the free list.
    next: Vec<u32>,
    used: Vec<bool>,
    keys: Vec<u8>,
    free: u32,
}

impl HashKeys {
    /// Returns the size in bytes for this many entries.
    pub(crate) const fn bytes(entries: usize, key_size: usize) -> usize {
        entries * (key_size + 5) + Self::buckets(entries) * 4
    }

    const fn buckets(entries: usize) -> usize {
        (entries * 2).next_power_of_two()
    }

    /// Allocates `entries` keys, hashed with `secret`.
    pub(crate) fn new(entries: usize, key_size: usize, secret: [u8; 16]) -> Self {
        let next = (0..entries).map(|i| if i + 1 < entries { i as u32 + 1 } else { NONE }).collect();
        Self {
            hasher: SipHasher13::new_with_key(&secret),
            key_size,
            heads: vec![NONE; Self::buckets(entries)],
            next,
            used: vec![false; entries],
            keys: vec![0; entries * key_size],
            free: if entries == 0 { NONE } else { 0 },
        }
    }

    fn bucket(&self, key: &[u8]) -> usize {
        self.hasher.hash(key) as usize & (self.heads.len() - 1)
    }

    fn key_at(&self, slot: u32) -> &[u8] {
        let at = slot as usize * self.key_size;
        &self.keys[at..at + self.key_size]
    }

    /// Returns the slots of a chain in order.
    fn chain(&self, bucket: usize) -> impl Iterator<Item = u32> {
        let mut slot = self.heads[bucket];
        std::iter::from_fn(move || {
            let here = slot;
            (here != NONE).then(|| {
                slot = self.next[here as usize];
                here
            })
        })
    }

    /// Returns the slot of `key`.
    pub(crate) fn find(&self, key: &[u8]) -> Option<usize> {
        self.chain(self.bucket(key)).find(|&slot| self.key_at(slot) == key).map(|slot| slot as usize)
    }

    /// Returns the slot of `key`, and allocates one if the key is new.
    pub(crate) fn insert(&mut self, key: &[u8], flag: UpdateFlag) -> Result<usize, MapError> {
        let bucket = self.bucket(key);
        let mut length = 0;
        for slot in self.chain(bucket) {
            if self.key_at(slot) == key {
                return flag.found(slot as usize);
            }
            length += 1;
        }
        flag.missing()?;
        let slot = self.free;
        if slot == NONE || length >= MAX_CHAIN {
            return Err(MapError::Full);
        }
        let index = slot as usize;
        self.free = self.next[index];
        self.next[index] = self.heads[bucket];
        self.heads[bucket] = slot;
        self.used[index] = true;
        self.keys[index * self.key_size..][..self.key_size].copy_from_slice(key);
        Ok(index)
    }

    /// Frees the slot of `key`.
    pub(crate) fn remove(&mut self, key: &[u8]) -> Result<(), MapError> {
        let bucket = self.bucket(key);
        let mut before = NONE;
        let mut slot = self.heads[bucket];
        while slot != NONE && self.key_at(slot) != key {
            before = slot;
            slot = self.next[slot as usize];
        }
        if slot == NONE {
            return Err(MapError::NotFound);
        }
        let after = self.next[slot as usize];
        match before {
            NONE => self.heads[bucket] = after,
            before => self.next[before as usize] = after,
        }
        self.next[slot as usize] = self.free;
        self.used[slot as usize] = false;
        self.free = slot;
        Ok(())
    }

    /// Returns the key in `slot`, if the slot is used.
    pub(crate) fn key(&self, slot: usize) -> Option<&[u8]> {
        self.used.get(slot)?.then(|| self.key_at(slot as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_are_bounded_when_all_keys_collide() {
        let mut keys = HashKeys::new(100, 4, [0; 16]);
        keys.heads.truncate(1);
        let insert = |keys: &mut HashKeys, i: u32| keys.insert(&i.to_le_bytes(), UpdateFlag::Any);
        for i in 0..MAX_CHAIN as u32 {
            assert_eq!(insert(&mut keys, i), Ok(i as usize));
        }
        assert_eq!(insert(&mut keys, 1000), Err(MapError::Full));
        assert!(insert(&mut keys, 0).is_ok(), "existing keys stay reachable");
        assert_eq!(keys.remove(&5u32.to_le_bytes()), Ok(()));
        assert!(insert(&mut keys, 1000).is_ok());
        assert_eq!(keys.find(&5u32.to_le_bytes()), None);
        assert_eq!(keys.chain(0).count(), MAX_CHAIN);
    }

    #[test]
    fn secrets_spread_equal_keys_over_buckets() {
        let bucket = |secret| HashKeys::new(1 << 15, 4, [secret; 16]).bucket(b"key!");
        let distinct: std::collections::HashSet<_> = (0..8).map(bucket).collect();
        assert!(distinct.len() > 4, "{distinct:?}");
    }
}
