//! Maps: the tables, registers and counters of a program.
//!
//! An object declares maps in its `maps` section as an array of [`MapDefinition`] (libbpf's `struct bpf_map_def`),
//! one symbol each. Map type numbers are Linux's.

/// Open hash of fixed capacity: `enum bpf_map_type`'s `BPF_MAP_TYPE_HASH`.
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
    /// One of the `TYPE_` constants.
    pub map_type: u32,
    /// Bytes in a key.
    pub key_size: u32,
    /// Bytes in a value.
    pub value_size: u32,
    /// The most entries it holds.
    pub max_entries: u32,
    /// Zero; reserved.
    pub flags: u32,
}

/// Bytes in a [`MapDefinition`].
pub const MAP_DEFINITION_SIZE: usize = 20;
const _: () = assert!(size_of::<MapDefinition>() == MAP_DEFINITION_SIZE);

impl MapDefinition {
    /// The definition in these bytes.
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

    /// The bytes of this definition.
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
