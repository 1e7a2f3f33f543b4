//! The control plane's view of a program: its tables, and the encoding of entries as map keys and values.
//!
//! The same code encodes the program's own entries (`entries`, `default_action`) and those that the
//! control plane adds later, so both have the same meaning.
//!
//! # Layouts
//!
//! A packet's key consists of the table's fields in sequence, each in whole bytes and network byte
//! order. In a trie, the field matched by longest prefix comes last, behind a native-endian `u32`
//! prefix length; in a classifier, the fields matched by range come last.
//! [`p4shield_abi::map::TYPE_CLASSIFIER`] defines the layout of a classifier's rules.
//!
//! A value consists of the action's number (`u32`, its index in the table's list) and the action's
//! data: each parameter is little-endian and aligned to its size of 1, 2, 4 or 8 bytes. All values
//! of one table have the same size, a multiple of 8.

use num_bigint::BigUint;

pub use p4shield_abi::schema::{Architecture, Unit};

/// The kind of an array's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrayKind {
    /// A register's values, little-endian.
    Register,
    /// Counters: packets (or added amounts), then, in 16-byte elements, bytes.
    Counter {
        /// The unit that is counted.
        unit: Unit,
    },
    /// [`p4shield_abi::meter::MeterCell`]s.
    Meter {
        /// The unit that is measured.
        unit: Unit,
    },
}

/// An array that a program keeps between packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayFacts {
    /// Full name, such as `ingress.flows`.
    pub name: String,
    /// The symbol of its map.
    pub map: String,
    /// The kind of its elements.
    pub kind: ArrayKind,
    /// Width of an element in bits.
    pub width: u32,
    /// Whether elements are numbers in two's complement.
    pub signed: bool,
    /// Number of elements.
    pub size: u32,
    /// Name among the metrics, if the program marks it with `@metric`.
    pub metric: Option<String>,
}

/// The data structure of a table's entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupKind {
    /// Code: the entries never change.
    Code,
    /// A hash map.
    Exact,
    /// A trie of prefixes.
    Lpm,
    /// A classifier: value and mask, or a range, for each key, and a priority.
    Rules,
}

/// The control plane's view of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableFacts {
    /// Full name, such as `pipe.filter`.
    pub name: String,
    /// The map that holds the entries; `None` if the entries are compiled into code.
    pub map: Option<String>,
    /// The one-entry array that holds the default action; `None` if it is constant.
    pub default_map: Option<String>,
    /// The data structure of the entries.
    pub lookup: LookupKind,
    /// Whether entries may be added and removed.
    pub mutable: bool,
    /// The keys, in the order of the program.
    pub keys: Vec<KeyFacts>,
    /// The actions; the index is the action's number in values.
    pub actions: Vec<ActionFacts>,
    /// Size of a packet's key in the map, in bytes.
    pub key_size: u32,
    /// Size of a value in the map, in bytes.
    pub value_size: u32,
    /// Maximum number of entries.
    pub size: u32,
    /// Offset of the counter in each entry's value: packets and bytes, 8 bytes each, little-endian.
    pub counter_offset: Option<u32>,
    /// Offset of the [`p4shield_abi::meter::MeterCell`] in each entry's value.
    pub meter_offset: Option<u32>,
    /// The direct counter.
    pub counter: Option<DirectFacts>,
    /// The direct meter.
    pub meter: Option<DirectFacts>,
    /// The action profile or selector of the table.
    pub profile: Option<ProfileFacts>,
    /// The maps of a selector's groups, if entries may refer to groups.
    pub groups: Option<GroupFacts>,
    /// The default action at load, and its data.
    pub default_action: Option<(usize, Vec<BigUint>)>,
    /// Whether the default action never changes.
    pub default_is_const: bool,
    /// Number of entries that are installed at load.
    pub initial_entries: usize,
    /// Whether the program declares its entries constant.
    pub entries_are_const: bool,
}

/// A counter or meter in each entry of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectFacts {
    /// Full name.
    pub name: String,
    /// The unit that is counted or measured.
    pub unit: Unit,
    /// Name among the metrics, if the program marks it with `@metric`.
    pub metric: Option<String>,
}

/// An action profile or selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileFacts {
    /// Full name.
    pub name: String,
    /// Maximum number of members.
    pub size: u32,
    /// Whether it chooses among the members of a group.
    pub selector: bool,
}

/// The action number of entries that refer to a group; the group's number (`u32`) follows.
pub const GROUP: u32 = p4shield_abi::schema::GROUP_ACTION;

/// The maps of an action selector's groups, for one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupFacts {
    /// Map by group (`u32`): its number of members (`u32`, then four zero bytes).
    pub groups: String,
    /// Map by group and index within it (`u32` each): an action and its data, as in the table's own
    /// values.
    pub members: String,
}

/// A parser value set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueSetFacts {
    /// Full name, such as `parser.types`.
    pub name: String,
    /// Its map, whose keys are the members.
    pub map: String,
    /// [`LookupKind::Exact`], or [`LookupKind::Rules`] if the declared type has fields with other
    /// match kinds.
    pub lookup: LookupKind,
    /// The keys of a member, in order.
    pub keys: Vec<KeyFacts>,
    /// Size of a packet's key in bytes.
    pub key_size: u32,
    /// Maximum number of members.
    pub size: u32,
}

