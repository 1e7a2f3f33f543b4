//! Parsing of eBPF ELF objects, as our compiler and `clang -target bpf` write them.
//!
//! An [`Object`] is resolved within itself: each reference of a function names a function, a map or an
//! external symbol. The linker ([`crate::link()`]) joins objects. The bytes are hostile input: every
//! offset, size and index is checked, and no allocation depends on an unchecked header field.

mod btf;
mod error;
mod functions;
mod references;
mod sections;

use object::read::elf::ElfFile64;
use object::{LittleEndian, Object as _, ObjectKind, ObjectSection as _, SectionIndex, SectionKind, elf};
use p4shield_abi::call::CALLS_MAP;
use p4shield_abi::context::PROGRAM_ABI_VERSION;
use p4shield_abi::division::{BLOCK_MAP, MAX_BLOCK_SIZE};
use p4shield_abi::map::MapDefinition;
use p4shield_abi::object::{ABI_SECTION, ENTRY_SYMBOL, LineRecord, MAPS_SECTION, PROGRAM_SECTION};

use crate::insn::{INSN_SIZE, Insn};
use crate::linked::MAX_SLOTS;
pub use error::ObjectError;

/// Maximum size of an object in bytes.
pub const MAX_OBJECT_BYTES: usize = 16 << 20;

type Elf<'a> = ElfFile64<'a, LittleEndian>;

/// ReferenceTarget of a reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReferenceTarget {
    /// A function of the same object.
    Function(usize),
    /// A map of the same object.
    Map(usize),
    /// A function of another object, by name.
    ExternalFunction(String),
    /// A map of another object, by name.
    ExternalMap(String),
}

/// A slot whose immediate the linker fills in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    /// Slot within the function.
    pub(crate) slot: usize,
    pub(crate) target: ReferenceTarget,
}

/// A function of an object.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    pub(crate) name: String,
    /// Names under which other objects may call it, each with whether it is weak.
    pub(crate) exported: Vec<(String, bool)>,
    pub(crate) insns: Vec<Insn>,
    pub(crate) references: Vec<Reference>,
    /// Source lines; instructions are counted from the start of the function.
    pub(crate) lines: Vec<LineRecord>,
    section: SectionIndex,
    /// First slot within the section.
    start: usize,
}

/// A map of an object.
#[derive(Clone, Debug)]
pub(crate) struct ObjectMap {
    pub(crate) name: String,
    pub(crate) definition: MapDefinition,
    /// Offset within the section.
    offset: u64,
}

/// An initial map entry of an object.
#[derive(Clone, Debug)]
pub(crate) struct ObjectEntry {
    pub(crate) map: usize,
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

/// Refuses a program whose block, or value of calls, is too large for a switch to copy it with each packet.
fn check_block(maps: &[ObjectMap]) -> Result<(), ObjectError> {
    let size = |m: &ObjectMap| m.definition.value_size as usize;
    let copied = |m: &&ObjectMap| [BLOCK_MAP, CALLS_MAP].contains(&m.name.as_str());
    match maps.iter().filter(copied).find(|m| size(m) > MAX_BLOCK_SIZE) {
        None => Ok(()),
        Some(block) => Err(ObjectError::Maps {
            section: MAPS_SECTION.to_owned(),
            reason: format!("{} has {} bytes, and {MAX_BLOCK_SIZE} are the most", block.name, size(block)),
        }),
    }
}

/// A parsed object.
#[derive(Clone, Debug)]
pub struct Object {
    pub(crate) name: String,
    pub(crate) functions: Vec<Function>,
    pub(crate) maps: Vec<ObjectMap>,
    pub(crate) entries: Vec<ObjectEntry>,
    pub(crate) files: Vec<String>,
    /// The function that may be the entry, and whether it has the entry's name.
    pub(crate) entry: Option<(usize, bool)>,
    division: Option<sections::Division>,
    reads_queues: bool,
    schema: Option<Vec<u8>>,
    trace_points: Option<Vec<u8>>,
}

impl Object {
    /// Parses an object.
    ///
    /// # Errors
    /// If the bytes are not a relocatable 64-bit little-endian eBPF object, are damaged, or use an
    /// unsupported feature such as global variables.
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
        check_block(&maps)?;
        references::resolve(&file, &code, &maps, &mut functions)?;
        let entries = sections::entries(&file, &maps)?;
        let files = sections::lines(&file, &mut functions)?;
        let entry = entry(&file, &functions);
        let (division, reads_queues) = sections::needs(&file, &files)?;
        let schema = sections::schema(&file)?;
        let trace_points = sections::trace_points(&file)?;
        Ok(Self {
            name: String::new(),
            functions,
            maps,
            entries,
            files,
            entry,
            division,
            reads_queues,
            schema,
            trace_points,
        })
    }

    /// Returns true if the program is divided ([`p4shield_abi::division`]).
    #[must_use]
    pub const fn is_divided(&self) -> bool {
        self.division.is_some() || self.reads_queues
    }

    /// Returns true if the program reads how long packets waited in queues.
    #[must_use]
    pub const fn reads_queues(&self) -> bool {
        self.reads_queues
    }

    /// Checks that the program judges a packet once and makes no copies, as all but switches require.
    ///
    /// # Errors
    /// If the program makes copies of packets, or judges one several times.
    pub fn runs_once(&self) -> Result<(), ObjectError> {
        let Some(sections::Division { what, place }) = self.division.clone() else { return Ok(()) };
        Err(ObjectError::Divided { what, place })
    }

    /// Returns the unchecked bytes of the program's schema ([`p4shield_abi::schema::Schema`]), if the object
    /// has one.
    #[must_use]
    pub fn schema(&self) -> Option<&[u8]> {
        self.schema.as_deref()
    }

    /// Returns the unchecked bytes of the trace points, if the program was compiled for tracing
    /// ([`p4shield_abi::trace`]).
    #[must_use]
    pub fn trace_points(&self) -> Option<&[u8]> {
        self.trace_points.as_deref()
    }

    /// Sets the name for error messages, usually the file name.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Returns name and definition of each map, in order of definition.
    pub fn maps(&self) -> impl Iterator<Item = (&str, &MapDefinition)> {
        self.maps.iter().map(|m| (m.name.as_str(), &m.definition))
    }

    /// Returns the names of the functions, in code order.
    pub fn functions(&self) -> impl Iterator<Item = &str> {
        self.functions.iter().map(|f| f.name.as_str())
    }
}

/// A code section with its instructions. Lists of them are sorted by index.
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

/// Returns the entry: the function with the entry's name in the program section, or the first function.
fn entry(file: &Elf<'_>, functions: &[Function]) -> Option<(usize, bool)> {
    let section = file.section_by_name(PROGRAM_SECTION)?.index();
    let mut there = functions.iter().enumerate().filter(|(_, f)| f.section == section);
    let named = there.clone().find(|(_, f)| f.name == ENTRY_SYMBOL);
    named.map(|(i, _)| (i, true)).or_else(|| there.next().map(|(i, _)| (i, false)))
}
