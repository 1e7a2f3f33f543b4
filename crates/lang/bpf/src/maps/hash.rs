//! Keys of a hash map: chained, preallocated, with a keyed hash.
//!
//! Whoever sends packets chooses keys, so the hash is SipHash with a secret of this map: collisions cannot be
//! computed from outside. Chains are bounded all the same, so that a lookup's time has a limit that needs no trust
//! in a hash function.

use siphasher::sip::SipHasher13;

use super::{Exists, MapError};

/// The most keys in one chain; an insert that would exceed it is refused like one into a full map. With twice as
/// many buckets as entries and a random hash, a chain of 32 is not met in the life of the universe.
const MAX_CHAIN: usize = 32;
const NONE: u32 = u32::MAX;

/// From keys to slots.
#[derive(Debug)]
pub(crate) struct HashKeys {
    hasher: SipHasher13,
    key_size: usize,
    /// First slot of each chain; a power of two.
    heads: Vec<u32>,
    /// Next slot of the same chain, or of the free list.
    next: Vec<u32>,
    used: Vec<bool>,
    keys: Vec<u8>,
    free: u32,
}

impl HashKeys {
    /// Bytes it takes for this many entries.
    pub(crate) const fn bytes(entries: usize, key_size: usize) -> usize {
        entries * (key_size + 5) + Self::buckets(entries) * 4
    }

    const fn buckets(entries: usize) -> usize {
        (entries * 2).next_power_of_two()
    }

    /// Room for `entries` keys, hashed under `secret`.
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

    /// Slots of a chain, first to last.
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

    /// The slot of `key`.
    pub(crate) fn find(&self, key: &[u8]) -> Option<usize> {
        self.chain(self.bucket(key)).find(|&slot| self.key_at(slot) == key).map(|slot| slot as usize)
    }

    /// The slot of `key`, which is taken if there was none.
    pub(crate) fn insert(&mut self, key: &[u8], exists: Exists) -> Result<usize, MapError> {
        let bucket = self.bucket(key);
        let mut length = 0;
        for slot in self.chain(bucket) {
            if self.key_at(slot) == key {
                return exists.found(slot as usize);
            }
            length += 1;
        }
        exists.missing()?;
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

    /// Gives the slot of `key` back.
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

    /// The key in `slot`, if there is one.
    pub(crate) fn key(&self, slot: usize) -> Option<Vec<u8>> {
        self.used.get(slot)?.then(|| self.key_at(slot as u32).to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_are_bounded_even_if_every_key_collides() {
        let mut keys = HashKeys::new(100, 4, [0; 16]);
        keys.heads.truncate(1);
        let insert = |keys: &mut HashKeys, i: u32| keys.insert(&i.to_le_bytes(), Exists::Any);
        for i in 0..MAX_CHAIN as u32 {
            assert_eq!(insert(&mut keys, i), Ok(i as usize));
        }
        assert_eq!(insert(&mut keys, 1000), Err(MapError::Full));
        assert!(insert(&mut keys, 0).is_ok(), "what is there stays reachable");
        assert_eq!(keys.remove(&5u32.to_le_bytes()), Ok(()));
        assert!(insert(&mut keys, 1000).is_ok());
        assert_eq!(keys.find(&5u32.to_le_bytes()), None);
        assert_eq!(keys.chain(0).count(), MAX_CHAIN);
    }

    #[test]
    fn equal_keys_fall_into_different_buckets_under_different_secrets() {
        let bucket = |secret| HashKeys::new(1 << 15, 4, [secret; 16]).bucket(b"key!");
        let distinct: std::collections::HashSet<_> = (0..8).map(bucket).collect();
        assert!(distinct.len() > 4, "{distinct:?}");
    }
}
