//! Maps: tables, registers and counters of one program.
//!
//! All memory is allocated at load. Values keep their addresses, so the pointer of a lookup stays valid
//! for the whole run, even if the program inserts or deletes entries. One thread uses a program and its
//! maps; the control plane accesses the maps by `&mut` between runs.

mod classifier;
mod copy;
mod fill;
mod hash;
mod lpm;
mod storage;

use p4shield_abi::map::{MapDefinition, TYPE_ARRAY, TYPE_CLASSIFIER, TYPE_HASH, TYPE_LPM_TRIE};
use rustix::io::Errno;

use crate::budget;
use crate::linked::{Entry, Map as Declared};
use classifier::Rules;
use hash::HashKeys;
use lpm::{LpmKeys, MAX_DATA};
pub(crate) use storage::Storage;

pub use copy::{COPY_BYTES, COPY_SLOTS, MapCopy};
pub use fill::{FillError, FillReason, fuzz_fill};

/// Maximum number of maps of a program.
pub const MAX_MAPS: usize = 1024;
/// Maximum size of a key in bytes.
pub const MAX_KEY_SIZE: u32 = 512;
/// Maximum size of a value in bytes.
pub const MAX_VALUE_SIZE: u32 = 65_536;

/// Reason why an operation on a map failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    /// The map has no free entry.
    #[error("the map is full")]
    Full,
    /// The entry exists, but the operation only creates entries.
    #[error("the entry already exists")]
    Exists,
    /// The entry does not exist.
    #[error("the entry does not exist")]
    NotFound,
    /// Key, value or flags do not fit the map, or the map type does not support the operation.
    #[error("key, value, flags or operation do not fit this map")]
    Invalid,
}

impl MapError {
    /// Returns the negative errno for programs, as Linux's maps return it.
    pub(crate) const fn errno(self) -> i64 {
        let errno = match self {
            Self::Full => Errno::TOOBIG,
            Self::Exists => Errno::EXIST,
            Self::NotFound => Errno::NOENT,
            Self::Invalid => Errno::INVAL,
        };
        -(errno.raw_os_error() as i64)
    }
}

/// Reason why a program's maps cannot be created.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MapsError {
    /// The definition of a map is invalid.
    #[error("map {name}: {reason}")]
    Definition {
        /// Name of the map.
        name: String,
        /// What is wrong, and the limits.
        reason: String,
    },
    /// The program has more than [`MAX_MAPS`] maps.
    #[error("the program has {count} maps, the limit is {MAX_MAPS}")]
    TooMany {
        /// Number of maps.
        count: usize,
    },
    /// The maps exceed the memory limit of the engine's options.
    #[error("the program's maps need {needed} bytes, the limit is {limit}: declare fewer entries")]
    TooLarge {
        /// Bytes that the maps need.
        needed: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The system has no memory.
    #[error("the system has no memory for map {name}")]
    NoMemory {
        /// Name of the map.
        name: String,
    },
    /// An initial entry cannot be installed.
    #[error("cannot install initial entry {index} of map {name}")]
    Entry {
        /// Name of the map.
        name: String,
        /// Index among all entries of the program, from 0.
        index: usize,
        /// The failure.
        #[source]
        source: MapError,
    },
}

/// Condition of an update: Linux's `BPF_ANY`, `BPF_NOEXIST` and `BPF_EXIST`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateFlag {
    /// Creates or replaces an entry.
    Any,
    /// Only creates an entry.
    NoExist,
    /// Only replaces an entry.
    Exist,
}

impl UpdateFlag {
    pub(crate) const fn from_flags(flags: u64) -> Option<Self> {
        match flags {
            0 => Some(Self::Any),
            1 => Some(Self::NoExist),
            2 => Some(Self::Exist),
            _ => None,
        }
    }

    fn found<T>(self, t: T) -> Result<T, MapError> {
        if self == Self::NoExist { Err(MapError::Exists) } else { Ok(t) }
    }

