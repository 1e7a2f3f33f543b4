//! The linker: joins several objects into one instruction stream.
//!
//! The entry function comes first, then every function that is reachable from it, in whichever object
//! it is. Unreachable functions are left out. All maps of all objects are kept, because the control
//! plane accesses them by name.

use std::collections::BTreeMap;

use p4shield_abi::object::{ENTRY_SYMBOL, LineRecord, PROGRAM_SECTION};

use crate::check::{CheckError, check};
use crate::elf::{Object, ReferenceTarget};
use crate::insn::opcode;
use crate::linked::{Entry, LineTable, Linked, MAX_SLOTS, Map, Subprogram};

/// Reason why objects cannot be linked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// No object has an entry point.
    #[error("no entry point: define a function in section {PROGRAM_SECTION} in one object")]
    NoEntry,
    /// Several objects have an entry point.
    #[error("several entry points ({names}): name exactly one of them {ENTRY_SYMBOL}")]
    SeveralEntries {
        /// The candidates.
        names: String,
    },
    /// Two objects define the same function or map.
    #[error("{kind} {name} is defined in {first} and in {second}: remove or rename one definition")]
    Duplicate {
        /// `function` or `map`.
        kind: &'static str,
        /// Its name.
        name: String,
        /// One object.
        first: String,
        /// The other.
        second: String,
    },
    /// No object defines a function or map.
    #[error("{function} uses {kind} {name}, which no object defines: link the object that defines it")]
    Unknown {
        /// `function` or `map`.
        kind: &'static str,
        /// Its name.
        name: String,
        /// The function that refers to it.
        function: String,
    },
    /// The linked program is too long.
    #[error("the linked program has more than {MAX_SLOTS} instruction slots: use fewer tables and branches")]
    TooLong,
    /// The structure of the linked program is invalid.
    #[error("the structure of the linked program is invalid")]
    Check(#[from] CheckError),
}

/// Object index and function index.
type FunctionId = (usize, usize);

/// The definitions of all objects.
struct Symbols<'a> {
    objects: &'a [Object],
    /// Exported functions by name, with whether the definition is weak.
    functions: BTreeMap<&'a str, (FunctionId, bool)>,
    /// Index of each object's first map in the linked program.
    map_bases: Vec<usize>,
    maps: BTreeMap<&'a str, usize>,
}

/// Links objects into one program and checks its structure.
///
/// # Errors
/// If there is not exactly one entry point, or a symbol has no or several definitions. The error
/// names the symbols.
pub fn link(objects: &[Object]) -> Result<Linked, LinkError> {
    let entry = entry(objects)?;
    let mut linked = Linked::default();
    let symbols = symbols(objects, &mut linked)?;
    let order = place_functions(&symbols, entry, &mut linked)?;
    resolve_references(&symbols, &order, &mut linked)?;
    check(&linked)?;
    Ok(linked)
}

fn label(objects: &[Object], index: usize) -> String {
    match objects[index].name.as_str() {
        "" => format!("object {}", index + 1),
        name => name.to_owned(),
    }
}

fn entry(objects: &[Object]) -> Result<FunctionId, LinkError> {
    let candidates: Vec<(usize, usize, bool)> = objects
        .iter()
        .enumerate()
        .filter_map(|(o, object)| object.entry.map(|(f, named)| (o, f, named)))
        .collect();
    let named: Vec<_> = candidates.iter().filter(|c| c.2).collect();
    match (named.as_slice(), candidates.as_slice()) {
        ([(o, f, _)], _) | ([], [(o, f, _)]) => Ok((*o, *f)),
        ([], []) => Err(LinkError::NoEntry),
        _ => {
            let name = |&(o, f, _): &(usize, usize, bool)| {
                format!("{} of {}", objects[o].functions[f].name, label(objects, o))
            };
            let names: Vec<_> = candidates.iter().map(name).collect();
            Err(LinkError::SeveralEntries { names: names.join(", ") })
        }
    }
}

/// Collects the definitions, and copies maps and entries into the linked program.
fn symbols<'a>(objects: &'a [Object], linked: &mut Linked) -> Result<Symbols<'a>, LinkError> {
    let mut symbols =
        Symbols { objects, functions: BTreeMap::new(), map_bases: Vec::new(), maps: BTreeMap::new() };
    let mut map_homes = Vec::new();
    for (o, object) in objects.iter().enumerate() {
        for (f, function) in object.functions.iter().enumerate() {
            for (name, weak) in &function.exported {
                symbols.export(name, (o, f), *weak)?;
            }
        }
        let base = linked.maps.len();
        symbols.map_bases.push(base);
        for map in &object.maps {
            if let Some(first) = symbols.maps.insert(&map.name, linked.maps.len()) {
                return Err(duplicate("map", &map.name, objects, map_homes[first], o));
            }
            map_homes.push(o);
            linked.maps.push(Map { name: map.name.clone(), definition: map.definition });
        }
        for entry in &object.entries {
            let (key, value) = (entry.key.clone(), entry.value.clone());
            linked.entries.push(Entry { map: (base + entry.map) as u32, key, value });
        }
    }
    Ok(symbols)
}

