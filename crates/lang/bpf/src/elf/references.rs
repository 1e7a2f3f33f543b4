//! References of an object: relocations, and calls within a section that need none.

use object::read::{RelocationFlags, RelocationTarget};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SymbolKind, elf};
use p4shield_abi::object::MAPS_SECTION;

use super::functions::{holding, starting_at};
use super::{CodeSection, Elf, Function, ObjectError, ObjectMap, Reference, ReferenceTarget, btf};
use crate::insn::{INSN_SIZE, Insn};

type Symbol<'data, 'file> = object::read::elf::ElfSymbol64<'data, 'file, object::LittleEndian>;

/// Resolves every relocation and every call within a section.
pub(super) fn resolve(
    file: &Elf<'_>,
    code: &[CodeSection],
    maps: &[ObjectMap],
    functions: &mut [Function],
) -> Result<(), ObjectError> {
    for section in code {
        relocations(file, section, maps, functions)?;
    }
    for index in 0..functions.len() {
        plain_calls(code, functions, index)?;
    }
    Ok(())
}

fn failed(section: &str, offset: u64, reason: String) -> ObjectError {
    ObjectError::Relocation { section: section.to_owned(), offset, reason }
}

fn relocations(
    file: &Elf<'_>,
    section: &CodeSection,
    maps: &[ObjectMap],
    functions: &mut [Function],
) -> Result<(), ObjectError> {
    let mut relocated = vec![false; section.insns.len()];
    for (offset, relocation) in file.section_by_index(section.index)?.relocations() {
        let failed = |reason: &str| failed(&section.name, offset, reason.to_owned());
        let slot =
            usize::try_from(offset).ok().filter(|o| o.is_multiple_of(INSN_SIZE)).map(|o| o / INSN_SIZE);
        let insn = slot.and_then(|s| section.insns.get(s));
        let (Some(slot), Some(insn)) = (slot, insn) else {
            return Err(failed("the relocation is not on an instruction"));
        };
        if std::mem::replace(&mut relocated[slot], true) {
            return Err(failed("the instruction is relocated twice"));
        }
        // The linker drops slots outside functions.
        let Some(holder) = holding(functions, section.index, slot) else { continue };
        let RelocationTarget::Symbol(symbol) = relocation.target() else {
            return Err(failed("the relocation has no symbol"));
        };
        let symbol = file.symbol_by_index(symbol)?;
        let RelocationFlags::Elf { r_type } = relocation.flags() else {
            return Err(failed("not an ELF relocation"));
        };
        let target = match r_type {
            elf::R_BPF_64_64 if insn.is_wide() => map_target(file, section, offset, insn, &symbol, maps)?,
            elf::R_BPF_64_32 if insn.code == 0x85 => call_target(section, offset, insn, &symbol, functions)?,
            _ => return Err(failed("the relocation is not supported or does not fit the instruction")),
        };
        let slot = slot - functions[holder].start;
        functions[holder].references.push(Reference { slot, target });
    }
    Ok(())
}

fn map_target(
    file: &Elf<'_>,
    section: &CodeSection,
    offset: u64,
    insn: &Insn,
    symbol: &Symbol<'_, '_>,
    maps: &[ObjectMap],
) -> Result<ReferenceTarget, ObjectError> {
    let Some(home) = symbol.section_index() else {
        return Ok(ReferenceTarget::ExternalMap(symbol.name()?.to_owned()));
    };
    let home = file.section_by_index(home)?;
    let home_name = home.name()?;
    if home_name != MAPS_SECTION && home_name != btf::SECTION {
        let name = if symbol.kind() == SymbolKind::Section { home_name } else { symbol.name()? };
        return Err(ObjectError::Data {
            section: section.name.clone(),
            offset,
            symbol: name.to_owned(),
            data: home_name.to_owned(),
        });
    }
    // With a section symbol, the immediate holds the offset.
    let at = symbol.address().wrapping_add(insn.imm as u64);
    let map = maps.iter().position(|m| m.offset == at);
    map.map(ReferenceTarget::Map)
        .ok_or_else(|| failed(&section.name, offset, "does not refer to a map".to_owned()))
}

fn call_target(
    section: &CodeSection,
    offset: u64,
    insn: &Insn,
    symbol: &Symbol<'_, '_>,
    functions: &[Function],
) -> Result<ReferenceTarget, ObjectError> {
    let Some(home) = symbol.section_index() else {
        return Ok(ReferenceTarget::ExternalFunction(symbol.name()?.to_owned()));
    };
    // The immediate is the distance from the symbol in slots, minus one.
    let at = (symbol.address() / INSN_SIZE as u64).checked_add_signed(i64::from(insn.imm) + 1);
    at.and_then(|at| usize::try_from(at).ok())
        .and_then(|at| starting_at(functions, home, at))
        .map(ReferenceTarget::Function)
        .ok_or_else(|| failed(&section.name, offset, "does not call a function of this object".to_owned()))
}

/// Resolves calls within a section, which the compiler encodes without a relocation.
fn plain_calls(code: &[CodeSection], functions: &mut [Function], index: usize) -> Result<(), ObjectError> {
    let function = &functions[index];
    let relocated: std::collections::BTreeSet<usize> = function.references.iter().map(|r| r.slot).collect();
    let mut found = Vec::new();
    let mut slot = 0;
    while let Some(insn) = function.insns.get(slot) {
        if insn.is_local_call() && !relocated.contains(&slot) {
            let here = (function.start + slot) as i64;
            let to = usize::try_from(here + 1 + i64::from(insn.imm)).ok();
            let Some(target) = to.and_then(|to| starting_at(functions, function.section, to)) else {
                let section = code.iter().find(|c| c.index == function.section).map_or("", |c| &c.name);
                let offset = (function.start + slot) * INSN_SIZE;
                return Err(failed(
                    section,
                    offset as u64,
                    "does not call a function of its section".to_owned(),
                ));
            };
            found.push(Reference { slot, target: ReferenceTarget::Function(target) });
        }
        slot += 1 + usize::from(insn.is_wide());
    }
    functions[index].references.extend(found);
    Ok(())
}
