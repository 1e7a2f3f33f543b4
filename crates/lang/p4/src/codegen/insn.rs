//! eBPF instructions (RFC 9669).

use crate::ir::MapId;
use crate::lexer::Name;

/// A relocation for the linker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reloc {
    None,
    /// The address of a map.
    Map(MapId),
    /// A function of another object.
    Function(Name),
}

/// One instruction. A 64-bit constant is a single one, although it takes two slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Insn {
    pub(crate) code: u8,
    pub(crate) dst: u8,
    pub(crate) src: u8,
    /// For jumps: in elements of the instruction list, not in slots, until the object is written.
    pub(crate) offset: i32,
    /// All 64 bits for a 64-bit constant, otherwise the lowest 32.
    pub(crate) imm: u64,
    pub(crate) reloc: Reloc,
}

pub(crate) const CLASS_LD: u8 = 0;
pub(crate) const CLASS_LDX: u8 = 1;
pub(crate) const CLASS_ST: u8 = 2;
pub(crate) const CLASS_STX: u8 = 3;
pub(crate) const CLASS_ALU: u8 = 4;
pub(crate) const CLASS_JMP: u8 = 5;
pub(crate) const CLASS_JMP32: u8 = 6;
pub(crate) const CLASS_ALU64: u8 = 7;

/// The source operand is a register.
pub(crate) const X: u8 = 8;

pub(crate) const ADD: u8 = 0x00;
pub(crate) const SUB: u8 = 0x10;
pub(crate) const MUL: u8 = 0x20;
pub(crate) const DIV: u8 = 0x30;
pub(crate) const OR: u8 = 0x40;
pub(crate) const AND: u8 = 0x50;
pub(crate) const LSH: u8 = 0x60;
pub(crate) const RSH: u8 = 0x70;
pub(crate) const MOD: u8 = 0x90;
pub(crate) const XOR: u8 = 0xa0;
pub(crate) const MOV: u8 = 0xb0;
pub(crate) const ARSH: u8 = 0xc0;
pub(crate) const END: u8 = 0xd0;

pub(crate) const JA: u8 = 0x00;
pub(crate) const JEQ: u8 = 0x10;
pub(crate) const JGT: u8 = 0x20;
pub(crate) const JGE: u8 = 0x30;
pub(crate) const JSET: u8 = 0x40;
pub(crate) const JNE: u8 = 0x50;
pub(crate) const JSGT: u8 = 0x60;
pub(crate) const JSGE: u8 = 0x70;
pub(crate) const CALL: u8 = 0x80;
pub(crate) const EXIT: u8 = 0x90;
pub(crate) const JLT: u8 = 0xa0;
pub(crate) const JLE: u8 = 0xb0;
pub(crate) const JSLT: u8 = 0xc0;
pub(crate) const JSLE: u8 = 0xd0;

/// The frame pointer.
pub(crate) const FP: u8 = 10;

/// The control flow behind an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ControlFlow {
    Next,
    Jump,
    Branch,
    Exit,
}

/// Returns the code for a memory access of this many bytes.
const fn size_code(bytes: u8) -> u8 {
    match bytes {
        1 => 0x10,
        2 => 0x08,
        4 => 0x00,
        _ => 0x18,
    }
}

impl Insn {
    const fn new(code: u8, dst: u8, src: u8, offset: i32, imm: u64) -> Self {
        Self { code, dst, src, offset, imm, reloc: Reloc::None }
    }

    pub(crate) const fn alu_reg(op: u8, wide: bool, dst: u8, src: u8) -> Self {
        Self::new(op | X | if wide { CLASS_ALU64 } else { CLASS_ALU }, dst, src, 0, 0)
    }

    pub(crate) const fn alu_imm(op: u8, wide: bool, dst: u8, imm: i32) -> Self {
        Self::new(op | if wide { CLASS_ALU64 } else { CLASS_ALU }, dst, 0, 0, imm.cast_unsigned() as u64)
    }

    /// Converts to big-endian and clears the upper bits.
    pub(crate) const fn swap(bytes: u8, dst: u8) -> Self {
        Self::new(END | X | CLASS_ALU, dst, 0, 0, bytes as u64 * 8)
    }