    fn missing(self) -> Result<(), MapError> {
        if self == Self::Exist { Err(MapError::NotFound) } else { Ok(()) }
    }
}

#[derive(Debug)]
enum Keys {
    Array,
    Hash(HashKeys),
    Lpm(LpmKeys),
    Rules(Box<Rules>),
}

/// A map.
#[derive(Debug)]
pub struct Map {
    name: String,
    definition: MapDefinition,
    keys: Keys,
    values: Storage,
}

impl Map {
    fn new(declared: &Declared) -> Result<Self, MapsError> {
        let Declared { name, definition: d } = declared;
        let (entries, key_size) = (d.max_entries as usize, d.key_size as usize);
        let keys = match d.map_type {
            TYPE_HASH => Keys::Hash(HashKeys::new(entries, key_size, secret())),
            TYPE_LPM_TRIE => Keys::Lpm(LpmKeys::new(entries, key_size - 4)),
            TYPE_CLASSIFIER => Keys::Rules(Box::new(Rules::new(entries, key_size, d.flags))),
            _ => Keys::Array,
        };
        let values = Storage::new(entries, d.value_size as usize)
            .ok_or_else(|| MapsError::NoMemory { name: name.clone() })?;
        Ok(Self { name: name.clone(), definition: *d, keys, values })
    }

    /// The map's symbol.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Type, sizes and flags.
    #[must_use]
    pub const fn definition(&self) -> &MapDefinition {
        &self.definition
    }

    fn find(&self, key: &[u8]) -> Option<usize> {
        match &self.keys {
            Keys::Array => {
                let index = u32::from_ne_bytes(key.try_into().ok()?);
                (index < self.definition.max_entries).then_some(index as usize)
            }
            Keys::Hash(keys) => keys.find(key),
            Keys::Lpm(keys) => keys.find(key),
            Keys::Rules(rules) => rules.find(key),
        }
    }

    fn slot_for_update(&mut self, key: &[u8], flag: UpdateFlag) -> Result<usize, MapError> {
        match &mut self.keys {
            Keys::Array => flag.found(self.find(key).ok_or(MapError::Full)?),
            Keys::Hash(keys) => keys.insert(key, flag),
            Keys::Lpm(keys) => keys.insert(key, flag),
            Keys::Rules(rules) => rules.insert(key, flag),
        }
    }

    fn fits(key: &[u8], size: u32) -> Result<(), MapError> {
        if key.len() == size as usize { Ok(()) } else { Err(MapError::Invalid) }
    }

    /// Size of the key that names an entry in [`Map::update`], [`Map::delete`] and [`Map::iter`]: a key, or
    /// the rule of a classifier.
    #[must_use]
    pub const fn entry_key_size(&self) -> u32 {
        self.definition.entry_key_size()
    }

    /// Returns a copy of the value of the entry that [`Map::update`] stores under `key`.
    ///
    /// # Errors
    /// [`MapError::NotFound`], or [`MapError::Invalid`] if the size of `key` is not [`Map::entry_key_size`].
    pub fn entry(&self, key: &[u8]) -> Result<Vec<u8>, MapError> {
        Ok(self.value(self.slot(key)?))
    }

    /// Copies the value of the entry that [`Map::update`] stores under `key`. Allocates nothing.
    ///
    /// # Errors
    /// As [`Map::entry`], or [`MapError::Invalid`] if `value` has another size than the map's values.
    pub fn copy_entry(&self, key: &[u8], value: &mut [u8]) -> Result<(), MapError> {
        let slot = self.slot(key)?;
        Self::fits(value, self.definition.value_size)?;
        self.values.read(slot, value);
        Ok(())
    }

