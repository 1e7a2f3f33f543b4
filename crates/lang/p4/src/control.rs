//! What a control plane has to know of a program: its tables, and how an entry looks as a map's key and value.
//!
//! The compiler's own entries (`entries`, `default_action`) and those that come later are made by the same code, so
//! both mean the same.
//!
//! # Layouts
//!
//! A packet's key is the table's fields one after the other, each in whole bytes and network byte order. A field
//! matched by longest prefix in a trie comes last, behind a native-endian `u32` prefix length; in a classifier the
//! fields matched by range come last. A classifier's rules are laid out as [`p4shield_abi::map::TYPE_CLASSIFIER`]
//! says.
//! A value is the action's number (`u32`, its index in the table's list), then the action's data, each
//! parameter aligned to its size of 1, 2, 4 or 8 bytes and little-endian. Values of one table have one size, a
//! multiple of 8.

use num_bigint::BigUint;

/// The architecture that a program is written for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Architecture {
    /// `ubpf_model`: parser, pipeline and deparser.
    #[default]
    Ubpf,
    /// `ebpf_model`: parser and filter.
    Ebpf,
    /// `v1model`: the reference switch's pipeline.
    V1model,
}

impl Architecture {
    /// Its name, as in the file that declares it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ubpf => "ubpf_model",
            Self::Ebpf => "ebpf_model",
            Self::V1model => "v1model",
        }
    }
}

/// What a counter or meter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Packets.
    Packets,
    /// Bytes.
    Bytes,
    /// Both.
    Both,
}

/// What an array's elements are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrayKind {
    /// A register's values, little-endian.
    Register,
    /// Counters: packets (or whatever is added), then, in 16-byte elements, bytes.
    Counter {
        /// What is counted.
        unit: Unit,
    },
    /// [`p4shield_abi::meter::MeterCell`]s.
    Meter {
        /// What is measured.
        unit: Unit,
    },
}

/// An array that a program keeps between packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayFacts {
    /// Full name, such as `ingress.flows`.
    pub name: String,
    /// Its map.
    pub map: String,
    /// What its elements are.
    pub kind: ArrayKind,
    /// Bits of an element that count.
    pub width: u32,
    /// Elements.
    pub size: u32,
}

/// How the entries of a table are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// As code: they never change.
    Code,
    /// In a hash map.
    Exact,
    /// In a trie of prefixes.
    Lpm,
    /// In a classifier: value and mask, or a range, for each key, and a priority.
    Rules,
}

/// What a table looks like to whoever fills it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableFacts {
    /// Full name, such as `pipe.filter`.
    pub name: String,
    /// The map that holds the entries; none if the entries are compiled into code.
    pub map: Option<String>,
    /// The one-entry array that holds the default action; none if it is constant.
    pub default_map: Option<String>,
    /// How the entries are kept.
    pub shape: Shape,
    /// Entries may be added and removed.
    pub mutable: bool,
    /// The keys, in the order of the program.
    pub keys: Vec<KeyFacts>,
    /// The actions; the index is the action's number in values.
    pub actions: Vec<ActionFacts>,
    /// Bytes of a packet's key in the map.
    pub key_size: u32,
    /// Bytes of a value in the map.
    pub value_size: u32,
    /// The most entries.
    pub size: u32,
    /// Where each entry's value has its counter: packets and bytes, 8 bytes each, little-endian.
    pub counter_offset: Option<u32>,
    /// Where each entry's value has its [`p4shield_abi::meter::MeterCell`].
    pub meter_offset: Option<u32>,
    /// The direct counter.
    pub counter: Option<DirectFacts>,
    /// The direct meter.
    pub meter: Option<DirectFacts>,
    /// The action profile or selector that the table names.
    pub profile: Option<ProfileFacts>,
    /// The maps of a selector's groups, if entries may name groups.
    pub groups: Option<GroupFacts>,
    /// The default action at load, and its data.
    pub default_action: Option<(usize, Vec<BigUint>)>,
    /// The default action never changes.
    pub default_is_const: bool,
    /// Entries that are there at load.
    pub initial_entries: usize,
    /// The program says that its entries never change.
    pub entries_are_const: bool,
}

/// A counter or meter in each entry of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectFacts {
    /// Full name.
    pub name: String,
    /// What is counted or measured.
    pub unit: Unit,
}

/// An action profile or selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileFacts {
    /// Full name.
    pub name: String,
    /// The most members.
    pub size: u32,
    /// It chooses among the members of a group.
    pub selector: bool,
}

/// The action number of entries that name a group, whose number (`u32`) follows, instead of an action.
pub const GROUP: u32 = u32::MAX;

/// Where the groups of an action selector are kept, for one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupFacts {
    /// By group (`u32`): how many members it has (`u32`, then four zero bytes).
    pub groups: String,
    /// By group and index within it (`u32` each): an action and its data, as in the table's own values.
    pub members: String,
}

/// A parser value set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueSetFacts {
    /// Full name, such as `parser.types`.
    pub name: String,
    /// Its map: what a member matches is the key.
    pub map: String,
    /// [`Shape::Exact`], or [`Shape::Rules`] if the declared type has fields that are matched otherwise.
    pub shape: Shape,
    /// What a member matches, in order.
    pub keys: Vec<KeyFacts>,
    /// Bytes of a packet's key.
    pub key_size: u32,
    /// The most members.
    pub size: u32,
}

