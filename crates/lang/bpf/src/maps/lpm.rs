//! Keys of a longest-prefix map: a path-compressed binary trie in an arena, behind an index over a key's first bits.
//!
//! A lookup takes its first step by the index, which holds for each value of the first bits what the trie's nodes above
//! have to say. Below it visits at most one node a bit of the key; as the index has more fields than the map has
//! entries, random prefixes leave about one. Nodes are preallocated: n prefixes need at most 2n - 1 of them.

use std::ops::Range;

use super::{Exists, MapError};

const NONE: u32 = u32::MAX;
const WORDS: usize = 4;
/// The most bytes of a key behind the prefix length.
pub(crate) const MAX_DATA: usize = WORDS * 8;

/// Up to 256 bits, the first bit on top of the first word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Prefix {
    words: [u64; WORDS],
    len: u32,
}

impl Prefix {
    /// How many leading bits both have in common.
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

    /// Whether `key` starts with this prefix. Most keys fit into the first word, which is compared without a loop.
    #[inline]
    fn covers(&self, key: &Self) -> bool {
        let differ = |i: usize, mask: u64| (self.words[i] ^ key.words[i]) & mask != 0;
        match self.len {
            0 => true,
            1..=64 => self.len <= key.len && !differ(0, u64::MAX << (64 - self.len)),
            _ => self.common(key) == self.len,
        }
    }

    /// Bit number `i`, 0 or 1.
    const fn bit(&self, i: u32) -> usize {
        (self.words[i as usize / 64] >> (63 - i % 64) & 1) as usize
    }

    /// The first `len` bits, the others zero.
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
    /// Where its value is; [`NONE`] for a node that only branches.
    slot: u32,
}

/// The most bits of the index: half a megabyte.
const MAX_INDEX_BITS: u32 = 16;

/// Where a lookup begins.
#[derive(Clone, Copy, Debug)]
struct Start {
    /// The first node with a prefix of all the index's bits or more, or [`NONE`].
    node: u32,
    /// The slot of the longest prefix above that node, or [`NONE`].
    best: u32,
}

/// From prefixes to slots.
#[derive(Debug)]
pub(crate) struct LpmKeys {
    data_size: usize,
    /// By the first bits of a key.
    index: Vec<Start>,
    index_bits: u32,
    nodes: Vec<Node>,
    free_nodes: Vec<u32>,
    free_slots: Vec<u32>,
    /// Node of each slot.
    owners: Vec<u32>,
    root: u32,
}

/// A link of the trie: the root, or one side of a node.
#[derive(Clone, Copy)]
enum Link {
    Root,
    Child(u32, usize),
}

impl LpmKeys {
    /// Bytes it takes for this many entries.
    pub(crate) fn bytes(entries: usize, data_size: usize) -> usize {
        entries * (2 * (size_of::<Node>() + 4) + 8)
            + (size_of::<Start>() << Self::index_bits(entries, data_size))
    }

    /// Two to four fields of the index for each entry.
    fn index_bits(entries: usize, data_size: usize) -> u32 {
        (entries.max(1).ilog2() + 2).min(MAX_INDEX_BITS).min(data_size as u32 * 8)
    }

    /// Room for `entries` prefixes of up to `data_size` bytes, at most [`MAX_DATA`].
    pub(crate) fn new(entries: usize, data_size: usize) -> Self {
        let empty = Node { prefix: Prefix { words: [0; WORDS], len: 0 }, child: [NONE; 2], slot: NONE };
        let index_bits = Self::index_bits(entries, data_size);
        Self {
            data_size,
            index: vec![Start { node: NONE, best: NONE }; 1 << index_bits],
            index_bits,
            nodes: vec![empty; entries * 2],
            free_nodes: (0..entries as u32 * 2).rev().collect(),
            free_slots: (0..entries as u32).rev().collect(),
            owners: vec![NONE; entries],
            root: NONE,
        }
    }

    /// The prefix in a key: a native-endian length, then the bytes in network order.
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

    fn follow(&self, link: Link) -> u32 {
        match link {
            Link::Root => self.root,
            Link::Child(node, side) => self.node(node).child[side],
        }
    }

    fn set(&mut self, link: Link, to: u32) {
        match link {
            Link::Root => self.root = to,
            Link::Child(node, side) => self.nodes[node as usize].child[side] = to,
        }
    }

