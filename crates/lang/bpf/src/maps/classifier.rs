//! Classifiers: rules with priorities. The time of a lookup does not depend on the packet.
//!
//! # Scheme
//!
//! The rules are sorted by priority. For each byte of the key and each of its 256 values there is a bit
//! vector with a one for each rule that this value does not exclude. A lookup takes one vector per
//! byte; the first one in their conjunction is the rule. The bytes of a range field cannot be compared
//! separately, so each of them has four vectors: they state which rules' bounds lie below, at or above
//! the byte. The lookup folds them, from the first byte to the last, into "not below the lower bound"
//! and "not above the upper bound".
//!
//! A summary has one bit for each word of a vector that is not zero, so that a lookup skips words that
//! some byte excludes as a whole. It speeds up the usual case and leaves the bound in place: a lookup of
//! `k` bytes among `n` rules reads at most `(k + 3r) * n / 64` words of vectors, where `r` bytes are in
//! range fields, plus a 64th of that for summaries, for any packet and any history. The scheme hashes
//! and caches nothing, so there are no collisions and no evictions.
//!
//! A change shifts the bits after the rule in all vectors, in time linear in their size. A change after
//! all other rules shifts nothing.

use std::collections::HashMap;

use p4shield_abi::map::{range_widths, rule_size};

use super::{MapError, UpdateFlag};

/// Number of values of a byte.
const VALUES: usize = 256;
/// Vectors per byte of a range field and value.
const RANGE_PLANES: usize = 4;

/// Words that are processed together: two cache lines of each vector. Divides 64.
const BLOCK: usize = 16;

/// A range field: its first plane, the offset of its bytes in the key and their number.
#[derive(Clone, Copy, Debug)]
struct RangeField {
    plane: usize,
    at: usize,
    bytes: usize,
}

/// The rules of one map.
#[derive(Debug)]
pub(super) struct Rules {
    key_size: usize,
    /// Number of leading key bytes outside range fields; each has one plane.
    plain: usize,
    ranges: Vec<RangeField>,
    planes: usize,
    /// Words per vector.
    words: usize,
    /// Words per summary.
    summaries: usize,
    /// `planes * VALUES` vectors.
    vectors: Vec<u64>,
    /// Summaries of the vectors.
    summary: Vec<u64>,
    /// Slots of the rules, sorted by descending priority.
    order: Vec<u32>,
    /// The rules by slot.
    rules: Vec<Option<Box<[u8]>>>,
    slots: HashMap<Box<[u8]>, u32>,
    free: Vec<u32>,
}

/// Returns the bits of a byte value for the bounds of a range.
fn bound_bits(value: u8, low: u8, high: u8) -> [bool; RANGE_PLANES] {
    [value > low, value == low, value < high, value == high]
}

impl Rules {
    /// Allocates `entries` rules over keys of `key_size` bytes, with range fields from `flags`.
    pub(super) fn new(entries: usize, key_size: usize, flags: u32) -> Self {
        let range_bytes: usize = range_widths(flags).map(|w| w as usize).sum();
        let plain = key_size - range_bytes;
        let (mut at, mut plane, mut ranges) = (plain, plain, Vec::new());
        for bytes in range_widths(flags).map(|w| w as usize) {
            ranges.push(RangeField { plane, at, bytes });
            at += bytes;
            plane += RANGE_PLANES * bytes;
        }
        let words = entries.div_ceil(64);
        let summaries = words.div_ceil(64);
        Self {
            key_size,
            plain,
            ranges,
            planes: plane,
            words,
            summaries,
            vectors: vec![0; plane * VALUES * words],
            summary: vec![0; plane * VALUES * summaries],
            order: Vec::with_capacity(entries),
            rules: vec![None; entries],
            slots: HashMap::new(),
            free: (0..entries as u32).rev().collect(),
        }
    }

