//! Keys of a longest-prefix-match map: a path-compressed binary trie in an arena, with an index over the
//! first bits of a key.
//!
//! The index holds, for each value of the first bits, the result of the trie's upper nodes, and gives a
//! lookup its first step. Below it a lookup visits at most one node per bit of the key. The index has more
//! entries than the map, so random prefixes leave about one node to visit. All nodes are preallocated: n
//! prefixes need at most 2n - 1 nodes.

use std::ops::Range;

use super::{MapError, UpdateFlag};

const NONE: u32 = u32::MAX;
const WORDS: usize = 4;
/// Maximum number of key bytes after the prefix length.
pub(crate) const MAX_DATA: usize = WORDS * 8;

/// Up to 256 bits; the first bit is the highest one of the first word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Prefix {
    words: [u64; WORDS],
    len: u32,
}

impl Prefix {
    /// Returns the number of leading bits that both have in common.
    fn common(&self, other: &Self) -> u32 {
        let limit = self.len.min(other.len);
        for (i, (a, b)) in self.words.iter().zip(&other.words).enumerate() {
            let at = i as u32 * 64;
            if at >= limit {
                break;
            }
            if a != b {
                return limit.min(at + (a ^ b).leading_zeros());
            }
        }
        limit
    }

    /// Returns whether `key` starts with this prefix. Most keys fit into the first word, which needs no loop.
    #[inline]
    fn covers(&self, key: &Self) -> bool {
        let differ = |i: usize, mask: u64| (self.words[i] ^ key.words[i]) & mask != 0;
        match self.len {
            0 => true,
            1..=64 => self.len <= key.len && !differ(0, u64::MAX << (64 - self.len)),
            _ => self.common(key) == self.len,
        }
    }

    /// Returns bit number `i`, 0 or 1.
    const fn bit(&self, i: u32) -> usize {
        (self.words[i as usize / 64] >> (63 - i % 64) & 1) as usize
    }

    /// Returns the first `len` bits, with the others cleared.
    fn truncate(mut self, len: u32) -> Self {
        for (i, word) in self.words.iter_mut().enumerate() {
            let keep = len.saturating_sub(i as u32 * 64).min(64);
            *word &= if keep == 0 { 0 } else { u64::MAX << (64 - keep) };
        }
        self.len = len;
        self
    }
}

#[derive(Clone, Copy, Debug)]
struct Node {
    prefix: Prefix,
    child: [u32; 2],
    /// Slot of its value; [`NONE`] for a node that only branches.
    slot: u32,
}

/// Maximum number of index bits: the index takes up to half a megabyte.
const MAX_INDEX_BITS: u32 = 16;

/// An index entry: the start of a lookup.
#[derive(Clone, Copy, Debug)]
struct IndexEntry {
    /// The first node whose prefix has all index bits or more, or [`NONE`].
    node: u32,
    /// The slot of the longest prefix above that node, or [`NONE`].
    best: u32,
}

/// Mapping from prefixes to slots.
#[derive(Debug)]
pub(crate) struct LpmKeys {
    data_size: usize,
    /// Index by the first bits of a key.
    index: Vec<IndexEntry>,
    index_bits: u32,
    nodes: Vec<Node>,
    free_nodes: Vec<u32>,
    free_slots: Vec<u32>,
    /// Node of each slot.
    owners: Vec<u32>,
    root: u32,
}

/// An edge of the trie: to the root, or to one child of a node.
#[derive(Clone, Copy)]
enum Edge {
    Root,
    Child(u32, usize),
}

impl LpmKeys {
    /// Returns the size in bytes for this many entries.
    pub(crate) fn bytes(entries: usize, data_size: usize) -> usize {
        entries * (2 * (size_of::<Node>() + 4) + 8)
            + (size_of::<IndexEntry>() << Self::index_bits(entries, data_size))
    }

    /// Returns the number of index bits: two to four index entries per map entry.
    fn index_bits(entries: usize, data_size: usize) -> u32 {
        (entries.max(1).ilog2() + 2).min(MAX_INDEX_BITS).min(data_size as u32 * 8)
    }

    /// Allocates `entries` prefixes of up to `data_size` bytes, at most [`MAX_DATA`].
    pub(crate) fn new(entries: usize, data_size: usize) -> Self {
        let empty = Node { prefix: Prefix { words: [0; WORDS], len: 0 }, child: [NONE; 2], slot: NONE };
        let index_bits = Self::index_bits(entries, data_size);
        Self {
            data_size,
            index: vec![IndexEntry { node: NONE, best: NONE }; 1 << index_bits],
            index_bits,
            nodes: vec![empty; entries * 2],
            free_nodes: (0..entries as u32 * 2).rev().collect(),
            free_slots: (0..entries as u32).rev().collect(),
            owners: vec![NONE; entries],
            root: NONE,
        }
    }

