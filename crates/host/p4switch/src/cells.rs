//! Encodes writes of registers, counters and meters, also of those in the entries of tables.

use crate::change::Change;
use crate::desk::Desk;
use crate::program::Named;
use crate::write::text;
use p4shield_tables::direct::{Cells, Direct};
use p4shield_tables::element::{ElementError, checked_meter};
use p4shield_tables::entry::MatchText;
use p4shield_tables::model::{ArrayFacts, ArrayKind};
use p4shield_tables::write::Write;
use p4shield_tables::{Extent, ReadMap};
use std::collections::BTreeSet;

/// Elements of an array that one change writes.
const BLOCK: u32 = 256;

impl Desk {
    /// Encodes a write that comes after the changes `before`.
    pub(crate) fn encode_cells(
        &self,
        program: &Named,
        write: &Write,
        before: &[Change],
    ) -> Result<Vec<Change>, String> {
        let control = program.control()?;
        match write {
            Write::Register { register, index, value } => {
                let is = |k| k == ArrayKind::Register;
                let a = control.array("register", register, is).map_err(text)?;
                let value = a.register_text(value, size(program, a)).map_err(text)?;
                elements(a, *index, &value).map_err(text)
            }
            Write::Counter { counter, index, packets, bytes } => {
                match control.counter(counter).map_err(text)? {
                    Cells::Array(a) => {
                        let value = ArrayFacts::counter(*packets, *bytes, size(program, a));
                        elements(a, *index, &value).map_err(text)
                    }
                    Cells::Direct(d) => {
                        self.all_entries(program, d, *index, &Direct::counter(*packets, *bytes), before)
                    }
                }
            }
            Write::Meter { meter, index, rates } => match control.meter(meter).map_err(text)? {
                Cells::Array(a) => {
                    let value = checked_meter(&a.name, rates).map_err(text)?;
                    elements(a, *index, &value).map_err(text)
                }
                Cells::Direct(d) => {
                    self.all_entries(program, d, *index, &d.meter(rates).map_err(text)?, before)
                }
            },
            Write::EntryCounter { counter, matches, packets, bytes } => {
                let d = control.counter(counter).and_then(Cells::direct).map_err(text)?;
                entry(d, matches, Direct::counter(*packets, *bytes))
            }
            Write::EntryMeter { meter, matches, rates } => {
                let d = control.meter(meter).and_then(Cells::direct).map_err(text)?;
                entry(d, matches, d.meter(rates).map_err(text)?)
            }
            _ => Ok(Vec::new()),
        }
    }

    /// Encodes a write of all entries: those of the table, and those that earlier changes add.
    fn all_entries(
        &self,
        program: &Named,
        direct: Direct<'_>,
        index: Option<u32>,
        bytes: &[u8],
        before: &[Change],
    ) -> Result<Vec<Change>, String> {
        if index.is_some() {
            let (name, table) = (direct.name.to_owned(), direct.table.name.clone());
            return Err(text(ElementError::InEntries { name, table }));
        }
        let symbol = direct.map().map_err(text)?;
        let mut keys = self.keys(program, symbol)?;
        for change in before {
            match change {
                Change::Put { map, key, .. } if map == symbol => drop(keys.insert(key.clone())),
                Change::Remove { map, key } if map == symbol => drop(keys.remove(key)),
                _ => {}
            }
        }
        Ok(keys.into_iter().map(|key| patch(symbol, key, direct, bytes.to_vec())).collect())
    }

    /// Returns the keys of a map's entries.
    fn keys(&self, program: &Named, symbol: &str) -> Result<BTreeSet<Vec<u8>>, String> {
        let described = &program.described;
        let map = described.maps.iter().position(|(name, _)| name == symbol);
        let map = map.ok_or("the program has no such map")?;
        let mut keys = BTreeSet::new();
        let mut next = Some(0);
        while let Some(from) = next {
            let extent = Extent { from, limit: None, bytes: usize::MAX, zeros: true };
            let page = self.reader(program).read(described, map, extent)?;
            keys.extend(page.entries.into_iter().map(|(key, _)| key));
            next = page.next;
        }
        Ok(keys)
    }
}

impl Named {
    /// Returns the table of the entry whose counter or meter a write sets.
    pub(crate) fn cells_table(&self, write: &Write) -> Result<&str, String> {
        let control = self.control()?;
        let cells = match write {
            Write::EntryCounter { counter, .. } => control.counter(counter),
            Write::EntryMeter { meter, .. } => control.meter(meter),
            _ => return Err("the write is of no entry".to_owned()),
        };
        cells.and_then(Cells::direct).map(|d| d.table.name.as_str()).map_err(text)
    }
}

fn size(program: &Named, a: &ArrayFacts) -> usize {
    let map = program.described.maps.iter().find(|(symbol, _)| *symbol == a.map);
    map.map_or(0, |(_, definition)| definition.value_size as usize)
}

/// Encodes a write of elements of an array.
fn elements(a: &ArrayFacts, index: Option<u32>, value: &[u8]) -> Result<Vec<Change>, ElementError> {
    let (first, count) = a.span(index)?;
    let blocks = (first..first + count).step_by(BLOCK as usize);
    let counts = matches!(a.kind, ArrayKind::Counter { .. });
    let fill = |at: u32| {
        let values = value.repeat((first + count - at).min(BLOCK) as usize);
        Change::Fill { map: a.map.clone(), first: at, values, counts }
    };
    Ok(blocks.map(fill).collect())
}

/// Encodes a write of one entry.
fn entry(direct: Direct<'_>, matches: &MatchText, bytes: Vec<u8>) -> Result<Vec<Change>, String> {
    let symbol = direct.map().map_err(text)?;
    let key = direct.table.key_of(matches).map_err(text)?;
    Ok(vec![patch(symbol, key, direct, bytes)])
}

fn patch(symbol: &str, key: Vec<u8>, direct: Direct<'_>, bytes: Vec<u8>) -> Change {
    let counts = direct.counts();
    Change::Patch { map: symbol.to_owned(), key, at: direct.offset, bytes, counts }
}