    /// Returns the slot of an entry.
    fn slot(&self, key: &[u8]) -> Result<usize, MapError> {
        Self::fits(key, self.entry_key_size())?;
        let slot = match &self.keys {
            Keys::Rules(rules) => rules.find_rule(key),
            Keys::Lpm(keys) => keys.exact(key),
            Keys::Array | Keys::Hash(_) => self.find(key),
        };
        slot.ok_or(MapError::NotFound)
    }

    /// Returns a copy of the value that a program finds under `key`: an LPM map's longest matching prefix, a
    /// classifier's first matching rule.
    ///
    /// # Errors
    /// [`MapError::NotFound`], or [`MapError::Invalid`] if the size of `key` is not the map's.
    pub fn lookup(&self, key: &[u8]) -> Result<Vec<u8>, MapError> {
        Self::fits(key, self.definition.key_size)?;
        let slot = self.find(key).ok_or(MapError::NotFound)?;
        Ok(self.value(slot))
    }

    fn value(&self, slot: usize) -> Vec<u8> {
        let mut value = vec![0; self.definition.value_size as usize];
        self.values.read(slot, &mut value);
        value
    }

    /// Returns the only value of an array, for copies in and out: no program runs meanwhile.
    pub(crate) fn only_value(&mut self) -> Option<&mut Storage> {
        (matches!(self.keys, Keys::Array) && self.definition.max_entries == 1).then_some(&mut self.values)
    }

    /// Returns the number and the values of an array's elements.
    pub(crate) fn elements(&mut self) -> Option<(usize, &mut Storage)> {
        let number = self.definition.max_entries as usize;
        matches!(self.keys, Keys::Array).then_some((number, &mut self.values))
    }

    /// Sets the value of `key`.
    ///
    /// # Errors
    /// [`MapError::Full`] (also for an array index out of range), [`MapError::Exists`] or
    /// [`MapError::NotFound`] as `flag` requires, [`MapError::Invalid`] if a size does not fit the map.
    pub fn update(&mut self, key: &[u8], value: &[u8], flag: UpdateFlag) -> Result<(), MapError> {
        Self::fits(key, self.entry_key_size())?;
        if value.len() != self.definition.value_size as usize {
            return Err(MapError::Invalid);
        }
        let slot = self.slot_for_update(key, flag)?;
        self.values.write(slot, value);
        Ok(())
    }

    /// Removes `key`.
    ///
    /// # Errors
    /// [`MapError::NotFound`], or [`MapError::Invalid`] for arrays, whose entries cannot be removed, and for
    /// keys of the wrong size.
    pub fn delete(&mut self, key: &[u8]) -> Result<(), MapError> {
        Self::fits(key, self.entry_key_size())?;
        match &mut self.keys {
            Keys::Array => Err(MapError::Invalid),
            Keys::Hash(keys) => keys.remove(key),
            Keys::Lpm(keys) => keys.remove(key),
            Keys::Rules(rules) => rules.remove(key),
        }
    }

    /// Takes the entries of another program's map. Costs a copy of the values: keys change hands.
    ///
    /// # Errors
    /// [`MapError::Invalid`] if the definitions differ; nothing has changed. After success, the other map's
    /// entries are not defined: its program does not run again.
    pub fn take(&mut self, other: &mut Self) -> Result<(), MapError> {
        if self.definition != other.definition {
            return Err(MapError::Invalid);
        }
        std::mem::swap(&mut self.keys, &mut other.keys);
        self.values.write_all(&other.values);
        Ok(())
    }