    /// Parses a key: a native-endian length, then the bytes in network order.
    fn parse(&self, key: &[u8]) -> Option<Prefix> {
        let (len, data) = key.split_first_chunk::<4>()?;
        let len = u32::from_ne_bytes(*len);
        let mut words = [0; WORDS];
        for (word, chunk) in words.iter_mut().zip(data.chunks(8)) {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            *word = u64::from_be_bytes(bytes);
        }
        (len as usize <= self.data_size * 8).then(|| Prefix { words, len }.truncate(len))
    }

    fn node(&self, index: u32) -> &Node {
        &self.nodes[index as usize]
    }

    fn follow(&self, edge: Edge) -> u32 {
        match edge {
            Edge::Root => self.root,
            Edge::Child(node, side) => self.node(node).child[side],
        }
    }

    fn set(&mut self, edge: Edge, to: u32) {
        match edge {
            Edge::Root => self.root = to,
            Edge::Child(node, side) => self.nodes[node as usize].child[side] = to,
        }
    }

    /// Returns the slot of the longest prefix that covers `key`.
    pub(crate) fn find(&self, key: &[u8]) -> Option<usize> {
        let key = self.parse(key)?;
        let IndexEntry { mut node, mut best } = if key.len < self.index_bits {
            IndexEntry { node: self.root, best: NONE }
        } else {
            self.index[self.index_position(&key)]
        };
        while node != NONE {
            let at = self.node(node);
            if !at.prefix.covers(&key) {
                break;
            }
            if at.slot != NONE {
                best = at.slot;
            }
            if at.prefix.len == key.len {
                break;
            }
            node = at.child[key.bit(at.prefix.len)];
        }
        (best != NONE).then_some(best as usize)
    }

    /// Returns the index position of a prefix; for a shorter prefix, the first of its positions.
    const fn index_position(&self, prefix: &Prefix) -> usize {
        (prefix.words[0] >> (64 - self.index_bits)) as usize
    }

    /// Returns the number of index positions that a prefix covers.
    const fn index_span(&self, len: u32) -> usize {
        1 << self.index_bits.saturating_sub(len)
    }

    /// Returns how many index positions a change of this prefix updates.
    pub(crate) fn index_positions(&self, key: &[u8]) -> usize {
        self.parse(key).map_or(0, |prefix| self.index_span(prefix.len))
    }

    /// Updates the index positions of a prefix that was added or removed.
    fn update_index(&mut self, prefix: &Prefix) {
        let from = self.index_position(prefix);
        let all = 0..self.index.len();
        self.fill_index(self.root, NONE, all, &(from..from + self.index_span(prefix.len)));
    }

    /// Updates the positions of `wanted` that are among `fields`, all of which lead to node `at`. Each
    /// recursion has a longer prefix, up to the index bits, which bounds the depth.
    fn fill_index(&mut self, at: u32, best: u32, fields: Range<usize>, wanted: &Range<usize>) {
        let clipped = fields.start.max(wanted.start)..fields.end.min(wanted.end);
        if clipped.is_empty() {
            return;
        }
        let none = IndexEntry { node: NONE, best };
        if at == NONE {
            return self.index[clipped].fill(none);
        }
        let Node { prefix, child, slot } = *self.node(at);
        let first = self.index_position(&prefix);
        let covered = first..first + self.index_span(prefix.len);
        for beside in
            [clipped.start..covered.start.min(clipped.end), covered.end.max(clipped.start)..clipped.end]
        {
            if !beside.is_empty() {
                self.index[beside].fill(none);
            }
        }
        if prefix.len >= self.index_bits {
            if wanted.contains(&first) {
                self.index[first] = IndexEntry { node: at, best };
            }
            return;
        }
        let best = if slot == NONE { best } else { slot };
        let middle = first + covered.len() / 2;
        self.fill_index(child[0], best, first..middle, wanted);
        self.fill_index(child[1], best, middle..covered.end, wanted);
    }

    /// Follows `key` to the first edge whose node is missing, differs from it, or is not shorter.
    fn descend(&self, key: &Prefix) -> (Edge, u32) {
        let mut edge = Edge::Root;
        loop {
            let at = self.follow(edge);
            if at == NONE {
                return (edge, 0);
            }
            let node = self.node(at);
            let common = node.prefix.common(key);
            if common < node.prefix.len || node.prefix.len == key.len {
                return (edge, common);
            }
            edge = Edge::Child(at, key.bit(node.prefix.len));
        }
    }

