//! The data sections of an object: maps, initial entries, source lines and requirements.

use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SymbolKind};
use p4shield_abi::bytes::Reader;
use p4shield_abi::map::{MAP_DEFINITION_SIZE, MapDefinition};
use p4shield_abi::object::{
    ENTRIES_SECTION, LINES_SECTION, LineRecord, MAPS_SECTION, NEEDS_SECTION, NeedRecord, PROGRAM_SECTION,
    SCHEMA_SECTION, TRACE_SECTION, need,
};
use p4shield_abi::schema::MAX_SCHEMA_BYTES;

use super::functions::holding;
use super::{Elf, Function, ObjectEntry, ObjectError, ObjectMap, btf};
use crate::maps::MAX_MAPS;

/// Size of a line record in bytes.
const LINE_RECORD_SIZE: usize = 16;
/// Size of a requirement record in bytes.
const NEED_RECORD_SIZE: usize = 16;

/// Returns the maps, sorted by offset. A definition may be longer than ours, because some headers add
/// fields, if the additional bytes are zero.
pub(super) fn maps(file: &Elf<'_>) -> Result<Vec<ObjectMap>, ObjectError> {
    let failed = |reason: String| ObjectError::Maps { section: MAPS_SECTION.to_owned(), reason };
    let Some(section) = file.section_by_name(MAPS_SECTION) else {
        return btf::maps(file);
    };
    if file.section_by_name(btf::SECTION).is_some_and(|s| s.size() != 0) {
        return Err(failed(format!(
            "section {} defines maps, too: use one of the two sections",
            btf::SECTION
        )));
    }
    let data = section.data()?;
    let mut symbols = Vec::new();
    for symbol in file.symbols().filter(|s| s.section_index() == Some(section.index())) {
        if symbol.kind() != SymbolKind::Section {
            symbols.push((symbol.address(), symbol.name()?.to_owned()));
        }
    }
    symbols.sort();
    if symbols.len() > MAX_MAPS {
        return Err(failed(format!("{} maps, the limit is {MAX_MAPS}", symbols.len())));
    }
    if symbols.is_empty() && !data.is_empty() {
        return Err(failed("no symbol names a map".to_owned()));
    }
    let ends = symbols.iter().skip(1).map(|p| p.0).chain([data.len() as u64]).collect::<Vec<_>>();
    let mut maps = Vec::with_capacity(symbols.len());
    for ((offset, name), end) in symbols.into_iter().zip(ends) {
        let range = usize::try_from(offset).ok().zip(usize::try_from(end).ok());
        let bytes = range.and_then(|(start, end)| data.get(start..end));
        let Some((definition, rest)) = bytes.and_then(|b| b.split_first_chunk::<MAP_DEFINITION_SIZE>())
        else {
            let reason = format!("map {name}: its definition is shorter than {MAP_DEFINITION_SIZE} bytes");
            return Err(failed(reason));
        };
        if rest.iter().any(|&b| b != 0) {
            let reason = format!("map {name}: fields after type, sizes, entries and flags are not supported");
            return Err(failed(reason));
        }
        maps.push(ObjectMap { name, definition: MapDefinition::decode(definition), offset });
    }
    Ok(maps)
}

/// Returns the initial entries.
pub(super) fn entries(file: &Elf<'_>, maps: &[ObjectMap]) -> Result<Vec<ObjectEntry>, ObjectError> {
    let Some(section) = file.section_by_name(ENTRIES_SECTION) else { return Ok(Vec::new()) };
    let data = section.data()?;
    let mut entries = Vec::new();
    let mut at = 0;
    while at < data.len() {
        let failed = |reason: &str| ObjectError::Entries { offset: at, reason: reason.to_owned() };
        let mut r = Reader::new(&data[at..]);
        let (map_offset, flags) = (r.u32(), r.u32());
        if !r.ok() || flags != 0 {
            return Err(failed("the header of the record is damaged"));
        }
        let map = maps.binary_search_by_key(&u64::from(map_offset), |m| m.offset);
        let map = map.map_err(|_| failed("the record refers to no map"))?;
        let definition = &maps[map].definition;
        // The sizes are not checked yet. A saturated sum exceeds any section.
        let key_size = definition.entry_key_size() as usize;
        let key_end = (at + 8).saturating_add(key_size);
        let value_end = key_end.saturating_add(definition.value_size as usize);
        let key = data.get(at + 8..key_end).ok_or_else(|| failed("the key is truncated"))?.to_vec();
        let value = data.get(key_end..value_end).ok_or_else(|| failed("the value is truncated"))?.to_vec();
        entries.push(ObjectEntry { map, key, value });
        at = value_end.next_multiple_of(4);
    }
    Ok(entries)
}