fn duplicate(kind: &'static str, name: &str, objects: &[Object], first: usize, second: usize) -> LinkError {
    let (first, second) = (label(objects, first), label(objects, second));
    LinkError::Duplicate { kind, name: name.to_owned(), first, second }
}

impl<'a> Symbols<'a> {
    /// Adds a definition. A strong definition replaces a weak one; two strong ones are an error.
    fn export(&mut self, name: &'a str, id: FunctionId, weak: bool) -> Result<(), LinkError> {
        match self.functions.get(name) {
            Some((first, false)) if !weak => Err(duplicate("function", name, self.objects, first.0, id.0)),
            Some((_, old_weak)) if weak || !old_weak => Ok(()),
            _ => {
                self.functions.insert(name, (id, weak));
                Ok(())
            }
        }
    }

    fn callee(&self, from: FunctionId, target: &ReferenceTarget) -> Result<Option<FunctionId>, LinkError> {
        match target {
            ReferenceTarget::Function(f) => Ok(Some((from.0, *f))),
            ReferenceTarget::ExternalFunction(name) => match self.functions.get(name.as_str()) {
                Some((id, _)) => Ok(Some(*id)),
                None => Err(self.unknown("function", name, from)),
            },
            ReferenceTarget::Map(_) | ReferenceTarget::ExternalMap(_) => Ok(None),
        }
    }

    fn unknown(&self, kind: &'static str, name: &str, from: FunctionId) -> LinkError {
        let function = self.objects[from.0].functions[from.1].name.clone();
        LinkError::Unknown { kind, name: name.to_owned(), function }
    }
}

/// Copies the entry and every reachable function, and returns the first slot of each function.
fn place_functions(
    symbols: &Symbols<'_>,
    entry: FunctionId,
    linked: &mut Linked,
) -> Result<Vec<(FunctionId, usize)>, LinkError> {
    let mut order = vec![entry];
    let mut seen = std::collections::BTreeSet::from([entry]);
    let mut starts = Vec::new();
    let mut next = 0;
    let mut file_bases = vec![None; symbols.objects.len()];
    while let Some(&id) = order.get(next) {
        let object = &symbols.objects[id.0];
        let function = &object.functions[id.1];
        for reference in &function.references {
            if let Some(callee) = symbols.callee(id, &reference.target)?
                && seen.insert(callee)
            {
                order.push(callee);
            }
        }
        let start = linked.insns.len();
        if start + function.insns.len() > MAX_SLOTS {
            return Err(LinkError::TooLong);
        }
        linked.insns.extend_from_slice(&function.insns);
        let end = linked.insns.len();
        linked.subprograms.push(Subprogram { name: function.name.clone(), start, end });
        let file_base = *file_bases[id.0].get_or_insert_with(|| {
            linked.lines.files.extend(object.files.iter().cloned());
            linked.lines.files.len() - object.files.len()
        });
        append_lines(&mut linked.lines, &function.lines, start, file_base);
        starts.push((id, start));
        next += 1;
    }
    Ok(starts)
}

/// Appends a function's lines. If its first instruction has no line, a record with line 0 keeps it
/// from inheriting the last line of the previous function.
fn append_lines(table: &mut LineTable, records: &[LineRecord], start: usize, file_base: usize) {
    let instruction = start as u32;
    if records.first().is_none_or(|r| r.instruction != 0) && !table.records.is_empty() {
        table.records.push(LineRecord { instruction, file: 0, line: 0, column: 0 });
    }
    table.records.extend(records.iter().map(|r| LineRecord {
        instruction: instruction + r.instruction,
        file: r.file.saturating_add(file_base as u32),
        ..*r
    }));
}

/// Fills in the immediates of calls and map references.
fn resolve_references(
    symbols: &Symbols<'_>,
    order: &[(FunctionId, usize)],
    linked: &mut Linked,
) -> Result<(), LinkError> {
    let starts: BTreeMap<FunctionId, usize> = order.iter().copied().collect();
    for &(id, start) in order {
        for reference in &symbols.objects[id.0].functions[id.1].references {
            let slot = start + reference.slot;
            let insn = &mut linked.insns[slot];
            if let Some(callee) = symbols.callee(id, &reference.target)? {
                insn.src = opcode::PSEUDO_CALL;
                // Both values are below `MAX_SLOTS`.
                insn.imm = starts[&callee] as i32 - slot as i32 - 1;
                continue;
            }
            let map = match &reference.target {
                ReferenceTarget::Map(m) => symbols.map_bases[id.0] + m,
                ReferenceTarget::ExternalMap(name) => {
                    *symbols.maps.get(name.as_str()).ok_or_else(|| symbols.unknown("map", name, id))?
                }
                ReferenceTarget::Function(_) | ReferenceTarget::ExternalFunction(_) => continue,
            };
            insn.src = opcode::PSEUDO_MAP;
            insn.imm = map as i32;
            if let Some(high) = linked.insns.get_mut(slot + 1) {
                high.imm = 0;
            }
        }
    }
    Ok(())
}