    /// Returns the size of such rules in bytes, or `None` if the ranges are longer than the key.
    pub(super) fn bytes(entries: usize, key_size: usize, flags: u32) -> Option<usize> {
        let range_bytes: usize = range_widths(flags).map(|w| w as usize).sum();
        let plain = key_size.checked_sub(range_bytes)?;
        let (words, planes) = (entries.div_ceil(64), plain + RANGE_PLANES * range_bytes);
        let vectors = planes.saturating_mul(VALUES * 8).saturating_mul(words + words.div_ceil(64));
        // Each rule is stored in its slot and in the index.
        let rules = entries.saturating_mul(2 * rule_size(key_size as u32) as usize + 64);
        Some(vectors.saturating_add(rules))
    }

    /// Returns the most words that a lookup reads.
    pub(super) const fn words_of_lookup(&self) -> usize {
        self.planes * (self.words + self.summaries)
    }

    /// Returns the slot of the first rule that matches a packet's key.
    pub(super) fn find(&self, key: &[u8]) -> Option<usize> {
        if key.len() != self.key_size {
            return None;
        }
        for s in 0..self.summaries {
            let mut candidates = u64::MAX;
            for (plane, byte) in key[..self.plain].iter().enumerate() {
                candidates &= self.summary[(plane * VALUES + usize::from(*byte)) * self.summaries + s];
            }
            if candidates == 0 {
                continue;
            }
            for start in (s * 64..self.words.min(s * 64 + 64)).step_by(BLOCK) {
                if candidates >> (start % 64) & ((1 << BLOCK) - 1) == 0 {
                    continue;
                }
                if let Some(position) = self.find_in_block(key, start) {
                    return self.order.get(position).map(|slot| *slot as usize);
                }
            }
        }
        None
    }

    /// Returns the position of the first matching rule within a block of words. Reads the vectors
    /// sequentially, which suits the hardware prefetcher.
    fn find_in_block(&self, key: &[u8], start: usize) -> Option<usize> {
        let n = (self.words - start).min(BLOCK);
        let mut found = [u64::MAX; BLOCK];
        for (plane, byte) in key[..self.plain].iter().enumerate() {
            let row = (plane * VALUES + usize::from(*byte)) * self.words + start;
            for (f, v) in found.iter_mut().zip(&self.vectors[row..row + n]) {
                *f &= v;
            }
        }
        for (i, found) in found[..n].iter_mut().enumerate().filter(|(_, f)| **f != 0) {
            *found &= self.in_ranges(key, start + i);
            if *found != 0 {
                return Some((start + i) * 64 + found.trailing_zeros() as usize);
            }
        }
        None
    }

    /// Returns which of the 64 rules of a word contain all range fields of the key within their bounds.
    fn in_ranges(&self, key: &[u8], word: usize) -> u64 {
        let vector =
            |plane: usize, value: u8| self.vectors[(plane * VALUES + usize::from(value)) * self.words + word];
        let mut found = u64::MAX;
        for r in &self.ranges {
            let (mut above, mut at_low, mut below, mut at_high) = (0, u64::MAX, 0, u64::MAX);
            for (i, byte) in key[r.at..r.at + r.bytes].iter().enumerate() {
                let plane = r.plane + RANGE_PLANES * i;
                above |= at_low & vector(plane, *byte);
                at_low &= vector(plane + 1, *byte);
                below |= at_high & vector(plane + 2, *byte);
                at_high &= vector(plane + 3, *byte);
            }
            found &= (above | at_low) & (below | at_high);
        }
        found
    }

    /// Adds a rule, or returns the slot of an equal rule.
    pub(super) fn insert(&mut self, rule: &[u8], flag: UpdateFlag) -> Result<usize, MapError> {
        let rule = self.canonical(rule).ok_or(MapError::Invalid)?;
        if let Some(slot) = self.slots.get(&rule) {
            return flag.found(*slot as usize);
        }
        flag.missing()?;
        let slot = self.free.pop().ok_or(MapError::Full)?;
        let wanted = priority(&rule);
        let above = |s: &u32| self.rules[*s as usize].as_deref().is_some_and(|r| priority(r) >= wanted);
        let position = self.order.partition_point(above);
        if position < self.order.len() {
            self.shift(position, true);
        }
        self.order.insert(position, slot);
        self.set(position, &rule);
        self.summarise(position / 64);
        self.rules[slot as usize] = Some(rule.clone());
        self.slots.insert(rule, slot);
        Ok(slot as usize)
    }

