//! Counters and meters by name: those that are arrays, and those in the entries of tables.

use crate::Control;
use crate::element::{ElementError, Rate, checked_meter};
use crate::entry::EntryTextError;
use crate::model::{ArrayFacts, ArrayKind, DirectFacts, TableFacts};
use crate::names;
use p4shield_abi::meter::METER_CELL_SIZE;

/// Bytes of a counter in an entry's value: packets, then bytes.
const COUNTER_SIZE: usize = 16;

/// A counter or meter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cells<'c> {
    /// An array.
    Array(&'c ArrayFacts),
    /// A cell in each entry of a table.
    Direct(Direct<'c>),
}

/// A counter or meter in each entry of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Direct<'c> {
    /// Its full name.
    pub name: &'c str,
    /// The table.
    pub table: &'c TableFacts,
    /// Offset of the cell in an entry's value.
    pub offset: usize,
}

impl Direct<'_> {
    /// Returns the symbol of the map of the entries.
    ///
    /// # Errors
    /// The entries are code.
    pub fn map(&self) -> Result<&str, EntryTextError> {
        let map = self.table.map.as_deref();
        map.ok_or_else(|| EntryTextError::Constant(self.table.name.clone()))
    }

    /// Returns whether it is the table's counter, and not its meter.
    #[must_use]
    pub fn counts(&self) -> bool {
        self.table.counter_offset.is_some_and(|offset| offset as usize == self.offset)
    }

    /// Encodes a counter.
    #[must_use]
    pub fn counter(packets: u64, bytes: u64) -> Vec<u8> {
        ArrayFacts::counter(packets, bytes, COUNTER_SIZE)
    }

    /// Encodes a meter's rates.
    ///
    /// # Errors
    /// [`ElementError::Rates`].
    pub fn meter(&self, rates: &[Rate]) -> Result<Vec<u8>, ElementError> {
        checked_meter(self.name, rates)
    }
}

impl<'c> Cells<'c> {
    const fn name(&self) -> &'c str {
        match self {
            Self::Array(a) => a.name.as_str(),
            Self::Direct(d) => d.name,
        }
    }

    /// Returns the cells if they are those of a table's entries.
    ///
    /// # Errors
    /// [`ElementError::Elements`].
    pub fn direct(self) -> Result<Direct<'c>, ElementError> {
        match self {
            Self::Array(a) => Err(ElementError::Elements(a.name.clone())),
            Self::Direct(direct) => Ok(direct),
        }
    }
}

impl Control {
    /// Returns the counter with this name.
    ///
    /// # Errors
    /// [`ElementError::Name`].
    pub fn counter(&self, name: &str) -> Result<Cells<'_>, ElementError> {
        let is = |kind| matches!(kind, ArrayKind::Counter { .. });
        self.cells("counter", name, is, |t| direct(t, t.counter.as_ref(), t.counter_offset, COUNTER_SIZE))
    }

    /// Returns the meter with this name.
    ///
    /// # Errors
    /// [`ElementError::Name`].
    pub fn meter(&self, name: &str) -> Result<Cells<'_>, ElementError> {
        let is = |kind| matches!(kind, ArrayKind::Meter { .. });
        self.cells("meter", name, is, |t| direct(t, t.meter.as_ref(), t.meter_offset, METER_CELL_SIZE))
    }

    fn cells(
        &self,
        what: &'static str,
        name: &str,
        is: fn(ArrayKind) -> bool,
        of_table: fn(&TableFacts) -> Option<Direct<'_>>,
    ) -> Result<Cells<'_>, ElementError> {
        let arrays = self.arrays.iter().filter(|a| is(a.kind)).map(Cells::Array);
        let direct = self.tables.iter().filter_map(of_table).map(Cells::Direct);
        let all: Vec<_> = arrays.chain(direct).collect();
        let at = names::find(what, name, false, all.iter().map(Cells::name))?;
        Ok(all[at])
    }
}

/// Returns a table's counter or meter of `size` bytes, if it lies within the entries' values.
fn direct<'t>(
    table: &'t TableFacts,
    facts: Option<&'t DirectFacts>,
    offset: Option<u32>,
    size: usize,
) -> Option<Direct<'t>> {
    let offset = offset? as usize;
    let fits = offset.checked_add(size).is_some_and(|end| end <= table.value_size as usize);
    fits.then_some(Direct { name: &facts?.name, table, offset })
}
