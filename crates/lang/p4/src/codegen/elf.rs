//! The object: an ordinary eBPF ELF file with the sections that [`p4shield_abi::object`] describes.

use super::MachineCode;
use super::insn::Reloc;
use crate::ir::Function;
use crate::source::{SourceMap, Span};
use object::write::{Object, Relocation, StandardSegment, Symbol, SymbolId, SymbolSection};
use object::{
    Architecture, BinaryFormat, Endianness, RelocationFlags, SectionKind, SymbolFlags, SymbolKind,
    SymbolScope, elf,
};
use p4shield_abi::context::PROGRAM_ABI_VERSION;
use p4shield_abi::map::MAP_DEFINITION_SIZE;
use p4shield_abi::object as names;
use p4shield_abi::schema::Schema;
use p4shield_tables::trace::{TracePoint, to_bytes};
use std::collections::HashMap;

/// Writes the object. `schema` describes its maps; `needs` are what only a switch does, with locations;
/// `points` are those of a program that records its run.
pub(crate) fn write(
    p: &MachineCode,
    f: &Function,
    sources: &SourceMap,
    schema: &Schema,
    needs: &[(u32, Span)],
    points: &[TracePoint],
) -> Result<Vec<u8>, object::write::Error> {
    let mut o = Object::new(BinaryFormat::Elf, Architecture::Bpf, Endianness::Little);
    let maps = add_maps(&mut o, f);
    add_code(&mut o, p, &maps)?;
    let abi = PROGRAM_ABI_VERSION.to_le_bytes().to_vec();
    let records: Vec<u8> = needs.iter().flat_map(|(number, at)| need(*number, *at, sources)).collect();
    let needs = (!records.is_empty()).then_some((names::NEEDS_SECTION, records));
    let points = (!points.is_empty()).then(|| (names::TRACE_SECTION, to_bytes(points)));
    let sections = [
        (names::ABI_SECTION, abi),
        (names::ENTRIES_SECTION, entries(f)),
        (names::LINES_SECTION, lines(p, sources)),
        (names::SCHEMA_SECTION, schema.encode()),
    ];
    for (name, data) in sections.into_iter().chain(needs).chain(points) {
        let id = o.add_section(Vec::new(), name.as_bytes().to_vec(), SectionKind::Metadata);
        o.append_section_data(id, &data, 4);
    }
    o.write()
}

fn symbol(name: &str, value: u64, size: u64, kind: SymbolKind, section: SymbolSection) -> Symbol {
    Symbol {
        name: name.as_bytes().to_vec(),
        value,
        size,
        kind,
        scope: SymbolScope::Dynamic,
        weak: false,
        section,
        flags: SymbolFlags::None,
    }
}

fn add_maps(o: &mut Object<'_>, f: &Function) -> Vec<SymbolId> {
    if f.maps.is_empty() {
        return Vec::new();
    }
    let segment = o.segment_name(StandardSegment::Data).to_vec();
    let id = o.add_section(segment, names::MAPS_SECTION.as_bytes().to_vec(), SectionKind::Data);
    let mut symbols = Vec::new();
    for m in &f.maps {
        let at = o.append_section_data(id, &m.definition.encode(), 4);
        let size = MAP_DEFINITION_SIZE as u64;
        symbols.push(o.add_symbol(symbol(&m.name, at, size, SymbolKind::Data, SymbolSection::Section(id))));
    }
    symbols
}

fn add_code(o: &mut Object<'_>, p: &MachineCode, maps: &[SymbolId]) -> Result<(), object::write::Error> {
    let segment = o.segment_name(StandardSegment::Text).to_vec();
    let id = o.add_section(segment, names::PROGRAM_SECTION.as_bytes().to_vec(), SectionKind::Text);
    let (code, slots) = encode(p);
    o.append_section_data(id, &code, 8);
    let entry =
        symbol(names::ENTRY_SYMBOL, 0, code.len() as u64, SymbolKind::Text, SymbolSection::Section(id));
    o.add_symbol(entry);
    let mut functions: HashMap<&str, SymbolId> = HashMap::new();
    for (insn, slot) in p.insns.iter().zip(slots) {
        let (symbol, r_type) = match &insn.reloc {
            Reloc::None => continue,
            Reloc::Map(m) => (maps[m.0 as usize], elf::R_BPF_64_64),
            Reloc::Function(name) => {
                let id = *functions.entry(name).or_insert_with(|| {
                    o.add_symbol(symbol(name, 0, 0, SymbolKind::Unknown, SymbolSection::Undefined))
                });
                (id, elf::R_BPF_64_32)
            }
        };
        let offset = slot as u64 * 8;
        let flags = RelocationFlags::Elf { r_type };
        o.add_relocation(id, Relocation { offset, symbol, addend: 0, flags })?;
    }
    Ok(())
}

/// Returns the bytes of the code, and the slot of each instruction.
fn encode(p: &MachineCode) -> (Vec<u8>, Vec<usize>) {
    let mut slots = Vec::with_capacity(p.insns.len() + 1);
    let mut at = 0;
    for i in &p.insns {
        slots.push(at);
        at += i.slots();
    }
    slots.push(at);
    let mut code = Vec::with_capacity(at * 8);
    for (i, insn) in p.insns.iter().enumerate() {
        let offset = if insn.jumps() {
            slots[insn.target(i)] as i64 - slots[i] as i64 - 1
        } else {
            i64::from(insn.offset)
        };
        // Programs with more instructions than a jump can span were refused.
        insn.encode(offset as i16, &mut code);
    }
    slots.pop();
    (code, slots)
}

fn entries(f: &Function) -> Vec<u8> {
    let mut out = Vec::new();
    for (i, m) in f.maps.iter().enumerate() {
        for (key, value) in &m.entries {
            out.extend(((i * MAP_DEFINITION_SIZE) as u32).to_le_bytes());
            out.extend(0u32.to_le_bytes());
            out.extend(key);
            out.extend(value);
            out.resize(out.len().next_multiple_of(4), 0);
        }
    }
    out
}

/// Encodes a requirement of the program and the location it arises from.
fn need(need: u32, location: Span, sources: &SourceMap) -> Vec<u8> {
    let (_, at) = sources.locate(location);
    [need, location.file, at.line, at.column].iter().flat_map(|n| n.to_le_bytes()).collect()
}

fn lines(p: &MachineCode, sources: &SourceMap) -> Vec<u8> {
    let mut records: Vec<[u32; 4]> = Vec::new();
    let mut slot = 0;
    for (insn, span) in p.insns.iter().zip(&p.spans) {
        let (_, pos) = sources.locate(*span);
        let location = [span.file, pos.line, pos.column];
        if records.last().is_none_or(|r| r[1..] != location) {
            records.push([slot, location[0], location[1], location[2]]);
        }
        slot += insn.slots() as u32;
    }
    let mut out = Vec::new();
    out.extend((records.len() as u32).to_le_bytes());
    out.extend(records.iter().flatten().flat_map(|n| n.to_le_bytes()));
    out.extend((sources.files().len() as u32).to_le_bytes());
    for f in sources.files() {
        out.extend((f.name.len() as u32).to_le_bytes());
        out.extend(f.name.as_bytes());
    }
    out
}
