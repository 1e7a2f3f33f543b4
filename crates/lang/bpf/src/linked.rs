//! Linked programs: one instruction stream with its maps and no unresolved reference.
//!
//! The verifier checks a linked program, the digest identifies it and the engine loads it. A map
//! reference is an `lddw` with pseudo source 1 whose immediate is an index into [`Linked::maps`]
//! (Linux uses a file descriptor). A call of a function is a call with pseudo source 1 whose
//! immediate is the distance in slots.

use p4shield_abi::map::MapDefinition;
use p4shield_abi::object::LineRecord;
use sha2::{Digest as _, Sha256};

use crate::insn::{Alu, Insn, Op, Reg, Source, decode};

/// Maximum number of slots of a linked program. PREVAIL's time grows with the square of the program.
/// Linux limits unprivileged programs to 4096 slots, uBPF all programs to 65535.
pub const MAX_SLOTS: usize = 65_535;

/// A named map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    /// Symbol of the map in the object; the control plane uses it as the map's name.
    pub name: String,
    /// Type, sizes and flags.
    pub definition: MapDefinition,
}

/// An initial map entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Index into [`Linked::maps`].
    pub map: u32,
    /// Key of [`MapDefinition::entry_key_size`] bytes.
    pub key: Vec<u8>,
    /// Value of `value_size` bytes.
    pub value: Vec<u8>,
}

/// A function within the instruction stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subprogram {
    /// Its symbol.
    pub name: String,
    /// First slot.
    pub start: usize,
    /// Slot after the last one.
    pub end: usize,
}

/// Source line of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineInfo<'a> {
    /// File name from the compiler.
    pub file: &'a str,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
}

/// Mapping from instructions to source lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineTable {
    /// File names.
    pub files: Vec<String>,
    /// Records sorted by instruction slot of the linked program. From a record with line 0 on, the
    /// source line is unknown.
    pub records: Vec<LineRecord>,
}

impl LineTable {
    /// Returns the source line of the instruction at `slot`, if it is known.
    #[must_use]
    pub fn find(&self, slot: usize) -> Option<LineInfo<'_>> {
        let after = self.records.partition_point(|r| r.instruction as usize <= slot);
        let r = self.records.get(after.checked_sub(1)?)?;
        let file = self.files.get(r.file as usize)?;
        (r.line != 0).then_some(LineInfo { file, line: r.line, column: r.column })
    }
}

/// One instruction stream with its maps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Linked {
    /// The instructions; the entry function comes first.
    pub insns: Vec<Insn>,
    /// The maps, in the order of their `lddw` indexes.
    pub maps: Vec<Map>,
    /// Initial map entries, in the order of installation.
    pub entries: Vec<Entry>,
    /// The functions, sorted by start and without gaps. The first one is the entry and starts at slot 0.
    pub subprograms: Vec<Subprogram>,
    /// Source lines.
    pub lines: LineTable,
}

impl Linked {
    /// Builds a program with one function and no maps.
    #[must_use]
    pub fn from_insns(insns: Vec<Insn>) -> Self {
        let entry = Subprogram { name: "entry".to_owned(), start: 0, end: insns.len() };
        Self { insns, subprograms: vec![entry], ..Self::default() }
    }

    /// Returns the function that contains `slot`.
    #[must_use]
    pub fn subprogram_at(&self, slot: usize) -> Option<&Subprogram> {
        self.subprograms.iter().find(|s| s.start <= slot && slot < s.end)
    }

    /// Returns the same program, changed to return `pass` when control reaches `slot`. Benchmarks use
    /// it to measure the phases of a program, with the slots from the line table.
    ///
    /// Returns `None` for a program with several functions, for a slot where no instruction starts, and
    /// if the end of the program is out of reach of a jump.
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

    /// Reports whether an instruction calls this helper (`p4shield_abi::helper`).
    #[must_use]
    pub fn calls(&self, helper: u32) -> bool {
        let call = |slot| matches!(decode(&self.insns, slot), Ok(Op::Call { helper: h }) if h == helper);
        (0..self.insns.len()).any(call)
    }

    /// Returns the text of the instruction at `slot`.
    #[must_use]
    pub fn text(&self, slot: usize) -> String {
        decode(&self.insns, slot).map_or_else(|e| format!("<{e}>"), |op: Op| op.to_string())
    }

    /// SHA-256 over everything that affects the program's behaviour: instructions, maps with their
    /// names, entries and function boundaries. The line table and the names of functions are left out.
    ///
    /// The length precedes every part of variable size, so two programs never share a canonical form.
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

/// A program that the verifier accepted: its memory accesses are proven safe.
#[derive(Clone, Debug)]
pub struct Verified {
    linked: Linked,
}

impl Verified {
    /// Marks a program as verified. Only [`crate::verify`] calls this, after the proof.
    pub(crate) const fn proven(linked: Linked) -> Self {
        Self { linked }
    }

    /// Marks a program as verified without a proof. **For tests, for benchmarks, and for a program whose
    /// digest the verifier accepted in another process.**
    ///
    /// # Safety
    /// In JIT mode an unsafe program reads and writes any memory of the process. The caller guarantees
    /// that [`crate::verify`] would accept the program.
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
