//! Reading of a program's description and maps from what runs it, which is hostile: a P4 VM that answers with
//! rubbish gives an error, and every loop and list is bounded.

use p4shield_abi::map::{MapDefinition, TYPE_ARRAY, TYPE_CLASSIFIER, TYPE_HASH, TYPE_LPM_TRIE};
use p4shield_abi::schema::{MAX_SCHEMA_BYTES, Schema};
use p4shield_control::{MAX_MAPS, MapPart, MapQuery, ProgramDescription, ProgramSlot, Reply, Request};
use p4shield_tables::{Described, Extent, ReadMap, Rows};

/// The most replies that describe one program.
const MAX_REPLIES: usize = 64;
/// The most bytes of a key, and of a value, of any map.
const MAX_ENTRY: u32 = 65_536;
/// Rows after which a page ends.
pub(super) const PAGE_ROWS: usize = 4096;

/// Sends a request and returns the reply.
pub(super) type Ask<'a> = dyn FnMut(Request) -> Result<Reply, String> + 'a;

fn rubbish<T>(what: &str) -> Result<T, String> {
    Err(format!("the P4 VM gave an invalid answer: {what}"))
}

/// Describes the program of a slot.
///
/// # Errors
/// The P4 VM or switch does not answer, or gives an answer that no program gives.
pub(super) fn describe(ask: &mut Ask<'_>, slot: ProgramSlot) -> Result<Described, String> {
    let (mut described, mut schema) = (Described::default(), Vec::new());
    for round in 0..MAX_REPLIES {
        let (maps, bytes) = (described.maps.len() as u32, schema.len() as u32);
        let part = match ask(Request::DescribeProgram { slot, maps, schema: bytes })? {
            Reply::Description(part) => *part,
            _ => return rubbish("not a description"),
        };
        if round > 0 && part.program != described.program {
            return Err("the program was replaced while it was read; read it again".to_owned());
        }
        let ProgramDescription { program, map_count, maps, schema_len, schema: bytes } = part;
        described.program = program;
        described.maps.extend(
            maps.into_iter().map(|m| (m.definition(), m.name)).map(|(definition, name)| (name, definition)),
        );
        schema.extend(bytes);
        let length = schema_len.unwrap_or(0) as usize;
        if map_count as usize > MAX_MAPS || length > MAX_SCHEMA_BYTES {
            return rubbish("a program of this size does not run");
        }
        if described.maps.len() > map_count as usize || schema.len() > length {
            return rubbish("more than it announced");
        }
        if described.maps.len() == map_count as usize && schema.len() == length {
            described.schema = schema_len.map(|_| Schema::decode(&schema));
            if !described.maps.iter().all(|(_, definition)| is_sound(definition)) {
                return rubbish("a map that no program can have");
            }
            return Ok(described);
        }
    }
    rubbish("a description without end")
}

/// Returns whether the engine accepts a map with this definition, as far as this module depends on it.
fn is_sound(d: &MapDefinition) -> bool {
    let known = [TYPE_ARRAY, TYPE_HASH, TYPE_LPM_TRIE, TYPE_CLASSIFIER].contains(&d.map_type);
    let key = if d.map_type == TYPE_ARRAY { d.key_size == 4 } else { (1..MAX_ENTRY).contains(&d.key_size) };
    known && key && (1..=MAX_ENTRY).contains(&d.value_size) && d.max_entries > 0
}

/// Reads the maps of the program of a slot.
pub(super) struct Remote<'r, 'a> {
    pub(super) ask: &'r mut Ask<'a>,
    pub(super) slot: ProgramSlot,
}

impl ReadMap for Remote<'_, '_> {
    fn read(&mut self, described: &Described, map: usize, extent: Extent) -> Result<Rows, String> {
        let Some((_, definition)) = described.maps.get(map) else {
            return rubbish("a map that it did not describe");
        };
        let mut rows = Rows { next: Some(extent.from), ..Rows::default() };
        let mut room = extent.bytes;
        while let Some(from) = rows.next.filter(|n| *n < definition.max_entries) {
            let full = room == 0;
            let left = match extent.limit {
                Some(_) if full => 0,
                Some(limit) => limit - rows.entries.len(),
                None if full || rows.entries.len() >= PAGE_ROWS => return Ok(rows),
                None => PAGE_ROWS,
            };
            let (program, zeros) = (described.program, extent.zeros);
            let query =
                MapQuery { slot: self.slot, program, map: map as u32, from, rows: left as u32, zeros };
            let Reply::MapPart(part) = (self.ask)(Request::ReadMap(query))? else {
                return rubbish("not a part of a map");
            };
            check(&part, definition, from, left)?;
            let bytes: usize = part.entries.iter().map(|(k, v)| k.len() + v.len()).sum();
            room = room.saturating_sub(bytes);
            rows.entries.extend(part.entries);
            rows.more += u64::from(part.more);
            rows.next = part.next;
        }
        rows.next = None;
        Ok(rows)
    }
}

/// Checks a part of a map from slot `from` on, of at most `rows` entries.
fn check(part: &MapPart, definition: &MapDefinition, from: u32, rows: usize) -> Result<(), String> {
    let end = part.next.unwrap_or(definition.max_entries);
    if end <= from || end > definition.max_entries {
        return rubbish("a part that does not follow the one before");
    }
    let visited = (end - from) as usize;
    if part.entries.len() > rows || part.entries.len().saturating_add(part.more as usize) > visited {
        return rubbish("more entries than there are");
    }
    let (key, value) = (definition.entry_key_size() as usize, definition.value_size as usize);
    if part.entries.iter().any(|(k, v)| k.len() != key || v.len() != value) {
        return rubbish("entries of the wrong size");
    }
    let index = |key: &[u8]| key.first_chunk().map_or(u32::MAX, |k| u32::from_ne_bytes(*k));
    let is_inside = |(k, _): &(Vec<u8>, Vec<u8>)| (from..end).contains(&index(k));
    let ascend = part.entries.windows(2).all(|pair| index(&pair[0].0) < index(&pair[1].0));
    if definition.map_type == TYPE_ARRAY && !(ascend && part.entries.iter().all(is_inside)) {
        return rubbish("indexes out of order");
    }
    Ok(())
}