impl ValueSetFacts {
    /// Encodes a member as key and value of the map.
    ///
    /// # Errors
    /// If the matches do not match the keys of the set.
    pub fn member(&self, matches: &[Match]) -> Result<(Vec<u8>, [u8; 8]), EntryError> {
        Ok((map_key(self.lookup, &self.keys, self.key_size, matches, 0)?, [1; 8]))
    }
}

/// A key of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyFacts {
    /// Name, from `@name` or as written.
    pub name: String,
    /// `exact`, `lpm`, `ternary`, `range` or `optional`.
    pub kind: &'static str,
    /// Width in bits.
    pub width: u32,
    /// Offset in the map's key, in bytes.
    pub offset: u32,
    /// Size in the map's key in bytes, in network byte order.
    pub bytes: u32,
}

/// An action of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionFacts {
    /// Full name, such as `pipe.forward`.
    pub name: String,
    /// Its parameters that the entry supplies.
    pub params: Vec<ParamFacts>,
    /// Whether no entry may use it: the checker added it as the default action.
    pub default_only: bool,
}

/// A parameter of an action that the entry supplies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamFacts {
    /// Name.
    pub name: String,
    /// Width in bits.
    pub width: u32,
    /// Offset in the map's value, in bytes.
    pub offset: u32,
    /// Size in the map's value in bytes, little-endian.
    pub bytes: u32,
}

/// The values that one key of an entry matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Match {
    /// Every value.
    Any,
    /// One value.
    Exact(BigUint),
    /// All values that share this number of leading bits with the value.
    Prefix(BigUint, u32),
    /// All values that equal the value in the bits of the mask.
    Ternary(BigUint, BigUint),
    /// All values from the first to the last, inclusive.
    Range(BigUint, BigUint),
}

/// The reason why an entry is invalid for its table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EntryError {
    /// Wrong number of keys.
    #[error("the table has {expected} keys, but the entry has {got}")]
    Keys {
        /// Keys of the table.
        expected: usize,
        /// Keys of the entry.
        got: usize,
    },
    /// A value has more bits than the key or parameter.
    #[error("the value of {name} does not fit {width} bits")]
    TooWide {
        /// Name of the key or parameter.
        name: String,
        /// Its width in bits.
        width: u32,
    },
    /// The match does not fit the match kind of the key.
    #[error("key {name} requires a match of kind {kind}")]
    Kind {
        /// Name of the key.
        name: String,
        /// Its match kind.
        kind: &'static str,
    },
    /// A range that ends before it starts.
    #[error("the range of {name} is empty")]
    EmptyRange {
        /// Name of the key.
        name: String,
    },
    /// The table has no action of this number.
    #[error("the table has no action number {0}")]
    Action(usize),
    /// Wrong number of parameters.
    #[error("action {action} has {expected} parameters, but the entry has {got}")]
    Params {
        /// Name of the action.
        action: String,
        /// Its number of parameters.
        expected: usize,
        /// The entry's number of parameters.
        got: usize,
    },
}

impl KeyFacts {
    fn full(&self) -> BigUint {
        ones(self.width)
    }

    fn checked<'v>(&self, v: &'v BigUint) -> Result<&'v BigUint, EntryError> {
        if v.bits() <= u64::from(self.width) {
            Ok(v)
        } else {
            Err(EntryError::TooWide { name: self.name.clone(), width: self.width })
        }
    }

    fn wrong_kind(&self) -> EntryError {
        EntryError::Kind { name: self.name.clone(), kind: self.kind }
    }

    /// Returns value and mask of a match that is not a range.
    fn ternary(&self, m: &Match) -> Result<(BigUint, BigUint), EntryError> {
        let (value, mask) = match m {
            Match::Any => (BigUint::default(), BigUint::default()),
            Match::Exact(v) => (v.clone(), self.full()),
            Match::Prefix(v, len) if *len <= self.width => (v.clone(), prefix_mask(self.width, *len)),
            Match::Ternary(v, mask) => (v.clone(), mask.clone()),
            Match::Prefix(..) | Match::Range(..) => return Err(self.wrong_kind()),
        };
        let mask_is_full = mask == self.full();
        let allowed = match self.kind {
            "exact" => mask_is_full,
            "optional" => mask_is_full || mask == BigUint::default(),
            "lpm" => is_prefix(&mask, self.width),
            _ => true,
        };
        if !allowed {
            return Err(self.wrong_kind());
        }
        Ok((self.checked(&value)? & self.checked(&mask)?, mask))
    }

    fn range(&self, m: &Match) -> Result<(BigUint, BigUint), EntryError> {
        let (low, high) = match m {
            Match::Any => (BigUint::default(), self.full()),
            Match::Exact(v) => (v.clone(), v.clone()),
            Match::Range(low, high) => (low.clone(), high.clone()),
            Match::Prefix(..) | Match::Ternary(..) => return Err(self.wrong_kind()),
        };
        if low > high {
            return Err(EntryError::EmptyRange { name: self.name.clone() });
        }
        self.checked(&high)?;
        Ok((low, high))
    }

    /// Writes a number to its position in a key.
    fn put(&self, key: &mut [u8], value: &BigUint) {
        let digits = value.to_bytes_be();
        let end = (self.offset + self.bytes) as usize;
        let n = digits.len().min(self.bytes as usize);
        key[end - n..end].copy_from_slice(&digits[digits.len() - n..]);
    }
}

