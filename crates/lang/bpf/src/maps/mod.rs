//! Maps: the tables, registers and counters of one program.
//!
//! Everything is allocated at load. Values keep their addresses, so a pointer that a lookup returned stays valid
//! for the run, whatever the program inserts or deletes meanwhile. A program and its maps are used by one thread;
//! control access takes the maps by `&mut` between runs.

mod classifier;
mod hash;
mod lpm;
mod storage;

use p4shield_abi::map::{MapDefinition, TYPE_ARRAY, TYPE_CLASSIFIER, TYPE_HASH, TYPE_LPM_TRIE};
use rustix::io::Errno;

use crate::linked::{Entry, Map as Declared};
use classifier::Rules;
use hash::HashKeys;
use lpm::{LpmKeys, MAX_DATA};
use storage::Storage;

/// The most maps of a program.
pub const MAX_MAPS: usize = 1024;
/// The most bytes of a key.
pub const MAX_KEY_SIZE: u32 = 512;
/// The most bytes of a value.
pub const MAX_VALUE_SIZE: u32 = 65_536;

/// Why an operation on a map failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    /// There is no free entry.
    #[error("the map is full")]
    Full,
    /// The entry exists, and was to be created.
    #[error("the entry exists already")]
    Exists,
    /// The entry does not exist.
    #[error("there is no such entry")]
    NotFound,
    /// Key, value or flags do not fit the map, or this kind of map cannot do it.
    #[error("key, value, flags or operation do not fit this map")]
    Invalid,
}

impl MapError {
    /// The negative errno that a program sees, as Linux's maps return it.
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

/// Why a program's maps cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MapsError {
    /// A map's definition makes no sense.
    #[error("map {name}: {reason}")]
    Definition {
        /// The map.
        name: String,
        /// What is wrong, with the limits.
        reason: String,
    },
    /// There are more than [`MAX_MAPS`].
    #[error("the program has {count} maps, the limit is {MAX_MAPS}")]
    TooMany {
        /// How many it has.
        count: usize,
    },
    /// All maps together are larger than the limit of the engine's options.
    #[error("the program's maps need {needed} bytes, the limit is {limit}: declare fewer entries")]
    TooLarge {
        /// Bytes they need.
        needed: usize,
        /// Bytes they may have.
        limit: usize,
    },
    /// The system has no memory left.
    #[error("no memory for map {name}")]
    NoMemory {
        /// The map.
        name: String,
    },
    /// An initial entry cannot be installed.
    #[error("initial entry {index} of map {name} cannot be installed")]
    Entry {
        /// The map.
        name: String,
        /// Which of all the program's entries, from 0.
        index: usize,
        /// Why.
        #[source]
        source: MapError,
    },
}

/// What an update demands: Linux's `BPF_ANY`, `BPF_NOEXIST` and `BPF_EXIST`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exists {
    /// Creates or replaces.
    Any,
    /// Creates only.
    No,
    /// Replaces only.
    Yes,
}

impl Exists {
    pub(crate) const fn from_flags(flags: u64) -> Option<Self> {
        match flags {
            0 => Some(Self::Any),
            1 => Some(Self::No),
            2 => Some(Self::Yes),
            _ => None,
        }
    }

    fn found<T>(self, t: T) -> Result<T, MapError> {
        if self == Self::No { Err(MapError::Exists) } else { Ok(t) }
    }

    fn missing(self) -> Result<(), MapError> {
        if self == Self::Yes { Err(MapError::NotFound) } else { Ok(()) }
    }
}

#[derive(Debug)]
enum Keys {
    Array,
    Hash(HashKeys),
    Lpm(LpmKeys),
    Rules(Box<Rules>),
}

