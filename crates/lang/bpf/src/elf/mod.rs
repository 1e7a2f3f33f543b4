//! ELF objects of eBPF code: what our compiler and `clang -target bpf` write, read into functions, maps and entries.
//!
//! An [`Object`] is resolved within itself: its functions know which function, map or outside symbol each of their
//! references means. What is left is to join objects ([`crate::link()`]). The bytes are hostile input: every offset,
//! size and index is checked, and nothing is allocated by what a header claims.

mod btf;
mod error;
mod functions;
mod references;
mod sections;

use object::read::elf::ElfFile64;
use object::{LittleEndian, Object as _, ObjectKind, ObjectSection as _, SectionIndex, SectionKind, elf};
use p4shield_abi::context::PROGRAM_ABI_VERSION;
use p4shield_abi::map::MapDefinition;
use p4shield_abi::object::{ABI_SECTION, ENTRY_SYMBOL, LineRecord, PROGRAM_SECTION};

use crate::insn::{INSN_SIZE, Insn};
use crate::linked::MAX_SLOTS;
pub use error::ObjectError;

/// The most bytes of an object.
pub const MAX_OBJECT_BYTES: usize = 16 << 20;

type Elf<'a> = ElfFile64<'a, LittleEndian>;

/// What a reference means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A function of the same object.
    Function(usize),
    /// A map of the same object.
    Map(usize),
    /// A function of another object, by name.
    OutsideFunction(String),
    /// A map of another object, by name.
    OutsideMap(String),
}

/// A slot whose immediate is still to be filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    /// Slot within the function.
    pub(crate) slot: usize,
    pub(crate) target: Target,
}

/// One function.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    pub(crate) name: String,
    /// Names by which other objects may call it, with whether each is weak.
    pub(crate) exported: Vec<(String, bool)>,
    pub(crate) insns: Vec<Insn>,
    pub(crate) references: Vec<Reference>,
    /// Source lines, instructions counted from the start of the function.
    pub(crate) lines: Vec<LineRecord>,
    section: SectionIndex,
    /// First slot within the section.
    start: usize,
}

/// One map.
#[derive(Clone, Debug)]
pub(crate) struct ObjectMap {
    pub(crate) name: String,
    pub(crate) definition: MapDefinition,
    /// Offset within the section.
    offset: u64,
}

/// One initial entry.
#[derive(Clone, Debug)]
pub(crate) struct ObjectEntry {
    pub(crate) map: usize,
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

/// One parsed object.
#[derive(Clone, Debug)]
pub struct Object {
    pub(crate) name: String,
    pub(crate) functions: Vec<Function>,
    pub(crate) maps: Vec<ObjectMap>,
    pub(crate) entries: Vec<ObjectEntry>,
    pub(crate) files: Vec<String>,
    /// The function that may be the entry, and whether it bears the entry's name.
    pub(crate) entry: Option<(usize, bool)>,
    /// Where it sends packets to groups, if it does.
    replicates: Option<String>,
}

impl Object {
    /// Reads an object.
    ///
    /// # Errors
    /// If it is not a relocatable 64-bit little-endian eBPF object, is damaged, or uses what we do not support
    /// (global variables and constants in sections of their own, for example).
    pub fn parse(bytes: &[u8]) -> Result<Self, ObjectError> {
        if bytes.len() > MAX_OBJECT_BYTES {
            return Err(ObjectError::TooLarge { bytes: bytes.len() });
        }
        let file = Elf::parse(bytes)?;
        let machine = file.elf_header().e_machine.get(LittleEndian);
        if machine != elf::EM_BPF || file.kind() != ObjectKind::Relocatable {
            return Err(ObjectError::NotBpf);
        }
        check_abi(&file)?;
        let code = code_sections(&file)?;
        let mut functions = functions::find(&file, &code)?;
        let maps = sections::maps(&file)?;
        references::resolve(&file, &code, &maps, &mut functions)?;
        let entries = sections::entries(&file, &maps)?;
        let files = sections::lines(&file, &mut functions)?;
        let entry = entry(&file, &functions);
        let replicates = sections::replication(&file, &files)?;
        Ok(Self { name: String::new(), functions, maps, entries, files, entry, replicates })
    }

    /// For whoever runs a program once for a packet, and hands on the one packet that it makes.
    ///
    /// # Errors
    /// If the program needs more: where it sends packets to a group.
    pub fn runs_once(&self) -> Result<(), ObjectError> {
        self.replicates.clone().map_or(Ok(()), |place| Err(ObjectError::Replicates { place }))
    }

    /// Gives it a name for error messages, usually that of its file.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Names of its maps, in the order of their definition.
    pub fn maps(&self) -> impl Iterator<Item = (&str, &MapDefinition)> {
        self.maps.iter().map(|m| (m.name.as_str(), &m.definition))
    }

    /// Names of its functions, in the order of their code.
    pub fn functions(&self) -> impl Iterator<Item = &str> {
        self.functions.iter().map(|f| f.name.as_str())
    }
}

/// A code section: which, and its instructions. They are kept in the order of their index.
struct CodeSection {
    index: SectionIndex,
    name: String,
    insns: Vec<Insn>,
}

fn check_abi(file: &Elf<'_>) -> Result<(), ObjectError> {
    let Some(section) = file.section_by_name(ABI_SECTION) else { return Ok(()) };
    match section.data()?.first_chunk() {
        Some(bytes) if u32::from_le_bytes(*bytes) == PROGRAM_ABI_VERSION => Ok(()),
        bytes => Err(ObjectError::Abi { version: bytes.map_or(0, |b| u32::from_le_bytes(*b)) }),
    }
}

fn code_sections(file: &Elf<'_>) -> Result<Vec<CodeSection>, ObjectError> {
    let mut sections = Vec::new();
    let mut slots = 0;
    for section in file.sections() {
        if section.kind() != SectionKind::Text {
            continue;
        }
        let (data, name) = (section.data()?, section.name()?.to_owned());
        let (chunks, []) = data.as_chunks::<INSN_SIZE>() else {
            return Err(ObjectError::CodeSize { section: name, bytes: data.len() });
        };
        slots += chunks.len();
        if slots > MAX_SLOTS {
            return Err(ObjectError::TooLong { slots });
        }
        let insns = chunks.iter().map(|&c| Insn::from_bytes(c)).collect();
        sections.push(CodeSection { index: section.index(), name, insns });
    }
    Ok(sections)
}

/// The entry is the function of that name in the program section, or the first function there.
fn entry(file: &Elf<'_>, functions: &[Function]) -> Option<(usize, bool)> {
    let section = file.section_by_name(PROGRAM_SECTION)?.index();
    let mut there = functions.iter().enumerate().filter(|(_, f)| f.section == section);
    let named = there.clone().find(|(_, f)| f.name == ENTRY_SYMBOL);
    named.map(|(i, _)| (i, true)).or_else(|| there.next().map(|(i, _)| (i, false)))
}