    /// Returns the keys and values of all entries in no particular order. An array has all of its entries.
    pub fn iter(&self) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
        (0..self.definition.max_entries as usize).filter_map(|slot| {
            let key = match &self.keys {
                Keys::Array => Some((slot as u32).to_ne_bytes().to_vec()),
                Keys::Hash(keys) => keys.key(slot).map(<[u8]>::to_vec),
                Keys::Lpm(keys) => keys.key(slot).map(Iterator::collect),
                Keys::Rules(rules) => rules.rule(slot).map(<[u8]>::to_vec),
            };
            key.map(|key| (key, self.value(slot)))
        })
    }

    /// Returns address and size of all values, for programs.
    pub(crate) fn span(&self) -> (u64, u64) {
        self.values.span()
    }

    /// For JIT code: returns the address of the first value and the stride, if the map is an array.
    pub(crate) fn as_array(&self) -> Option<(u64, u64)> {
        let stride = Storage::stride(self.definition.value_size as usize) as u64;
        matches!(self.keys, Keys::Array).then(|| (self.span().0, stride))
    }

    /// For programs: returns the charge of a lookup. An array's is free, since JIT code inlines it.
    pub(crate) const fn lookup_cost(&self) -> u64 {
        match &self.keys {
            Keys::Array => 0,
            Keys::Hash(_) => budget::SEARCH + self.definition.key_size as u64 / 2,
            // At most one node per bit.
            Keys::Lpm(_) => budget::SEARCH + self.definition.key_size as u64 * 8,
            Keys::Rules(rules) => budget::SEARCH + rules.words_of_lookup() as u64 / 4,
        }
    }

    /// For programs: returns the charge of an update or deletion, without the copy of the value.
    pub(crate) fn change_cost(&self, key: &[u8]) -> u64 {
        let index = if let Keys::Lpm(keys) = &self.keys { keys.index_positions(key) as u64 } else { 0 };
        self.lookup_cost() + index
    }

    /// For programs: returns the address of the value of `key`, or 0.
    pub(crate) fn address(&self, key: &[u8]) -> u64 {
        self.find(key).map_or(0, |slot| self.values.address(slot))
    }

    /// For programs: updates an entry from an address, with Linux's flags.
    ///
    /// # Safety
    /// `value` is valid for reads of the map's value size.
    pub(crate) unsafe fn update_from(&mut self, key: &[u8], value: *const u8, flags: u64) -> i64 {
        let slot = UpdateFlag::from_flags(flags)
            .ok_or(MapError::Invalid)
            .and_then(|flag| self.slot_for_update(key, flag));
        match slot {
            Ok(slot) => {
                // SAFETY: by contract.
                unsafe { self.values.write_from(slot, value) };
                0
            }
            Err(e) => e.errno(),
        }
    }
}

/// All maps of one program.
#[derive(Debug, Default)]
pub struct Maps {
    maps: Vec<Map>,
}

impl Maps {
    /// Creates a program's maps with their initial entries. `limit` bounds their total size in bytes.
    pub(crate) fn new(declared: &[Declared], entries: &[Entry], limit: usize) -> Result<Self, MapsError> {
        if declared.len() > MAX_MAPS {
            return Err(MapsError::TooMany { count: declared.len() });
        }
        let mut needed = 0usize;
        for d in declared {
            needed = needed.saturating_add(bytes_of(d)?);
        }
        if needed > limit {
            return Err(MapsError::TooLarge { needed, limit });
        }
        let maps = declared.iter().map(Map::new).collect::<Result<_, _>>()?;
        let mut this = Self { maps };
        for (index, entry) in entries.iter().enumerate() {
            this.install(index, entry)?;
        }
        Ok(this)
    }

    /// Creates maps without entries and without a program, for benchmarks and tests.
    ///
    /// # Errors
    /// As for the maps of a program.
    pub fn with_definitions(declared: &[Declared], limit: usize) -> Result<Self, MapsError> {
        Self::new(declared, &[], limit)
    }

    fn install(&mut self, index: usize, entry: &Entry) -> Result<(), MapsError> {
        let failed = |name: &str, source| MapsError::Entry { name: name.to_owned(), index, source };
        let map = self
            .maps
            .get_mut(entry.map as usize)
            .ok_or_else(|| failed(&format!("number {}", entry.map), MapError::NotFound))?;
        map.update(&entry.key, &entry.value, UpdateFlag::Any).map_err(|source| failed(&map.name, source))
    }