/// One map.
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

    /// Its symbol.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Type and sizes.
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

    fn slot_for_update(&mut self, key: &[u8], exists: Exists) -> Result<usize, MapError> {
        match &mut self.keys {
            Keys::Array => exists.found(self.find(key).ok_or(MapError::Full)?),
            Keys::Hash(keys) => keys.insert(key, exists),
            Keys::Lpm(keys) => keys.insert(key, exists),
            Keys::Rules(rules) => rules.insert(key, exists),
        }
    }

    fn fits(key: &[u8], size: u32) -> Result<(), MapError> {
        if key.len() == size as usize { Ok(()) } else { Err(MapError::Invalid) }
    }

    /// Bytes of what names an entry in [`Map::update`], [`Map::delete`] and [`Map::iter`]: a key, or a classifier's
    /// rule.
    #[must_use]
    pub const fn entry_key_size(&self) -> u32 {
        self.definition.entry_key_size()
    }

    /// Copies the value of the entry out that goes by `key` in [`Map::update`].
    ///
    /// # Errors
    /// [`MapError::NotFound`], or [`MapError::Invalid`] if the size of `key` is not [`Map::entry_key_size`].
    pub fn entry(&self, key: &[u8]) -> Result<Vec<u8>, MapError> {
        Self::fits(key, self.entry_key_size())?;
        let slot = match &self.keys {
            Keys::Rules(rules) => rules.find_rule(key),
            Keys::Lpm(keys) => keys.exact(key),
            Keys::Array | Keys::Hash(_) => self.find(key),
        };
        slot.map(|slot| self.value(slot)).ok_or(MapError::NotFound)
    }

    /// Copies the value out that a program finds under `key`: an LPM map's longest prefix that covers it, a
    /// classifier's first rule that matches it.
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

    /// Sets the value of `key`.
    ///
    /// # Errors
    /// [`MapError::Full`] (also for an array's index that is too large), [`MapError::Exists`] or
    /// [`MapError::NotFound`] as `exists` demands, [`MapError::Invalid`] if a size is not the map's.
    pub fn update(&mut self, key: &[u8], value: &[u8], exists: Exists) -> Result<(), MapError> {
        Self::fits(key, self.entry_key_size())?;
        if value.len() != self.definition.value_size as usize {
            return Err(MapError::Invalid);
        }
        let slot = self.slot_for_update(key, exists)?;
        self.values.write(slot, value);
        Ok(())
    }

    /// Removes `key`.
    ///
    /// # Errors
    /// [`MapError::NotFound`], or [`MapError::Invalid`] for arrays, whose entries cannot be removed, and keys of
    /// the wrong size.
    pub fn delete(&mut self, key: &[u8]) -> Result<(), MapError> {
        Self::fits(key, self.entry_key_size())?;
        match &mut self.keys {
            Keys::Array => Err(MapError::Invalid),
            Keys::Hash(keys) => keys.remove(key),
            Keys::Lpm(keys) => keys.remove(key),
            Keys::Rules(rules) => rules.remove(key),
        }
    }

    /// All entries, key and value, in no particular order. An array has all of its entries.
    pub fn iter(&self) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
        (0..self.definition.max_entries as usize).filter_map(|slot| {
            let key = match &self.keys {
                Keys::Array => Some((slot as u32).to_ne_bytes().to_vec()),
                Keys::Hash(keys) => keys.key(slot),
                Keys::Lpm(keys) => keys.key(slot),
                Keys::Rules(rules) => rules.rule(slot),
            };
            key.map(|key| (key, self.value(slot)))
        })
    }

    /// Address and bytes of all values, for programs.
    pub(crate) fn span(&self) -> (u64, u64) {
        self.values.span()
    }

    /// For JIT code: address of the first value, and bytes from one to the next, if the map is an array.
    pub(crate) fn as_array(&self) -> Option<(u64, u64)> {
        let stride = Storage::stride(self.definition.value_size as usize) as u64;
        matches!(self.keys, Keys::Array).then(|| (self.span().0, stride))
    }

    /// For programs: the address of the value of `key`, or 0.
    pub(crate) fn address(&self, key: &[u8]) -> u64 {
        self.find(key).map_or(0, |slot| self.values.address(slot))
    }

    /// For programs: [`Map::update`] from an address, with Linux's flags.
    ///
    /// # Safety
    /// `value` is valid for reads of the map's value size.
    pub(crate) unsafe fn update_from(&mut self, key: &[u8], value: *const u8, flags: u64) -> i64 {
        let slot = Exists::from_flags(flags)
            .ok_or(MapError::Invalid)
            .and_then(|exists| self.slot_for_update(key, exists));
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
    /// Makes a program's maps and installs their initial entries. All of them together may take `limit` bytes.
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

    /// Maps of these definitions without entries, outside of a program: to measure and to test them.
    ///
    /// # Errors
    /// [`MapsError`], as when a program is loaded.
    pub fn with_definitions(declared: &[Declared], limit: usize) -> Result<Self, MapsError> {
        Self::new(declared, &[], limit)
    }

    fn install(&mut self, index: usize, entry: &Entry) -> Result<(), MapsError> {
        let failed = |name: &str, source| MapsError::Entry { name: name.to_owned(), index, source };
        let map = self
            .maps
            .get_mut(entry.map as usize)
            .ok_or_else(|| failed(&format!("number {}", entry.map), MapError::NotFound))?;
        map.update(&entry.key, &entry.value, Exists::Any).map_err(|source| failed(&map.name, source))
    }

    /// The map of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Map> {
        self.maps.iter().find(|m| m.name == name)
    }

    /// The map of this name, to change it.
    #[must_use]
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Map> {
        self.maps.iter_mut().find(|m| m.name == name)
    }

    /// All maps, as the program numbers them.
    pub fn iter(&self) -> impl Iterator<Item = &Map> {
        self.maps.iter()
    }

    /// The map that the program numbers so.
    pub(crate) fn by_index(&self, index: usize) -> Option<&Map> {
        self.maps.get(index)
    }

    /// The map that the program numbers so, to change it.
    pub(crate) fn by_index_mut(&mut self, index: usize) -> Option<&mut Map> {
        self.maps.get_mut(index)
    }
}

