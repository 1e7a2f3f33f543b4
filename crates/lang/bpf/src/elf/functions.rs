//! Functions of an object, found by their symbols.

use std::collections::BTreeMap;

use object::{Object as _, ObjectSymbol as _, SectionIndex, SymbolKind};

use super::{CodeSection, Elf, Function, ObjectError};
use crate::insn::INSN_SIZE;

/// Properties of a function from its symbols.
#[derive(Default)]
struct FunctionSymbols {
    /// Number of slots; 0 if no symbol states it.
    slots: usize,
    local: Option<String>,
    exported: Vec<(String, bool)>,
}

/// Returns the functions of all code sections, sorted by section and start. A section without function
/// symbols is one function with the section's name.
pub(super) fn find(file: &Elf<'_>, code: &[CodeSection]) -> Result<Vec<Function>, ObjectError> {
    let mut starts: BTreeMap<(usize, usize), FunctionSymbols> = BTreeMap::new();
    for symbol in file.symbols() {
        let Some(index) = symbol.section_index() else { continue };
        let Ok(at) = code.binary_search_by_key(&index.0, |c| c.index.0) else { continue };
        // Labels within functions are local and untyped.
        let function = symbol.kind() == SymbolKind::Text || symbol.is_global();
        if !function || symbol.kind() == SymbolKind::Section {
            continue;
        }
        let name = symbol.name()?.to_owned();
        let slot = slot_of(symbol.address(), code[at].insns.len());
        let slots = slots_of(symbol.size());
        let (Some(slot), Some(slots)) = (slot, slots) else { return Err(ObjectError::Function { name }) };
        if slots > code[at].insns.len() - slot {
            return Err(ObjectError::Function { name });
        }
        let start = starts.entry((at, slot)).or_default();
        start.slots = start.slots.max(slots);
        if symbol.is_global() {
            start.exported.push((name, symbol.is_weak()));
        } else {
            start.local = Some(name);
        }
    }
    for (at, section) in code.iter().enumerate() {
        let has_symbols = starts.range((at, 0)..(at + 1, 0)).next().is_some();
        if !has_symbols && !section.insns.is_empty() {
            let start = FunctionSymbols { local: Some(section.name.clone()), ..FunctionSymbols::default() };
            starts.insert((at, 0), start);
        }
    }
    Ok(build(code, starts))
}

/// Returns the slot at a byte address of a section with `slots` slots.
fn slot_of(address: u64, slots: usize) -> Option<usize> {
    let address = usize::try_from(address).ok()?;
    (address.is_multiple_of(INSN_SIZE) && address / INSN_SIZE < slots).then_some(address / INSN_SIZE)
}

fn slots_of(size: u64) -> Option<usize> {
    let size = usize::try_from(size).ok()?;
    size.is_multiple_of(INSN_SIZE).then_some(size / INSN_SIZE)
}

/// Builds the functions. A function ends where its symbol states, or else where the next one starts.
fn build(code: &[CodeSection], starts: BTreeMap<(usize, usize), FunctionSymbols>) -> Vec<Function> {
    let keys: Vec<(usize, usize)> = starts.keys().copied().collect();
    let mut functions = Vec::with_capacity(starts.len());
    for (i, ((at, first), start)) in starts.into_iter().enumerate() {
        let next = keys.get(i + 1).filter(|k| k.0 == at).map_or(code[at].insns.len(), |k| k.1);
        let end = if start.slots == 0 { next } else { next.min(first + start.slots) };
        let name = start.exported.first().map(|(name, _)| name.clone()).or(start.local).unwrap_or_default();
        functions.push(Function {
            name,
            exported: start.exported,
            insns: code[at].insns[first..end].to_vec(),
            references: Vec::new(),
            lines: Vec::new(),
            section: code[at].index,
            start: first,
        });
    }
    functions
}

/// Returns the function that starts at `slot` of a section.
pub(super) fn starting_at(functions: &[Function], section: SectionIndex, slot: usize) -> Option<usize> {
    position(functions, section, slot).filter(|&i| functions[i].start == slot)
}

/// Returns the function that contains `slot` of a section.
pub(super) fn holding(functions: &[Function], section: SectionIndex, slot: usize) -> Option<usize> {
    position(functions, section, slot).filter(|&i| slot - functions[i].start < functions[i].insns.len())
}

/// Returns the last function of a section that starts at `slot` or before. `functions` is sorted by
/// section and start.
fn position(functions: &[Function], section: SectionIndex, slot: usize) -> Option<usize> {
    let count = functions.partition_point(|f| (f.section.0, f.start) <= (section.0, slot));
    count.checked_sub(1).filter(|&i| functions[i].section == section)
}