impl ValueSetFacts {
    /// Key and value of a member in the map.
    ///
    /// # Errors
    /// If the matches are not such as the set has.
    pub fn member(&self, matches: &[Match]) -> Result<(Vec<u8>, [u8; 8]), EntryError> {
        Ok((map_key(self.shape, &self.keys, self.key_size, matches, 0)?, [1; 8]))
    }
}

/// A key of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyFacts {
    /// Name, as in `@name` or as written.
    pub name: String,
    /// `exact`, `lpm`, `ternary`, `range` or `optional`.
    pub kind: &'static str,
    /// Bits.
    pub width: u32,
    /// First byte in the map's key.
    pub offset: u32,
    /// Bytes in the map's key, in network byte order.
    pub bytes: u32,
}

/// An action of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionFacts {
    /// Full name, such as `pipe.forward`.
    pub name: String,
    /// Its data.
    pub params: Vec<ParamFacts>,
    /// No entry has it: it came in as the default action that the program does not name.
    pub default_only: bool,
}

/// A parameter of an action that the entry supplies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamFacts {
    /// Name.
    pub name: String,
    /// Bits.
    pub width: u32,
    /// First byte in the map's value.
    pub offset: u32,
    /// Bytes in the map's value, little-endian.
    pub bytes: u32,
}

/// What one key of an entry matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Match {
    /// Every value.
    Any,
    /// One value.
    Exact(BigUint),
    /// All values that start with these bits of this value.
    Prefix(BigUint, u32),
    /// All values that have the value's bits where the mask has ones.
    Ternary(BigUint, BigUint),
    /// All values from the first to the last, both included.
    Range(BigUint, BigUint),
}

/// Why an entry does not fit its table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EntryError {
    /// There are too many or too few keys.
    #[error("the table has {expected} keys, the entry {got}")]
    Keys {
        /// Keys of the table.
        expected: usize,
        /// Keys of the entry.
        got: usize,
    },
    /// A value needs more bits than the key or parameter has.
    #[error("the value of {name} does not fit {width} bits")]
    TooWide {
        /// The key or parameter.
        name: String,
        /// Its width.
        width: u32,
    },
    /// A key cannot be matched so.
    #[error("key {name} is matched by {kind}, which this is not")]
    Kind {
        /// The key.
        name: String,
        /// How it is matched.
        kind: &'static str,
    },
    /// A range that ends before it starts.
    #[error("the range of {name} is empty")]
    EmptyRange {
        /// The key.
        name: String,
    },
    /// There is no action of this number.
    #[error("the table has no action number {0}")]
    Action(usize),
    /// There are too many or too few parameters.
    #[error("action {action} has {expected} parameters, the entry {got}")]
    Params {
        /// The action.
        action: String,
        /// Its parameters.
        expected: usize,
        /// Those given.
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

    /// Value and mask of a match that is no range.
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

    /// Writes a number into its place in a key.
    fn put(&self, key: &mut [u8], value: &BigUint) {
        let digits = value.to_bytes_be();
        let end = (self.offset + self.bytes) as usize;
        let n = digits.len().min(self.bytes as usize);
        key[end - n..end].copy_from_slice(&digits[digits.len() - n..]);
    }
}

impl TableFacts {
    /// The map key of an entry. `priority` counts only where rules may overlap; the greatest wins.
    ///
    /// # Errors
    /// If the keys are not such as the table has.
    pub fn entry_key(&self, matches: &[Match], priority: u32) -> Result<Vec<u8>, EntryError> {
        map_key(self.shape, &self.keys, self.key_size, matches, priority)
    }

    /// The map value of an entry that names a group.
    #[must_use]
    pub fn group_value(&self, group: u32) -> Vec<u8> {
        let mut bytes = vec![0; self.value_size as usize];
        bytes[..4].copy_from_slice(&GROUP.to_le_bytes());
        bytes[4..8].copy_from_slice(&group.to_le_bytes());
        bytes
    }

    /// The map value of an action with its data.
    ///
    /// # Errors
    /// If the action does not exist or the data are not such as it has.
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

/// What keys of a map match, as the map's key.
fn map_key(
    shape: Shape,
    keys: &[KeyFacts],
    size: u32,
    matches: &[Match],
    priority: u32,
) -> Result<Vec<u8>, EntryError> {
    if matches.len() != keys.len() {
        return Err(EntryError::Keys { expected: keys.len(), got: matches.len() });
    }
    match shape {
        Shape::Rules => rule(keys, size, matches, priority),
        _ => plain_key(shape, keys, size, matches),
    }
}

fn plain_key(shape: Shape, keys: &[KeyFacts], size: u32, matches: &[Match]) -> Result<Vec<u8>, EntryError> {
    let mut key = vec![0; size as usize];
    for (k, m) in keys.iter().zip(matches) {
        let (value, mask) = k.ternary(m)?;
        // A prefix counts from the first bit of its bytes, so a width that fills no whole byte is moved left.
        let lpm = k.kind == "lpm" && shape == Shape::Lpm;
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

/// A number of `width` ones.
fn ones(width: u32) -> BigUint {
    (BigUint::from(1u8) << width) - 1u8
}

/// `len` ones followed by zeros, `width` bits in all.
fn prefix_mask(width: u32, len: u32) -> BigUint {
    ones(len) << (width - len)
}

/// Whether a mask has all its ones on the left.
fn is_prefix(mask: &BigUint, width: u32) -> bool {
    let len = mask.count_ones() as u32;
    len <= width && *mask == prefix_mask(width, len)
}