    /// Removes a rule.
    pub(super) fn remove(&mut self, rule: &[u8]) -> Result<(), MapError> {
        let rule = self.canonical(rule).ok_or(MapError::Invalid)?;
        let slot = self.slots.remove(&rule).ok_or(MapError::NotFound)?;
        self.rules[slot as usize] = None;
        self.free.push(slot);
        let position = self.order.iter().position(|s| *s == slot).ok_or(MapError::NotFound)?;
        self.order.remove(position);
        self.shift(position, false);
        self.summarise(position / 64);
        Ok(())
    }

    /// Returns the rule in a slot.
    pub(super) fn rule(&self, slot: usize) -> Option<&[u8]> {
        self.rules.get(slot)?.as_deref()
    }

    /// Returns the slot of exactly this rule.
    pub(super) fn find_rule(&self, rule: &[u8]) -> Option<usize> {
        self.slots.get(&self.canonical(rule)?).map(|s| *s as usize)
    }

    /// Returns the rule with its masked bits cleared; `None` if its size is wrong.
    fn canonical(&self, rule: &[u8]) -> Option<Box<[u8]>> {
        if rule.len() != rule_size(self.key_size as u32) as usize {
            return None;
        }
        let mut rule: Box<[u8]> = rule.into();
        for i in 4..4 + self.plain {
            rule[i] &= rule[i + self.key_size];
        }
        Some(rule)
    }

    /// Sets the bits of a rule at a position whose bits are all zero.
    fn set(&mut self, position: usize, rule: &[u8]) {
        let (a, b) = rule[4..].split_at(self.key_size);
        let mut matching = Vec::with_capacity(self.planes * VALUES);
        for i in 0..self.plain {
            let of = |v: u8| v & b[i] == a[i];
            matching.extend((0..=u8::MAX).filter(|v| of(*v)).map(|v| i * VALUES + usize::from(v)));
        }
        for r in &self.ranges {
            for i in 0..r.bytes {
                for v in 0..=u8::MAX {
                    let bits = bound_bits(v, a[r.at + i], b[r.at + i]);
                    let planes = bits.iter().enumerate().filter(|(_, bit)| **bit);
                    let first = r.plane + RANGE_PLANES * i;
                    matching.extend(planes.map(|(p, _)| (first + p) * VALUES + usize::from(v)));
                }
            }
        }
        for row in matching {
            self.vectors[row * self.words + position / 64] |= 1 << (position % 64);
        }
    }

    /// Inserts a gap for a rule at a position (`up`), or closes the gap of a removed rule.
    fn shift(&mut self, position: usize, up: bool) {
        let (first, bit) = (position / 64, position % 64);
        let below = (1u64 << bit) - 1;
        let used = (self.order.len() + 1).div_ceil(64).min(self.words);
        for row in self.vectors.chunks_exact_mut(self.words) {
            let row = &mut row[first..used.max(first + 1)];
            let kept = row[0] & below;
            if up {
                for i in (1..row.len()).rev() {
                    row[i] = row[i] << 1 | row[i - 1] >> 63;
                }
                row[0] = kept | (row[0] & !below) << 1;
            } else {
                let moved = row[0] >> 1 & !below;
                row[0] = kept | moved;
                for i in 1..row.len() {
                    row[i - 1] = row[i - 1] & (u64::MAX >> 1) | row[i] << 63;
                    row[i] >>= 1;
                }
            }
        }
    }

    /// Updates the summaries from word `first` on.
    fn summarise(&mut self, first: usize) {
        let used = (self.order.len() + 1).div_ceil(64).min(self.words);
        let rows = self.vectors.chunks_exact(self.words).zip(self.summary.chunks_exact_mut(self.summaries));
        for (row, summary) in rows {
            for (i, word) in row[..used].iter().enumerate().skip(first) {
                let bit = 1u64 << (i % 64);
                let s = &mut summary[i / 64];
                *s = if *word == 0 { *s & !bit } else { *s | bit };
            }
        }
    }
}

