//! The data sections: maps, their initial entries, source lines.

use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SymbolKind};
use p4shield_abi::bytes::Reader;
use p4shield_abi::map::{MAP_DEFINITION_SIZE, MapDefinition};
use p4shield_abi::object::{
    ENTRIES_SECTION, LINES_SECTION, LineRecord, MAPS_SECTION, NEED_REPLICATION, NEEDS_SECTION, NeedRecord,
    PROGRAM_SECTION,
};

use super::functions::holding;
use super::{Elf, Function, ObjectEntry, ObjectError, ObjectMap, btf};
use crate::maps::MAX_MAPS;

/// Bytes of a line record.
const LINE_RECORD_SIZE: usize = 16;
/// Bytes of a need.
const NEED_RECORD_SIZE: usize = 16;

/// The maps, by offset. A definition may be longer than ours (some headers add fields), if the rest is zero.
pub(super) fn maps(file: &Elf<'_>) -> Result<Vec<ObjectMap>, ObjectError> {
    let failed = |reason: String| ObjectError::Maps { section: MAPS_SECTION.to_owned(), reason };
    let Some(section) = file.section_by_name(MAPS_SECTION) else {
        return btf::maps(file);
    };
    if file.section_by_name(btf::SECTION).is_some_and(|s| s.size() != 0) {
        return Err(failed(format!("maps stand in {} too: use one of the two ways", btf::SECTION)));
    }
    let data = section.data()?;
    let mut places = Vec::new();
    for symbol in file.symbols().filter(|s| s.section_index() == Some(section.index())) {
        if symbol.kind() != SymbolKind::Section {
            places.push((symbol.address(), symbol.name()?.to_owned()));
        }
    }
    places.sort();
    if places.len() > MAX_MAPS {
        return Err(failed(format!("{} maps, the limit is {MAX_MAPS}", places.len())));
    }
    if places.is_empty() && !data.is_empty() {
        return Err(failed("no symbol names a map".to_owned()));
    }
    let ends = places.iter().skip(1).map(|p| p.0).chain([data.len() as u64]).collect::<Vec<_>>();
    let mut maps = Vec::with_capacity(places.len());
    for ((offset, name), end) in places.into_iter().zip(ends) {
        let range = usize::try_from(offset).ok().zip(usize::try_from(end).ok());
        let bytes = range.and_then(|(start, end)| data.get(start..end));
        let Some((definition, rest)) = bytes.and_then(|b| b.split_first_chunk::<MAP_DEFINITION_SIZE>())
        else {
            let reason = format!("map {name}: a definition has {MAP_DEFINITION_SIZE} bytes");
            return Err(failed(reason));
        };
        if rest.iter().any(|&b| b != 0) {
            let reason =
                format!("map {name}: fields behind type, sizes, entries and flags are not supported");
            return Err(failed(reason));
        }
        maps.push(ObjectMap { name, definition: MapDefinition::decode(definition), offset });
    }
    Ok(maps)
}

/// The initial entries.
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
            return Err(failed("the record's head is damaged"));
        }
        let map = maps.binary_search_by_key(&u64::from(map_offset), |m| m.offset);
        let map = map.map_err(|_| failed("the record is of no map"))?;
        let definition = &maps[map].definition;
        // Sizes are not checked yet; a rule that overflows is longer than any section.
        let key_size = definition.entry_key_size() as usize;
        let key_end = (at + 8).saturating_add(key_size);
        let value_end = key_end.saturating_add(definition.value_size as usize);
        let key = data.get(at + 8..key_end).ok_or_else(|| failed("the key is cut off"))?.to_vec();
        let value = data.get(key_end..value_end).ok_or_else(|| failed("the value is cut off"))?.to_vec();
        entries.push(ObjectEntry { map, key, value });
        at = value_end.next_multiple_of(4);
    }
    Ok(entries)
}

/// The line table: hands each record to its function and returns the names of the files.
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

/// Where the program sends packets to groups, if it does.
pub(super) fn replication(file: &Elf<'_>, files: &[String]) -> Result<Option<String>, ObjectError> {
    let Some(section) = file.section_by_name(NEEDS_SECTION) else { return Ok(None) };
    let (records, rest) = section.data()?.as_chunks::<NEED_RECORD_SIZE>();
    let mut place = None;
    for bytes in records {
        let mut r = Reader::new(bytes);
        let record = NeedRecord { need: r.u32(), file: r.u32(), line: r.u32(), column: r.u32() };
        let name = files.get(record.file as usize).map_or("", String::as_str);
        match record.need {
            NEED_REPLICATION => place = Some(format!("{name}:{}:{}", record.line, record.column)),
            _ => return Err(ObjectError::Needs),
        }
    }
    if rest.is_empty() { Ok(place) } else { Err(ObjectError::Needs) }
}

/// A number, and what follows it.
fn counted(bytes: &[u8]) -> Result<(usize, &[u8]), ObjectError> {
    let (count, rest) = bytes.split_first_chunk().ok_or(ObjectError::Lines)?;
    Ok((u32::from_le_bytes(*count) as usize, rest))
}
