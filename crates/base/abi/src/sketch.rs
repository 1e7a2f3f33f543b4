//! A sketch of a stream of packets: the sums by which an auditor finds the packets that differ.
//!
//! Each packet is an *item*: the high 40 bits of its digest, 8 bits that depend on these, and the number
//! 1 in the low 16 bits. It is added, modulo 2^64, to one cell of each of [`SKETCH_TABLES`] tables.
//!
//! The difference of two sketches over the same packets is zero. If some packets differ, a cell with
//! exactly one of them contains that item; taking it out of its other cells leaves further cells with one
//! item, until all are known (an invertible Bloom look-up table). About a hundred differing packets can
//! be listed, however many packets are equal. The low 16 bits of a cell count its items; the 8 bits show
//! whether it contains copies of one item only.
//!
//! Digests are keyed, so a cloud knows neither the items nor their cells.

/// Tables of a sketch; each packet is in one cell of each.
pub const SKETCH_TABLES: usize = 3;
/// Cells of one table.
pub const SKETCH_CELLS: usize = 64;
/// Cells of all tables.
pub const SKETCH_WORDS: usize = SKETCH_TABLES * SKETCH_CELLS;

/// Low bits of an item without bits of the digest.
const LOW_BITS: u32 = 24;
/// Low bits of a cell, which count its items.
const COUNT_BITS: u32 = 16;

/// The cells of a stream of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sketch(pub [u64; SKETCH_WORDS]);

impl Default for Sketch {
    /// The sketch of no packets.
    fn default() -> Self {
        Self([0; SKETCH_WORDS])
    }
}

impl Sketch {
    /// Returns the item of a packet with this digest.
    #[must_use]
    #[inline]
    pub const fn item(digest: u64) -> u64 {
        let kept = digest >> LOW_BITS << LOW_BITS;
        // The high byte of a product depends on all lower bits of the factors.
        let check = kept.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
        kept | (check << COUNT_BITS) | 1
    }

    /// Returns the cells of an item: each table is selected by other bits of it.
    #[must_use]
    #[inline]
    pub const fn cells(item: u64) -> [usize; SKETCH_TABLES] {
        const MASK: usize = SKETCH_CELLS - 1;
        [
            (item >> 58) as usize & MASK,
            SKETCH_CELLS + ((item >> 52) as usize & MASK),
            2 * SKETCH_CELLS + ((item >> 46) as usize & MASK),
        ]
    }

    /// Adds an item; see [`Self::item`].
    #[inline]
    pub const fn add(&mut self, item: u64) {
        let [a, b, c] = Self::cells(item);
        self.0[a] = self.0[a].wrapping_add(item);
        self.0[b] = self.0[b].wrapping_add(item);
        self.0[c] = self.0[c].wrapping_add(item);
    }

    /// Takes `times` copies of an item out; a negative number adds them.
    #[inline]
    pub const fn subtract(&mut self, item: u64, times: i64) {
        let [a, b, c] = Self::cells(item);
        let sum = item.wrapping_mul(times.cast_unsigned());
        self.0[a] = self.0[a].wrapping_sub(sum);
        self.0[b] = self.0[b].wrapping_sub(sum);
        self.0[c] = self.0[c].wrapping_sub(sum);
    }

    /// Returns the sketch of the packets of `self` that are not in `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self(core::array::from_fn(|i| self.0[i].wrapping_sub(earlier.0[i])))
    }

    /// Whether the sketch is that of no packets.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|cell| *cell == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_cancel_out_and_leave_no_trace() {
        let mut sketch = Sketch::default();
        let items = [3, u64::MAX, 0x1234_5678_9abc_def0, 3].map(Sketch::item);
        items.iter().for_each(|item| sketch.add(*item));
        let earlier = sketch;
        sketch.add(Sketch::item(77 << 40));
        assert!(!sketch.since(&earlier).is_empty());
        sketch.subtract(Sketch::item(77 << 40), 1);
        assert!(sketch.since(&earlier).is_empty());
        sketch.subtract(items[0], 2);
        sketch.subtract(items[1], 1);
        sketch.subtract(items[2], 1);
        assert!(sketch.is_empty());
    }

    #[test]
    fn each_table_has_a_cell_of_an_item() {
        for n in 0..1_000_u64 {
            let item = Sketch::item(n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            for (table, cell) in Sketch::cells(item).into_iter().enumerate() {
                assert_eq!(cell / SKETCH_CELLS, table);
            }
            assert_eq!(item & 0xffff, 1, "the count of one item");
        }
    }
}