impl TableFacts {
    /// Encodes the map key of an entry. `priority` matters only where rules may overlap; the
    /// greatest wins.
    ///
    /// # Errors
    /// If the matches do not match the keys of the table.
    pub fn entry_key(&self, matches: &[Match], priority: u32) -> Result<Vec<u8>, EntryError> {
        map_key(self.lookup, &self.keys, self.key_size, matches, priority)
    }

    /// Encodes an entry that is code as a classifier's rule over the key, if its matches have that form.
    #[must_use]
    pub fn code_rule(&self, matches: &[Match], priority: u32) -> Option<Vec<u8>> {
        rule(&self.keys, self.key_size, matches, priority).ok()
    }

    /// Encodes the map value of an entry that refers to a group.
    #[must_use]
    pub fn group_value(&self, group: u32) -> Vec<u8> {
        let mut bytes = vec![0; self.value_size as usize];
        bytes[..4].copy_from_slice(&GROUP.to_le_bytes());
        bytes[4..8].copy_from_slice(&group.to_le_bytes());
        bytes
    }

    /// Encodes the map value of an action with its data.
    ///
    /// # Errors
    /// If the action does not exist or its parameters do not match the data.
    pub fn action_value(&self, action: usize, data: &[BigUint]) -> Result<Vec<u8>, EntryError> {
        let a = self.actions.get(action).ok_or(EntryError::Action(action))?;
        if a.params.len() != data.len() {
            let (action, expected) = (a.name.clone(), a.params.len());
            return Err(EntryError::Params { action, expected, got: data.len() });
        }
        let mut bytes = vec![0; self.value_size as usize];
        bytes[..4].copy_from_slice(&(action as u32).to_le_bytes());
        for (p, v) in a.params.iter().zip(data) {
            if v.bits() > u64::from(p.width) {
                return Err(EntryError::TooWide { name: p.name.clone(), width: p.width });
            }
            let digits = v.to_bytes_le();
            let n = digits.len().min(p.bytes as usize);
            bytes[p.offset as usize..p.offset as usize + n].copy_from_slice(&digits[..n]);
        }
        Ok(bytes)
    }
}

/// Encodes the matches of keys as a map key.
fn map_key(
    lookup: LookupKind,
    keys: &[KeyFacts],
    size: u32,
    matches: &[Match],
    priority: u32,
) -> Result<Vec<u8>, EntryError> {
    if matches.len() != keys.len() {
        return Err(EntryError::Keys { expected: keys.len(), got: matches.len() });
    }
    match lookup {
        LookupKind::Rules => rule(keys, size, matches, priority),
        _ => plain_key(lookup, keys, size, matches),
    }
}

fn plain_key(
    lookup: LookupKind,
    keys: &[KeyFacts],
    size: u32,
    matches: &[Match],
) -> Result<Vec<u8>, EntryError> {
    let mut key = vec![0; size as usize];
    for (k, m) in keys.iter().zip(matches) {
        let (value, mask) = k.ternary(m)?;
        // A prefix counts from the first bit of its bytes, so a width that is not a multiple of 8
        // is shifted left.
        let lpm = k.kind == "lpm" && lookup == LookupKind::Lpm;
        let pad = if lpm { k.bytes * 8 - k.width } else { 0 };
        k.put(&mut key, &(value << pad));
        if lpm {
            let bits = (k.offset - 4) * 8 + mask.count_ones() as u32;
            key[..4].copy_from_slice(&bits.to_le_bytes());
        }
    }
    Ok(key)
}

fn rule(keys: &[KeyFacts], key_size: u32, matches: &[Match], priority: u32) -> Result<Vec<u8>, EntryError> {
    let size = key_size as usize;
    let mut key = vec![0; p4shield_abi::map::rule_size(key_size) as usize];
    key[..4].copy_from_slice(&priority.to_le_bytes());
    for (k, m) in keys.iter().zip(matches) {
        let (a, b) = if k.kind == "range" { k.range(m)? } else { k.ternary(m)? };
        k.put(&mut key[4..4 + size], &a);
        k.put(&mut key[4 + size..], &b);
    }
    Ok(key)
}

/// Returns a number of `width` ones.
fn ones(width: u32) -> BigUint {
    (BigUint::from(1u8) << width) - 1u8
}

/// Returns a mask of `width` bits that starts with `len` ones.
fn prefix_mask(width: u32, len: u32) -> BigUint {
    ones(len) << (width - len)
}

/// Whether the ones of a mask are contiguous from the left.
fn is_prefix(mask: &BigUint, width: u32) -> bool {
    let len = mask.count_ones() as u32;
    len <= width && *mask == prefix_mask(width, len)
}
