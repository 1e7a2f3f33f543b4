//! Lists the packets by which two streams differ, from the difference of their sketches.

use p4shield_abi::sketch::{SKETCH_WORDS, Sketch};

/// Most copies of one packet that a cell is searched for: one at first, since copies are rare and several
/// packets may look like them, and more while packets remain.
const MOST_TIMES: [i64; 3] = [1, 16, 512];

/// Bits of a cell that do not count its items.
const BITS: u32 = 48;

/// Returns the items of a difference of sketches, each with its number, which is negative for items of the
/// subtracted one. `None` if there are too many to list.
pub(super) fn differences(mut sketch: Sketch) -> Option<Vec<(u64, i64)>> {
    let mut found: Vec<(u64, i64)> = Vec::new();
    let mut limits = MOST_TIMES.into_iter();
    let mut most = limits.next()?;
    loop {
        let before = found.len();
        for cell in 0..SKETCH_WORDS {
            if let Some((item, times)) = single(sketch.0[cell], cell, most) {
                sketch.subtract(item, times);
                found.push((item, times));
            }
        }
        if found.len() == before {
            if sketch.is_empty() {
                return Some(merged(found));
            }
            most = limits.next()?;
        } else if found.len() > SKETCH_WORDS {
            // A mistake of this kind must not run for ever.
            return None;
        }
    }
}

/// Adds up the numbers of equal items.
fn merged(mut found: Vec<(u64, i64)>) -> Vec<(u64, i64)> {
    found.sort_unstable();
    found.dedup_by(|next, kept| {
        let same = next.0 == kept.0;
        if same {
            kept.1 += next.1;
        }
        same
    });
    found.retain(|(_, times)| *times != 0);
    found
}

/// Returns the item of a cell that contains at most `most` copies of one item only, and their number.
fn single(value: u64, cell: usize, most: i64) -> Option<(u64, i64)> {
    let times = i64::from((value as u16).cast_signed());
    if times == 0 || times.abs() > most {
        return None;
    }
    let count = times.unsigned_abs();
    let sum = if times < 0 { value.wrapping_neg() } else { value } >> 16;
    // The sum is the item times `count`, modulo 2^48. Its odd part has an inverse; its power of two leaves
    // as many candidates.
    let twos = count.trailing_zeros();
    if sum & ((1 << twos) - 1) != 0 {
        return None;
    }
    let base = (sum >> twos).wrapping_mul(inverse(count >> twos)) & ((1 << (BITS - twos)) - 1);
    (0..1 << twos)
        .map(|top: u64| (base | top << (BITS - twos)) << 16 | 1)
        .find(|item| Sketch::item(*item) == *item && Sketch::cells(*item).contains(&cell))
        .map(|item| (item, times))
}

/// Returns the inverse of an odd number modulo 2^64. Each step doubles the number of correct bits.
const fn inverse(odd: u64) -> u64 {
    let mut x = odd;
    let mut step = 0;
    while step < 5 {
        x = x.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(x)));
        step += 1;
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(n: u64) -> u64 {
        let mut d = n.wrapping_add(1).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        d = (d ^ d >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        d = (d ^ d >> 31).wrapping_mul(0xd6e8_feb8_6659_fd93);
        Sketch::item(d ^ d >> 32)
    }

    #[test]
    fn a_hundred_lost_packets_are_listed() {
        for n in [0, 1, 5, 50, 100] {
            let mut sketch = Sketch::default();
            let mut items: Vec<_> = (0..n).map(|i| (item(i), 1)).collect();
            items.iter().for_each(|(item, _)| sketch.add(*item));
            items.sort_unstable();
            assert_eq!(differences(sketch), Some(items), "{n}");
        }
    }

    #[test]
    fn swapped_and_repeated_packets_are_listed() {
        for times in [1, 2, 3, 4, 6, 7, 12, 20, 64, 300, 512] {
            let mut sketch = Sketch::default();
            let mut items: Vec<_> =
                (0..10).map(|i| (item(i), if i % 2 == 0 { times } else { -times })).collect();
            items.iter().for_each(|(item, times)| sketch.subtract(*item, -times));
            items.sort_unstable();
            assert_eq!(differences(sketch), Some(items), "{times} copies");
        }
    }

    #[test]
    fn too_many_differences_are_not_listed() {
        let mut sketch = Sketch::default();
        (0..1_000).for_each(|i| sketch.add(item(i)));
        assert_eq!(differences(sketch), None);
    }

    #[test]
    fn odd_numbers_have_inverses() {
        for odd in [1_u64, 3, 5, 7, 15, u64::MAX] {
            assert_eq!(odd.wrapping_mul(inverse(odd)), 1);
        }
    }
}