fn priority(rule: &[u8]) -> u32 {
    rule.first_chunk::<4>().map_or(0, |b| u32::from_le_bytes(*b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The reference: tries every rule.
    fn by_trying(rules: &[Vec<u8>], key: &[u8], flags: u32) -> Option<usize> {
        let size = key.len();
        let widths: Vec<usize> = range_widths(flags).map(|w| w as usize).collect();
        let plain = size - widths.iter().sum::<usize>();
        let fits = |rule: &Vec<u8>| {
            let (a, b) = rule[4..].split_at(size);
            let mut at = plain;
            (0..plain).all(|i| key[i] & b[i] == a[i] & b[i])
                && widths.iter().all(|w| {
                    let field = at..at + w;
                    at += w;
                    a[field.clone()] <= key[field.clone()] && key[field.clone()] <= b[field]
                })
        };
        let best = |(i, r): &(usize, &Vec<u8>)| (priority(r), std::cmp::Reverse(*i));
        rules.iter().enumerate().filter(|(_, r)| fits(r)).max_by_key(best).map(|(i, _)| i)
    }

    fn rule(priority: u32, a: &[u8], b: &[u8]) -> Vec<u8> {
        [&priority.to_le_bytes(), a, b].concat()
    }

    /// Bytes with few distinct values, so that rules overlap and keys match.
    fn small_bytes(n: usize) -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop::sample::select(vec![0u8, 1, 2, 3, 0x80, 0xff]), n)
    }

    fn rules_over(n: usize) -> impl Strategy<Value = Vec<Vec<u8>>> {
        let one = (0u32..5, small_bytes(n), small_bytes(n)).prop_map(|(p, a, b)| rule(p, &a, &b));
        prop::collection::vec(one, 1..150)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn the_vectors_agree_with_trying_every_rule(
            rules in rules_over(5),
            keys in prop::collection::vec(small_bytes(5), 20),
            flags in prop::sample::select(vec![0u32, 1, 2, 0x12, 0x5, 0x32]),
            removed in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
        ) {
            let mut map = Rules::new(150, 5, flags);
            // Of equal rules the first remains, because the map replaces its value in place.
            let mut kept: Vec<Vec<u8>> = Vec::new();
            let mut slots = Vec::new();
            for r in rules {
                let r = map.canonical(&r).expect("a rule of the right size").to_vec();
                let slot = map.insert(&r, UpdateFlag::Any).expect("room");
                if !kept.contains(&r) {
                    kept.push(r);
                    slots.push(slot);
                }
            }
            for i in removed {
                if kept.is_empty() { break; }
                let i = i.index(kept.len());
                map.remove(&kept.remove(i)).expect("an existing rule");
                slots.remove(i);
            }
            for key in keys {
                let want = by_trying(&kept, &key, flags).map(|i| slots[i]);
                prop_assert_eq!(map.find(&key), want);
            }
        }
    }

    #[test]
    fn limits_are_enforced() {
        let mut map = Rules::new(2, 1, 0);
        assert_eq!(map.insert(&[0; 5], UpdateFlag::Any), Err(MapError::Invalid));
        assert_eq!(map.insert(&rule(1, &[1], &[0xff]), UpdateFlag::Exist), Err(MapError::NotFound));
        map.insert(&rule(1, &[1], &[0xff]), UpdateFlag::Any).expect("room for the first");
        map.insert(&rule(2, &[1], &[0xff]), UpdateFlag::Any).expect("room for the second");
        assert_eq!(map.insert(&rule(3, &[1], &[0xff]), UpdateFlag::Any), Err(MapError::Full));
        assert_eq!(map.insert(&rule(2, &[1], &[0xff]), UpdateFlag::NoExist), Err(MapError::Exists));
        assert_eq!(map.remove(&rule(3, &[1], &[0xff])), Err(MapError::NotFound));
        assert_eq!(map.find(&[0, 0]), None);
        assert_eq!(Rules::bytes(1, 1, 0x2), None);
    }
}
