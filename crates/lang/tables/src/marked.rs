//! The counters of one program that it marks with `@metric`.

use std::collections::BTreeMap;
use std::fmt;

use crate::objects::objects;
use crate::source::{Described, Extent, ReadMap};
use crate::view::{MatchView, Row, What};

/// The most rows of one counter.
const ROWS_OF_COUNTER: usize = 256;

/// The rows of marked counters, in the order of the output.
#[derive(Debug, Default)]
pub struct MarkedCounters {
    /// By the counter's name among the metrics.
    pub rows: BTreeMap<(String, MarkedIndex), MarkedCounts>,
    /// The number of rows that were left out, by the counter's name.
    pub cut: BTreeMap<String, u64>,
}

/// The index of a counter, or the keys of its entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MarkedIndex {
    /// An element of an array.
    Number(u32),
    /// The keys of a table's entry.
    Keys(String),
}

/// A row's counts; `None`: not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MarkedCounts {
    /// Packets, or what the program added.
    pub packets: Option<u64>,
    /// Bytes.
    pub bytes: Option<u64>,
}

impl MarkedCounters {
    /// Adds the marked counters of a program, at most this many rows. Counters of one name are added up.
    ///
    /// # Errors
    /// Those of the reader. What was read before stays.
    pub fn read(
        &mut self,
        reader: &mut dyn ReadMap,
        described: &Described,
        most: usize,
    ) -> Result<(), String> {
        for object in objects(described, What::Counters) {
            let Some(metric) = object.metric() else { continue };
            let left = most.saturating_sub(self.rows.len()).min(ROWS_OF_COUNTER);
            // A counter whose rows all fit is exported with its zeros, so that rates begin at 0.
            let zeros = object.size(described) as usize <= left;
            let extent = Extent { from: 0, limit: Some(left), bytes: usize::MAX, zeros };
            let view = object.view(reader, described, extent)?;
            for row in &view.rows {
                let sum = self.rows.entry((metric.clone(), index(row))).or_default();
                let add = |a: Option<u64>, b: Option<u64>| a.into_iter().chain(b).reduce(u64::wrapping_add);
                *sum =
                    MarkedCounts { packets: add(sum.packets, row.packets), bytes: add(sum.bytes, row.bytes) };
            }
            if view.more > 0 {
                *self.cut.entry(metric).or_default() += view.more;
            }
        }
        Ok(())
    }
}

/// Returns the index of a row: a number, or the keys of a table's entry.
fn index(row: &Row) -> MarkedIndex {
    if let Some(n) = row.index {
        return MarkedIndex::Number(n);
    }
    MarkedIndex::Keys(row.keys.iter().map(MatchView::to_string).collect::<Vec<_>>().join(","))
}

impl fmt::Display for MarkedIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(n) => write!(f, "{n}"),
            Self::Keys(keys) => f.write_str(keys),
        }
    }
}
