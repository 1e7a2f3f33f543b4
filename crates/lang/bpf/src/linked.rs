//! A linked program: one instruction stream with its maps, and nothing left to resolve.
//!
//! It is what the verifier judges, what the digest names and what the engine loads. Within it a map reference is an
//! `lddw` with pseudo source 1 whose immediate is an index into [`Linked::maps`] (Linux: a file descriptor), and a
//! call of a function is a call with pseudo source 1 whose immediate is the distance in slots.

use p4shield_abi::map::MapDefinition;
use p4shield_abi::object::LineRecord;
use sha2::{Digest as _, Sha256};

use crate::insn::{Alu, Insn, Op, Reg, Source, decode};

/// The most slots of a linked program. PREVAIL's time grows with the square of a program; Linux's own limit for
/// unprivileged programs is 4096, uBPF's 65535.
pub const MAX_SLOTS: usize = 65_535;

/// A map by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    /// Its symbol in the object, for control access.
    pub name: String,
    /// Type and sizes.
    pub definition: MapDefinition,
}

/// A map entry to install at load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Index into [`Linked::maps`].
    pub map: u32,
    /// As many bytes as the map's [`MapDefinition::entry_key_size`].
    pub key: Vec<u8>,
    /// `value_size` bytes of the map.
    pub value: Vec<u8>,
}

/// A function within the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subprogram {
    /// Its symbol.
    pub name: String,
    /// First slot.
    pub start: usize,
    /// Slot behind the last.
    pub end: usize,
}

/// Where in the source an instruction comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location<'a> {
    /// File, as the compiler named it.
    pub file: &'a str,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
}

/// From instructions to source lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineTable {
    /// Names of the files.
    pub files: Vec<String>,
    /// Sorted by instruction, counted in slots of the linked stream. A record with line 0 says that nothing is
    /// known from here on.
    pub records: Vec<LineRecord>,
}

impl LineTable {
    /// Where the instruction at `slot` comes from, if that is known.
    #[must_use]
    pub fn find(&self, slot: usize) -> Option<Location<'_>> {
        let after = self.records.partition_point(|r| r.instruction as usize <= slot);
        let r = self.records.get(after.checked_sub(1)?)?;
        let file = self.files.get(r.file as usize)?;
        (r.line != 0).then_some(Location { file, line: r.line, column: r.column })
    }
}

/// One instruction stream with its maps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Linked {
    /// The instructions. The entry program comes first.
    pub insns: Vec<Insn>,
    /// The maps, as `lddw` numbers them.
    pub maps: Vec<Map>,
    /// Initial map contents, in the order of installation.
    pub entries: Vec<Entry>,
    /// The functions: sorted by start, without gaps, the first is the entry program and starts at slot 0.
    pub subprograms: Vec<Subprogram>,
    /// Source lines.
    pub lines: LineTable,
}

impl Linked {
    /// A program of these instructions alone: one function, no maps.
    #[must_use]
    pub fn from_insns(insns: Vec<Insn>) -> Self {
        let entry = Subprogram { name: "entry".to_owned(), start: 0, end: insns.len() };
        Self { insns, subprograms: vec![entry], ..Self::default() }
    }

    /// The function that holds `slot`.
    #[must_use]
    pub fn subprogram_at(&self, slot: usize) -> Option<&Subprogram> {
        self.subprograms.iter().find(|s| s.start <= slot && slot < s.end)
    }

    /// The same program, ended with `pass` when control reaches `slot`: what it takes to get there is what a run of the
    /// result takes. So benchmarks tell the phases of a program apart, by the slots where the line table says that they
    /// start.
    ///
    /// `None` for programs of several functions, for slots where no instruction starts, and if the end is too far.
    #[must_use]
    pub fn ending_at(&self, slot: usize) -> Option<Self> {
        let [entry] = self.subprograms.as_slice() else { return None };
        let mut at = 0;
        while at < slot {
            at += decode(&self.insns, at).ok()?.slots();
        }
        let here = decode(&self.insns, slot).ok()?;
        let off = i16::try_from(self.insns.len().checked_sub(at + 1)?).ok()?;
        if at != slot {
            return None;
        }
        let mut ended = self.clone();
        ended.insns[slot] = Op::Jump { off: off.into() }.encode().0;
        if here.slots() == 2 {
            ended.insns[slot + 1] = Op::Exit.encode().0;
        }
        let pass = Op::Alu { op: Alu::Mov, wide: true, dst: Reg::R0, src: Source::Imm(1) };
        ended.insns.extend([pass.encode().0, Op::Exit.encode().0]);
        ended.subprograms[0] = Subprogram { end: ended.insns.len(), ..entry.clone() };
        Some(ended)
    }

    /// The text of the instruction at `slot`.
    #[must_use]
    pub fn text(&self, slot: usize) -> String {
        decode(&self.insns, slot).map_or_else(|e| format!("<{e}>"), |op: Op| op.to_string())
    }

    /// SHA-256 over everything that decides what the program does: instructions, maps with their names, entries and
    /// function boundaries; not the line table, and not the names of functions.
    ///
    /// Every variable part is preceded by its length, so that no two programs have the same canonical form.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        let mut h = Sha256::new();
        h.update(b"p4shield linked program, form 1\0");
        let count = |h: &mut Sha256, n: usize| h.update((n as u64).to_le_bytes());
        count(&mut h, self.insns.len());
        for insn in &self.insns {
            h.update(insn.to_bytes());
        }
        count(&mut h, self.maps.len());
        for map in &self.maps {
            h.update(map.definition.encode());
            count(&mut h, map.name.len());
            h.update(map.name.as_bytes());
        }
        count(&mut h, self.entries.len());
        for entry in &self.entries {
            h.update(entry.map.to_le_bytes());
            count(&mut h, entry.key.len());
            h.update(&entry.key);
            count(&mut h, entry.value.len());
            h.update(&entry.value);
        }
        count(&mut h, self.subprograms.len());
        for sub in &self.subprograms {
            count(&mut h, sub.start);
        }
        h.finalize().into()
    }
}

/// A program that may run: its memory accesses were proven safe. Only the verifier makes one.
#[derive(Clone, Debug)]
pub struct Verified {
    linked: Linked,
}

impl Verified {
    /// For [`crate::verify`] alone, after the proof.
    pub(crate) const fn proven(linked: Linked) -> Self {
        Self { linked }
    }

    /// Takes the program's safety on trust: **for tests, for benchmarks, and for a program of this digest that the verifier
    /// accepted in another process**.
    ///
    /// # Safety
    /// Under the JIT a program that is not safe reads and writes any memory of the process. The caller vouches that
    /// [`crate::verify`] would accept the program.
    #[must_use]
    pub const unsafe fn assume(linked: Linked) -> Self {
        Self { linked }
    }

    /// The program.
    #[must_use]
    pub const fn linked(&self) -> &Linked {
        &self.linked
    }
}