    /// Returns the slot of exactly this prefix.
    pub(crate) fn exact(&self, key: &[u8]) -> Option<usize> {
        let key = self.parse(key)?;
        let (edge, common) = self.descend(&key);
        let at = self.follow(edge);
        let same = at != NONE && common == key.len && self.node(at).prefix.len == key.len;
        (same && self.node(at).slot != NONE).then(|| self.node(at).slot as usize)
    }

    /// Returns the slot of exactly this prefix, and allocates one if the prefix is new.
    pub(crate) fn insert(&mut self, key: &[u8], flag: UpdateFlag) -> Result<usize, MapError> {
        let key = self.parse(key).ok_or(MapError::Invalid)?;
        let (edge, common) = self.descend(&key);
        let at = self.follow(edge);
        let same = at != NONE && common == key.len && self.node(at).prefix.len == key.len;
        if same && self.node(at).slot != NONE {
            return flag.found(self.node(at).slot as usize);
        }
        flag.missing()?;
        let slot = self.free_slots.pop().ok_or(MapError::Full)?;
        let owner = if same {
            self.nodes[at as usize].slot = slot;
            at
        } else {
            self.attach(edge, at, common, key, slot)
        };
        self.owners[slot as usize] = owner;
        self.update_index(&key);
        Ok(slot as usize)
    }

    /// Inserts a node for `key` at `edge`, in place of node `at`, with which it shares `common` bits.
    fn attach(&mut self, edge: Edge, at: u32, common: u32, key: Prefix, slot: u32) -> u32 {
        let new = self.allocate(Node { prefix: key, child: [NONE; 2], slot });
        if at == NONE {
            self.set(edge, new);
        } else if common == key.len {
            let side = self.node(at).prefix.bit(common);
            self.nodes[new as usize].child[side] = at;
            self.set(edge, new);
        } else {
            let mut child = [NONE; 2];
            child[key.bit(common)] = new;
            child[self.node(at).prefix.bit(common)] = at;
            let fork = self.allocate(Node { prefix: key.truncate(common), child, slot: NONE });
            self.set(edge, fork);
        }
        new
    }

    /// Allocates a node. Two nodes per slot suffice: every fork has two children, so there are fewer forks
    /// than values.
    fn allocate(&mut self, node: Node) -> u32 {
        let index = self.free_nodes.pop().expect("a trie of n values has at most 2n - 1 nodes");
        self.nodes[index as usize] = node;
        index
    }

    /// Frees the slot of exactly this prefix.
    pub(crate) fn remove(&mut self, key: &[u8]) -> Result<(), MapError> {
        let key = self.parse(key).ok_or(MapError::Invalid)?;
        let mut parent = None;
        let mut edge = Edge::Root;
        loop {
            let at = self.follow(edge);
            if at == NONE {
                return Err(MapError::NotFound);
            }
            let node = self.node(at);
            if !node.prefix.covers(&key) {
                return Err(MapError::NotFound);
            }
            if node.prefix.len == key.len {
                break;
            }
            parent = Some(edge);
            edge = Edge::Child(at, key.bit(node.prefix.len));
        }
        let at = self.follow(edge);
        let Node { slot, child, .. } = *self.node(at);
        if slot == NONE {
            return Err(MapError::NotFound);
        }
        self.free_slots.push(slot);
        self.owners[slot as usize] = NONE;
        self.nodes[at as usize].slot = NONE;
        self.prune(at, edge, child, parent);
        self.update_index(&key);
        Ok(())
    }

    /// Removes node `at` if it does not branch, and then its parent if that node only branched.
    fn prune(&mut self, at: u32, edge: Edge, child: [u32; 2], parent: Option<Edge>) {
        if child[0] != NONE && child[1] != NONE {
            return;
        }
        let rest = if child[0] == NONE { child[1] } else { child[0] };
        self.set(edge, rest);
        self.free_nodes.push(at);
        if let (NONE, Edge::Child(fork, side), Some(above)) = (rest, edge, parent)
            && self.node(fork).slot == NONE
        {
            let sibling = self.node(fork).child[1 - side];
            self.set(above, sibling);
            self.free_nodes.push(fork);
        }
    }

    /// Returns the key in `slot`, if the slot is used.
    pub(crate) fn key(&self, slot: usize) -> Option<impl Iterator<Item = u8>> {
        let owner = *self.owners.get(slot).filter(|&&o| o != NONE)?;
        let prefix = self.node(owner).prefix;
        let data = prefix.words.into_iter().flat_map(u64::to_be_bytes).take(self.data_size);
        Some(prefix.len.to_ne_bytes().into_iter().chain(data))
    }
}
