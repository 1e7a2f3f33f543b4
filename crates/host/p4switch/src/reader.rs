//! Reads maps of the program that runs.

use crate::desk::Desk;
use crate::order::{Threads, Values, Work};
use crate::program::Named;
use p4shield_abi::map::TYPE_ARRAY;
use p4shield_bpf::maps::MapCopy;
use p4shield_tables::{Described, Extent, ReadMap, Rows};
use std::ops::Range;

/// Rows after which a page ends.
const PAGE_ROWS: usize = 4096;

/// Entries of a part: keys and values.
type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// Reads maps part by part, each between two rounds of a packet thread. Where each thread has the program for
/// itself, a counter is the sum of all.
pub(crate) struct Reader<'a> {
    threads: &'a Threads,
    program: &'a Named,
}

impl Desk {
    /// Returns what reads the maps of a program that runs.
    pub(crate) fn reader<'a>(&'a self, program: &'a Named) -> Reader<'a> {
        Reader { threads: &self.threads, program }
    }
}

impl Reader<'_> {
    /// Returns the place of the counters in the values of a map, if there are several to add up.
    fn counters(&self, symbol: &str) -> Option<Range<usize>> {
        let counters = self.program.counters.as_ref().ok().filter(|_| self.program.is_own)?;
        counters.get(symbol).filter(|range| !range.is_empty()).cloned()
    }

    /// Adds the counters of further threads to those of entries.
    fn add(&self, symbol: &str, range: &Range<usize>, entries: &mut Entries) -> Result<(), String> {
        let Some(size) = entries.first().map(|(_, value)| value.len()).filter(|size| *size > 0) else {
            return Ok(());
        };
        for thread in 1..self.threads.count() {
            let keys = entries.iter().map(|(key, _)| key.clone()).collect();
            let values = vec![0; size * entries.len()];
            let work = Work::Values(Values { map: symbol.to_owned(), keys, values, size });
            let done = self.threads.execute_on(thread, work)?;
            let Work::Values(Values { values, .. }) = done.work else { return Err("no values".to_owned()) };
            for ((_, sum), value) in entries.iter_mut().zip(values.chunks_exact(size)) {
                add_counters(sum, value, range);
            }
        }
        Ok(())
    }
}

/// Adds the counters in this part of a value to those of a sum.
fn add_counters(sum: &mut [u8], value: &[u8], range: &Range<usize>) {
    let (Some(sum), Some(value)) = (sum.get_mut(range.clone()), value.get(range.clone())) else { return };
    for (sum, value) in sum.as_chunks_mut().0.iter_mut().zip(value.as_chunks().0) {
        *sum = u64::from_le_bytes(*sum).wrapping_add(u64::from_le_bytes(*value)).to_le_bytes();
    }
}

impl ReadMap for Reader<'_> {
    fn read(&mut self, described: &Described, map: usize, extent: Extent) -> Result<Rows, String> {
        let (symbol, definition) = described.maps.get(map).ok_or("the program has no such map")?;
        let skips_zeros = definition.map_type == TYPE_ARRAY && !extent.zeros;
        let limit = extent.limit.unwrap_or(usize::MAX);
        let counters = self.counters(symbol);
        let mut copy = MapCopy::new(definition, extent.from);
        let (mut rows, mut room) = (Rows::default(), extent.bytes);
        while copy.next().is_some() {
            if extent.limit.is_none() && (rows.entries.len() >= PAGE_ROWS || room == 0) {
                rows.next = copy.next();
                break;
            }
            let done = self.threads.execute(Work::Copy { map: symbol.clone(), copy })?;
            let Work::Copy { copy: part, .. } = done.work else { return Err("no part of a map".to_owned()) };
            done.result.map_err(|_| "the program was replaced while it was read; read it again")?;
            let mut entries: Entries = part.entries().map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
            if let Some(range) = &counters {
                self.add(symbol, range, &mut entries)?;
            }
            for (key, value) in entries {
                if skips_zeros && value.iter().all(|b| *b == 0) {
                    continue;
                }
                if rows.entries.len() < limit {
                    room = room.saturating_sub(key.len() + value.len());
                    rows.entries.push((key, value));
                } else {
                    rows.more += 1;
                }
            }
            copy = part;
        }
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_threads_add_up_and_the_rest_stays() {
        let value = |counter: u64| [&7_u64.to_le_bytes()[..], &counter.to_le_bytes()].concat();
        let mut sum = value(u64::from(u32::MAX));
        add_counters(&mut sum, &value(2), &(8..16));
        assert_eq!(sum, value(u64::from(u32::MAX) + 2));
        add_counters(&mut sum, &value(1), &(8..17));
        assert_eq!(sum, value(u64::from(u32::MAX) + 2), "a place beyond the value is none");
    }
}