    /// The slot of the longest prefix that covers `key`.
    pub(crate) fn find(&self, key: &[u8]) -> Option<usize> {
        let key = self.parse(key)?;
        let Start { mut node, mut best } = if key.len < self.index_bits {
            Start { node: self.root, best: NONE }
        } else {
            self.index[self.place(&key)]
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

    /// The field of the index for the first bits of a prefix; where it is shorter, the first of its fields.
    const fn place(&self, prefix: &Prefix) -> usize {
        (prefix.words[0] >> (64 - self.index_bits)) as usize
    }

    /// How many fields of the index a prefix covers.
    const fn span(&self, len: u32) -> usize {
        1 << self.index_bits.saturating_sub(len)
    }

    /// Brings the fields up to date that a prefix covers, after it came or went.
    fn index_again(&mut self, prefix: &Prefix) {
        let from = self.place(prefix);
        let all = 0..self.index.len();
        self.fill(self.root, NONE, all, &(from..from + self.span(prefix.len)));
    }

    /// Fills the fields `wanted` as far as they are among `fields`, which all lead to node `at`. Each step down has a
    /// longer prefix, up to the index's bits, so that this does not go deep.
    fn fill(&mut self, at: u32, best: u32, fields: Range<usize>, wanted: &Range<usize>) {
        let clipped = fields.start.max(wanted.start)..fields.end.min(wanted.end);
        if clipped.is_empty() {
            return;
        }
        let none = Start { node: NONE, best };
        if at == NONE {
            return self.index[clipped].fill(none);
        }
        let Node { prefix, child, slot } = *self.node(at);
        let first = self.place(&prefix);
        let covered = first..first + self.span(prefix.len);
        for beside in
            [clipped.start..covered.start.min(clipped.end), covered.end.max(clipped.start)..clipped.end]
        {
            if !beside.is_empty() {
                self.index[beside].fill(none);
            }
        }
        if prefix.len >= self.index_bits {
            if wanted.contains(&first) {
                self.index[first] = Start { node: at, best };
            }
            return;
        }
        let best = if slot == NONE { best } else { slot };
        let middle = first + covered.len() / 2;
        self.fill(child[0], best, first..middle, wanted);
        self.fill(child[1], best, middle..covered.end, wanted);
    }

    /// Follows `key` to the first link whose node is missing, differs from it, or is not shorter.
    fn descend(&self, key: &Prefix) -> (Link, u32) {
        let mut link = Link::Root;
        loop {
            let at = self.follow(link);
            if at == NONE {
                return (link, 0);
            }
            let node = self.node(at);
            let common = node.prefix.common(key);
            if common < node.prefix.len || node.prefix.len == key.len {
                return (link, common);
            }
            link = Link::Child(at, key.bit(node.prefix.len));
        }
    }

    /// The slot of exactly this prefix.
    pub(crate) fn exact(&self, key: &[u8]) -> Option<usize> {
        let key = self.parse(key)?;
        let (link, common) = self.descend(&key);
        let at = self.follow(link);
        let same = at != NONE && common == key.len && self.node(at).prefix.len == key.len;
        (same && self.node(at).slot != NONE).then(|| self.node(at).slot as usize)
    }

    /// The slot of exactly this prefix, which is taken if there was none.
    pub(crate) fn insert(&mut self, key: &[u8], exists: Exists) -> Result<usize, MapError> {
        let key = self.parse(key).ok_or(MapError::Invalid)?;
        let (link, common) = self.descend(&key);
        let at = self.follow(link);
        let same = at != NONE && common == key.len && self.node(at).prefix.len == key.len;
        if same && self.node(at).slot != NONE {
            return exists.found(self.node(at).slot as usize);
        }
        exists.missing()?;
        let slot = self.free_slots.pop().ok_or(MapError::Full)?;
        let owner = if same {
            self.nodes[at as usize].slot = slot;
            at
        } else {
            self.hang(link, at, common, key, slot)
        };
        self.owners[slot as usize] = owner;
        self.index_again(&key);
        Ok(slot as usize)
    }

    /// Hangs a new node for `key` at `link`, where `at` hung, of which `common` bits agree.
    fn hang(&mut self, link: Link, at: u32, common: u32, key: Prefix, slot: u32) -> u32 {
        let new = self.take(Node { prefix: key, child: [NONE; 2], slot });
        if at == NONE {
            self.set(link, new);
        } else if common == key.len {
            let side = self.node(at).prefix.bit(common);
            self.nodes[new as usize].child[side] = at;
            self.set(link, new);
        } else {
            let mut child = [NONE; 2];
            child[key.bit(common)] = new;
            child[self.node(at).prefix.bit(common)] = at;
            let fork = self.take(Node { prefix: key.truncate(common), child, slot: NONE });
            self.set(link, fork);
        }
        new
    }

    /// Two nodes a slot always suffice: every fork has two children, so there are fewer forks than values.
    fn take(&mut self, node: Node) -> u32 {
        let index = self.free_nodes.pop().expect("a trie of n values has at most 2n - 1 nodes");
        self.nodes[index as usize] = node;
        index
    }

    /// Gives the slot of exactly this prefix back.
    pub(crate) fn remove(&mut self, key: &[u8]) -> Result<(), MapError> {
        let key = self.parse(key).ok_or(MapError::Invalid)?;
        let mut parent = None;
        let mut link = Link::Root;
        loop {
            let at = self.follow(link);
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
            parent = Some(link);
            link = Link::Child(at, key.bit(node.prefix.len));
        }
        let at = self.follow(link);
        let Node { slot, child, .. } = *self.node(at);
        if slot == NONE {
            return Err(MapError::NotFound);
        }
        self.free_slots.push(slot);
        self.owners[slot as usize] = NONE;
        self.nodes[at as usize].slot = NONE;
        self.prune(at, link, child, parent);
        self.index_again(&key);
        Ok(())
    }

    /// Takes node `at` out if it no longer branches, and then its parent if that only branched for it.
    fn prune(&mut self, at: u32, link: Link, child: [u32; 2], parent: Option<Link>) {
        if child[0] != NONE && child[1] != NONE {
            return;
        }
        let rest = if child[0] == NONE { child[1] } else { child[0] };
        self.set(link, rest);
        self.free_nodes.push(at);
        if let (NONE, Link::Child(fork, side), Some(above)) = (rest, link, parent)
            && self.node(fork).slot == NONE
        {
            let sibling = self.node(fork).child[1 - side];
            self.set(above, sibling);
            self.free_nodes.push(fork);
        }
    }

    /// The key in `slot`, if there is one.
    pub(crate) fn key(&self, slot: usize) -> Option<Vec<u8>> {
        let owner = *self.owners.get(slot).filter(|&&o| o != NONE)?;
        let prefix = &self.node(owner).prefix;
        let mut key = prefix.len.to_ne_bytes().to_vec();
        key.extend(prefix.words.iter().flat_map(|w| w.to_be_bytes()).take(self.data_size));
        Some(key)
    }
}