    /// Returns the map with this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Map> {
        self.maps.iter().find(|m| m.name == name)
    }

    /// Returns the map with this name, writable.
    #[must_use]
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Map> {
        self.maps.iter_mut().find(|m| m.name == name)
    }

    /// Returns all maps in the order of their indexes.
    pub fn iter(&self) -> impl Iterator<Item = &Map> {
        self.maps.iter()
    }

    /// Returns the map with this index.
    pub(crate) fn by_index(&self, index: usize) -> Option<&Map> {
        self.maps.get(index)
    }

    /// Returns the map with this index, writable.
    pub(crate) fn by_index_mut(&mut self, index: usize) -> Option<&mut Map> {
        self.maps.get_mut(index)
    }
}

/// Returns sixteen random bytes.
fn secret() -> [u8; 16] {
    let mut secret = [0; 16];
    let filled = rustix::rand::getrandom(&mut secret, rustix::rand::GetRandomFlags::empty());
    assert_eq!(filled, Ok(secret.len()), "getrandom of 16 bytes succeeds on a booted machine");
    secret
}

/// Returns a random number.
pub(crate) fn random() -> u64 {
    u64::from_ne_bytes(*secret().first_chunk().expect("sixteen bytes hold eight"))
}

/// Checks the definition of a map and returns its size in bytes.
fn bytes_of(declared: &Declared) -> Result<usize, MapsError> {
    let d = &declared.definition;
    let refuse = |reason: String| Err(MapsError::Definition { name: declared.name.clone(), reason });
    if d.max_entries == 0 || d.value_size == 0 || d.value_size > MAX_VALUE_SIZE {
        return refuse(format!(
            "{} entries of {} bytes are invalid: at least 1 entry of 1 to {MAX_VALUE_SIZE} bytes is required",
            d.max_entries, d.value_size
        ));
    }
    if d.map_type != TYPE_CLASSIFIER && d.flags & !1 != 0 {
        return refuse(format!("flags {:#x} are not supported", d.flags));
    }
    let (entries, key_size) = (d.max_entries as usize, d.key_size);
    // The sum cannot overflow: 2^32 entries of less than 2^17 bytes each.
    let keys = match d.map_type {
        TYPE_ARRAY if key_size == 4 => 0,
        TYPE_ARRAY => return refuse(format!("the key of an array has 4 bytes, not {key_size}")),
        TYPE_HASH if (1..=MAX_KEY_SIZE).contains(&key_size) => HashKeys::bytes(entries, key_size as usize),
        TYPE_HASH => {
            return refuse(format!("the key has {key_size} bytes, a hash allows 1 to {MAX_KEY_SIZE}"));
        }
        TYPE_LPM_TRIE if key_size > 4 && key_size as usize <= 4 + MAX_DATA => {
            LpmKeys::bytes(entries, key_size as usize - 4)
        }
        TYPE_LPM_TRIE => {
            return refuse(format!("the key has {key_size} bytes, an LPM trie allows 5 to {}", 4 + MAX_DATA));
        }
        TYPE_CLASSIFIER if (1..=MAX_KEY_SIZE).contains(&key_size) => {
            match Rules::bytes(entries, key_size as usize, d.flags) {
                Some(bytes) => bytes,
                None => return refuse(format!("ranges {:#x} are longer than the key", d.flags)),
            }
        }
        TYPE_CLASSIFIER => {
            return refuse(format!("the key has {key_size} bytes, a classifier allows 1 to {MAX_KEY_SIZE}"));
        }
        other => {
            return refuse(format!(
                "type {other} is not supported: use hash ({TYPE_HASH}), array ({TYPE_ARRAY}), LPM trie \
                 ({TYPE_LPM_TRIE}) or classifier ({TYPE_CLASSIFIER})"
            ));
        }
    };
    Ok(keys.saturating_add(entries * Storage::stride(d.value_size as usize)))
}

#[cfg(test)]
mod tests;