/// Assigns the records of the line table to their functions, and returns the file names.
pub(super) fn lines(file: &Elf<'_>, functions: &mut [Function]) -> Result<Vec<String>, ObjectError> {
    let Some(section) = file.section_by_name(LINES_SECTION) else { return Ok(Vec::new()) };
    let program = file.section_by_name(PROGRAM_SECTION).ok_or(ObjectError::Lines)?.index();
    let (count, mut rest) = counted(section.data()?)?;
    let records = count.checked_mul(LINE_RECORD_SIZE).and_then(|n| rest.split_at_checked(n));
    let (records, tail) = records.ok_or(ObjectError::Lines)?;
    for bytes in records.chunks_exact(LINE_RECORD_SIZE) {
        let mut r = Reader::new(bytes);
        let record = LineRecord { instruction: r.u32(), file: r.u32(), line: r.u32(), column: r.u32() };
        let slot = record.instruction as usize;
        if let Some(f) = holding(functions, program, slot).map(|i| &mut functions[i]) {
            f.lines.push(LineRecord { instruction: (slot - f.start) as u32, ..record });
        }
    }
    for f in functions.iter_mut() {
        f.lines.sort_by_key(|r| r.instruction);
    }
    let (count, tail) = counted(tail)?;
    rest = tail;
    let mut files = Vec::new();
    for _ in 0..count {
        let (len, tail) = counted(rest)?;
        let (name, tail) = tail.split_at_checked(len).ok_or(ObjectError::Lines)?;
        files.push(String::from_utf8_lossy(name).into_owned());
        rest = tail;
    }
    Ok(files)
}

/// Returns the first act of a divided program that only a switch does, and true if it reads queues.
pub(super) fn needs(file: &Elf<'_>, files: &[String]) -> Result<(Option<Division>, bool), ObjectError> {
    let Some(section) = file.section_by_name(NEEDS_SECTION) else { return Ok((None, false)) };
    let (records, rest) = section.data()?.as_chunks::<NEED_RECORD_SIZE>();
    let (mut found, mut queues) = (None, false);
    for bytes in records {
        let mut r = Reader::new(bytes);
        let record = NeedRecord { need: r.u32(), file: r.u32(), line: r.u32(), column: r.u32() };
        let what = match record.need {
            need::GROUP => "multicasts: it sets standard_metadata.mcast_grp",
            need::CLONE => "clones packets",
            need::RESUBMIT => "resubmits packets",
            need::RECIRCULATE => "recirculates packets",
            need::CALLS => "calls functions in a compartment",
            need::QUEUES => {
                queues = true;
                continue;
            }
            _ => return Err(ObjectError::Needs),
        };
        let name = files.get(record.file as usize).map_or("", String::as_str);
        let place = format!("{name}:{}:{}", record.line, record.column);
        found.get_or_insert(Division { what, place });
    }
    if rest.is_empty() { Ok((found, queues)) } else { Err(ObjectError::Needs) }
}

/// The first act of a divided program that only a switch does, and its place.
#[derive(Clone, Debug)]
pub(super) struct Division {
    pub(super) what: &'static str,
    pub(super) place: String,
}

/// Returns the bytes of the schema. One that is too long is left out: the program runs without.
pub(super) fn schema(file: &Elf<'_>) -> Result<Option<Vec<u8>>, ObjectError> {
    let Some(section) = file.section_by_name(SCHEMA_SECTION) else { return Ok(None) };
    Ok(Some(section.data()?.to_vec()).filter(|bytes| bytes.len() <= MAX_SCHEMA_BYTES))
}

/// Returns the bytes of the trace points. They are left out if they are too long: the program runs without.
pub(super) fn trace_points(file: &Elf<'_>) -> Result<Option<Vec<u8>>, ObjectError> {
    let Some(section) = file.section_by_name(TRACE_SECTION) else { return Ok(None) };
    Ok(Some(section.data()?.to_vec()).filter(|bytes| bytes.len() <= MAX_SCHEMA_BYTES))
}

/// Reads a count, and returns it with the rest of the bytes.
fn counted(bytes: &[u8]) -> Result<(usize, &[u8]), ObjectError> {
    let (count, rest) = bytes.split_first_chunk().ok_or(ObjectError::Lines)?;
    Ok((u32::from_le_bytes(*count) as usize, rest))
}