    pub(crate) const fn constant64(dst: u8, imm: u64) -> Self {
        Self::new(CLASS_LD | 0x18, dst, 0, 0, imm)
    }

    pub(crate) const fn load(bytes: u8, dst: u8, base: u8, offset: i32) -> Self {
        Self::new(CLASS_LDX | 0x60 | size_code(bytes), dst, base, offset, 0)
    }

    pub(crate) const fn store_reg(bytes: u8, base: u8, offset: i32, src: u8) -> Self {
        Self::new(CLASS_STX | 0x60 | size_code(bytes), base, src, offset, 0)
    }

    pub(crate) const fn store_imm(bytes: u8, base: u8, offset: i32, imm: i32) -> Self {
        Self::new(CLASS_ST | 0x60 | size_code(bytes), base, 0, offset, imm.cast_unsigned() as u64)
    }

    pub(crate) const fn jump(to: i32) -> Self {
        Self::new(JA | CLASS_JMP, 0, 0, to, 0)
    }

    pub(crate) const fn branch_reg(op: u8, wide: bool, dst: u8, src: u8, to: i32) -> Self {
        Self::new(op | X | if wide { CLASS_JMP } else { CLASS_JMP32 }, dst, src, to, 0)
    }

    pub(crate) const fn branch_imm(op: u8, wide: bool, dst: u8, imm: i32, to: i32) -> Self {
        Self::new(op | if wide { CLASS_JMP } else { CLASS_JMP32 }, dst, 0, to, imm.cast_unsigned() as u64)
    }

    pub(crate) const fn helper(id: u32) -> Self {
        Self::new(CALL | CLASS_JMP, 0, 0, 0, id as u64)
    }

    /// A call of a function in another object; source register 1 marks it for the linker.
    pub(crate) fn call(name: Name) -> Self {
        let insn = Self::new(CALL | CLASS_JMP, 0, 1, 0, 0xffff_ffff);
        Self { reloc: Reloc::Function(name), ..insn }
    }

    pub(crate) fn map(dst: u8, map: MapId) -> Self {
        let insn = Self::constant64(dst, 0);
        Self { reloc: Reloc::Map(map), ..insn }
    }

    pub(crate) const fn exit() -> Self {
        Self::new(EXIT | CLASS_JMP, 0, 0, 0, 0)
    }

    pub(crate) const fn class(&self) -> u8 {
        self.code & 7
    }

    /// Returns the operation of an ALU or jump instruction.
    pub(crate) const fn op(&self) -> u8 {
        self.code & 0xf0
    }

    pub(crate) const fn is_constant64(&self) -> bool {
        self.code == CLASS_LD | 0x18
    }

    /// Returns the number of 8-byte slots.
    pub(crate) const fn slots(&self) -> usize {
        if self.is_constant64() { 2 } else { 1 }
    }

    pub(crate) const fn flow(&self) -> ControlFlow {
        match (self.class(), self.op()) {
            (CLASS_JMP, JA) => ControlFlow::Jump,
            (CLASS_JMP, CALL) => ControlFlow::Next,
            (CLASS_JMP, EXIT) => ControlFlow::Exit,
            (CLASS_JMP | CLASS_JMP32, _) => ControlFlow::Branch,
            _ => ControlFlow::Next,
        }
    }

    /// Whether it has a target.
    pub(crate) const fn jumps(&self) -> bool {
        matches!(self.flow(), ControlFlow::Jump | ControlFlow::Branch)
    }

    /// Returns the index of the target of a jump at index `at`.
    pub(crate) fn target(&self, at: usize) -> usize {
        (at as i64 + 1 + i64::from(self.offset)).max(0) as usize
    }

    /// Encodes the instruction with a jump offset in slots.
    pub(crate) fn encode(&self, offset: i16, out: &mut Vec<u8>) {
        let imm = self.imm as u32;
        out.push(self.code);
        // The loader marks map references by a pseudo source register; like clang, leave it 0.
        out.push(self.dst | self.src << 4);
        out.extend(offset.to_le_bytes());
        out.extend(imm.to_le_bytes());
        if self.is_constant64() {
            out.extend([0; 4]);
            out.extend(((self.imm >> 32) as u32).to_le_bytes());
        }
    }
}