/// Sixteen bytes that nobody outside knows.
fn secret() -> [u8; 16] {
    let mut secret = [0; 16];
    let filled = rustix::rand::getrandom(&mut secret, rustix::rand::GetRandomFlags::empty());
    assert_eq!(filled, Ok(secret.len()), "getrandom of 16 bytes does not fail on a machine that has booted");
    secret
}

/// A number that nobody outside knows.
pub(crate) fn random() -> u64 {
    u64::from_ne_bytes(*secret().first_chunk().expect("sixteen bytes hold eight"))
}

/// Bytes that a map takes, if its definition makes sense.
fn bytes_of(declared: &Declared) -> Result<usize, MapsError> {
    let d = &declared.definition;
    let refuse = |reason: String| Err(MapsError::Definition { name: declared.name.clone(), reason });
    if d.max_entries == 0 || d.value_size == 0 || d.value_size > MAX_VALUE_SIZE {
        return refuse(format!(
            "{} entries of {} bytes: there have to be entries, of 1 to {MAX_VALUE_SIZE} bytes",
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
        TYPE_ARRAY => return refuse(format!("an array's key has 4 bytes, not {key_size}")),
        TYPE_HASH if (1..=MAX_KEY_SIZE).contains(&key_size) => HashKeys::bytes(entries, key_size as usize),
        TYPE_HASH => return refuse(format!("a key of {key_size} bytes: a hash takes 1 to {MAX_KEY_SIZE}")),
        TYPE_LPM_TRIE if key_size > 4 && key_size as usize <= 4 + MAX_DATA => {
            LpmKeys::bytes(entries, key_size as usize - 4)
        }
        TYPE_LPM_TRIE => {
            return refuse(format!("a key of {key_size} bytes: an LPM trie takes 5 to {}", 4 + MAX_DATA));
        }
        TYPE_CLASSIFIER if (1..=MAX_KEY_SIZE).contains(&key_size) => {
            match Rules::bytes(entries, key_size as usize, d.flags) {
                Some(bytes) => bytes,
                None => return refuse(format!("ranges {:#x} are longer than the key", d.flags)),
            }
        }
        TYPE_CLASSIFIER => {
            return refuse(format!("a key of {key_size} bytes: a classifier takes 1 to {MAX_KEY_SIZE}"));
        }
        other => {
            return refuse(format!(
                "type {other} is not supported: hash ({TYPE_HASH}), array ({TYPE_ARRAY}), LPM trie \
                 ({TYPE_LPM_TRIE}), classifier ({TYPE_CLASSIFIER})"
            ));
        }
    };
    Ok(keys.saturating_add(entries * Storage::stride(d.value_size as usize)))
}

#[cfg(test)]
mod tests;
