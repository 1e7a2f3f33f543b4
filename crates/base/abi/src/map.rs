//! Maps: the tables, registers and counters of a program.
//!
//! An object declares maps in its `maps` section as an array of [`MapDefinition`] (libbpf's `struct
//! bpf_map_def`), one symbol each. Map type numbers are Linux's.

/// Hash table of fixed capacity: `enum bpf_map_type`'s `BPF_MAP_TYPE_HASH`.
pub const TYPE_HASH: u32 = 1;
/// Array indexed by a 32-bit key, zero at load: `BPF_MAP_TYPE_ARRAY`.
pub const TYPE_ARRAY: u32 = 2;
/// Longest-prefix match; the key is a native-endian `u32` prefix length, then the bytes in network order:
/// `BPF_MAP_TYPE_LPM_TRIE`.
pub const TYPE_LPM_TRIE: u32 = 11;

/// One map as an object declares it. `repr(C)`, 20 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct MapDefinition {
    /// A type, such as [`TYPE_LPM_TRIE`].
    pub map_type: u32,
    /// Bytes in a key.
    pub key_size: u32,
    /// Bytes in a value.
    pub value_size: u32,
    /// Largest number of entries.
    pub max_entries: u32,
    /// The ranges of a classifier, see [`range_widths`]; zero in other maps.
    pub flags: u32,
}

/// Bytes in a [`MapDefinition`].
pub const MAP_DEFINITION_SIZE: usize = 20;
const _: () = assert!(size_of::<MapDefinition>() == MAP_DEFINITION_SIZE);

impl MapDefinition {
    /// Decodes a definition.
    #[must_use]
    pub fn decode(b: &[u8; MAP_DEFINITION_SIZE]) -> Self {
        let mut r = crate::bytes::Reader::new(b);
        Self {
            map_type: r.u32(),
            key_size: r.u32(),
            value_size: r.u32(),
            max_entries: r.u32(),
            flags: r.u32(),
        }
    }

    /// Returns the size of the key of an entry: a key, or a classifier's rule.
    #[must_use]
    pub const fn entry_key_size(&self) -> u32 {
        if self.map_type == TYPE_CLASSIFIER { rule_size(self.key_size) } else { self.key_size }
    }

    /// Encodes the definition.
    #[must_use]
    pub fn encode(&self) -> [u8; MAP_DEFINITION_SIZE] {
        let mut out = [0; MAP_DEFINITION_SIZE];
        let mut w = crate::bytes::Writer::new(&mut out);
        for v in [self.map_type, self.key_size, self.value_size, self.max_entries, self.flags] {
            w.u32(v);
        }
        out
    }
}

/// Classifier: rules with priorities, which match each key byte by value and mask or, at the end of
/// the key, by ranges. Not one of Linux's types. A packet's key has `key_size` bytes; programs may
/// only look up.
///
/// A rule has [`rule_size`] bytes: `u32` priority (little-endian; the greatest wins, the first added
/// among equals), then `key_size` bytes `a`, then `key_size` bytes `b`. A byte outside ranges matches
/// if it equals `a` in the bits that `b` has set; a range field matches if it lies between `a` and
/// `b`, both included, as big-endian numbers. [`MapDefinition::flags`] defines which fields are
/// ranges, see [`range_widths`].
pub const TYPE_CLASSIFIER: u32 = 48;

/// Most range fields of a classifier: one hexadecimal digit of the flags each.
pub const MAX_RANGES: usize = 8;
/// Most bytes of a range field.
pub const MAX_RANGE_BYTES: u32 = 15;

/// Returns the size of a rule in a classifier whose keys have `key_size` bytes.
#[must_use]
pub const fn rule_size(key_size: u32) -> u32 {
    key_size.saturating_mul(2).saturating_add(4)
}

/// Returns the size of each range field of a classifier. The range fields are the last bytes of the
/// key, in this order. The lowest digit of the flags is the first field; a zero digit ends the list.
pub fn range_widths(flags: u32) -> impl Iterator<Item = u32> {
    (0..MAX_RANGES as u32).map(move |i| flags >> (4 * i) & 15).take_while(|w| *w > 0)
}
