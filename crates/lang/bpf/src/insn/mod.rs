//! eBPF instructions: raw slots ([`Insn`]), operations ([`Op`]) and their text.
//!
//! The structural check, the linker, the interpreter and the JIT all use the same decoder, so they agree
//! on the instructions and on their fields.

mod all;
pub mod opcode;

mod decode;
mod disasm;
mod encode;

pub use decode::{DecodeError, decode};

use std::fmt;

/// Size of an instruction slot in bytes.
pub const INSN_SIZE: usize = 8;

/// A raw instruction slot with the fields of RFC 9669, section 3. A wide instruction has two slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Insn {
    /// Opcode, see [`opcode`].
    pub code: u8,
    /// Destination register as encoded, 0 to 15; [`decode()`] refuses more than 10.
    pub dst: u8,
    /// Source register as encoded, 0 to 15, or a pseudo source.
    pub src: u8,
    /// Offset.
    pub off: i16,
    /// Immediate.
    pub imm: i32,
}

impl Insn {
    /// Parses a slot from little-endian bytes. Any bytes are a slot.
    #[must_use]
    pub const fn from_bytes(b: [u8; INSN_SIZE]) -> Self {
        Self {
            code: b[0],
            dst: b[1] & 0x0f,
            src: b[1] >> 4,
            off: i16::from_le_bytes([b[2], b[3]]),
            imm: i32::from_le_bytes([b[4], b[5], b[6], b[7]]),
        }
    }

    /// Returns the little-endian bytes of the slot.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; INSN_SIZE] {
        let off = self.off.to_le_bytes();
        let imm = self.imm.to_le_bytes();
        [self.code, self.dst & 0x0f | self.src << 4, off[0], off[1], imm[0], imm[1], imm[2], imm[3]]
    }

    /// Returns whether this is the first slot of a wide instruction.
    #[must_use]
    pub const fn is_wide(self) -> bool {
        self.code == opcode::LDDW
    }

    /// Returns whether this is a call of a function of the program.
    #[must_use]
    pub const fn is_local_call(self) -> bool {
        self.code == opcode::JMP | opcode::CALL && self.src == opcode::PSEUDO_CALL
    }

    /// Returns the map index, if this is the first slot of a map reference.
    #[must_use]
    pub const fn map_reference(self) -> Option<i32> {
        if self.is_wide() && self.src == opcode::PSEUDO_MAP { Some(self.imm) } else { None }
    }
}

/// A valid register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reg(u8);

impl Reg {
    /// Number of registers, R0 to R10.
    pub const COUNT: usize = 11;
    /// Return value.
    pub const R0: Self = Self(0);
    /// First argument.
    pub const R1: Self = Self(1);
    /// Frame pointer, read-only: the address after the function's stack frame.
    pub const FRAME: Self = Self(10);

    /// Returns register `n`; `None` if it does not exist.
    #[must_use]
    pub const fn new(n: u8) -> Option<Self> {
        if (n as usize) < Self::COUNT { Some(Self(n)) } else { None }
    }

    /// Returns the number of the register.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Returns the number of the register as an index of an array of [`Reg::COUNT`] elements.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Reg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}", self.0)
    }
}

/// Operand width of a memory access, a swap or a sign extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Width {
    /// One byte.
    B1,
    /// Two bytes.
    B2,
    /// Four bytes.
    B4,
    /// Eight bytes.
    B8,
}

impl Width {
    /// Returns the width in bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::B1 => 1,
            Self::B2 => 2,
            Self::B4 => 4,
            Self::B8 => 8,
        }
    }

    /// Returns the width in bits.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.bytes() as u32 * 8
    }
}

/// Second operand of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// A register.
    Reg(Reg),
    /// The immediate, sign-extended to the operation's width.
    Imm(i32),
}

/// Arithmetic operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Alu {
    /// Wrapping addition.
    Add,
    /// Wrapping subtraction.
    Sub,
    /// Wrapping multiplication.
    Mul,
    /// Unsigned division; by zero gives zero.
    Div,
    /// Signed division that truncates; by zero gives zero, the smallest value by -1 gives itself.
    SDiv,
    /// Bitwise or.
    Or,
    /// Bitwise and.
    And,
    /// Shift left by the operand modulo the width.
    Lsh,
    /// Logical shift right by the operand modulo the width.
    Rsh,
    /// Negation of the destination.
    Neg,
    /// Unsigned remainder; by zero leaves the destination.
    Mod,
    /// Signed remainder with the dividend's sign; by zero leaves the destination, the smallest value by -1
    /// gives zero.
    SMod,
    /// Bitwise exclusive or.
    Xor,
    /// Copy.
    Mov,
    /// Arithmetic shift right by the operand modulo the width.
    Arsh,
}

/// Byte swaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Swap {
    /// To little-endian: truncates on our little-endian hosts.
    ToLe,
    /// To big-endian: swaps and truncates on our little-endian hosts.
    ToBe,
    /// Always swaps, and truncates.
    Always,
}

/// Branch conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cond {
    /// `==`
    Eq,
    /// `!=`
    Ne,
    /// `&`
    Set,
    /// `>`, unsigned.
    Gt,
    /// `>=`, unsigned.
    Ge,
    /// `<`, unsigned.
    Lt,
    /// `<=`, unsigned.
    Le,
    /// `>`, signed.
    Sgt,
    /// `>=`, signed.
    Sge,
    /// `<`, signed.
    Slt,
    /// `<=`, signed.
    Sle,
}

/// Atomic operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Atomic {
    /// Addition.
    Add,
    /// Bitwise or.
    Or,
    /// Bitwise and.
    And,
    /// Bitwise exclusive or.
    Xor,
    /// Exchange; always fetches.
    Xchg,
    /// Compares with `R0`, stores the source if equal, and returns the old value in `R0`; always fetches.
    CmpXchg,
}

/// An operation. `wide` selects 64 bits; a 32-bit operation clears the upper half of its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// `dst = dst op src`
    Alu {
        /// Operation.
        op: Alu,
        /// 64-bit.
        wide: bool,
        /// Destination.
        dst: Reg,
        /// Second operand; for [`Alu::Neg`] `Imm(0)`.
        src: Source,
    },
    /// `dst = sign_extend(src)`
    MovSx {
        /// Extends to 64 bits instead of 32.
        wide: bool,
        /// Destination.
        dst: Reg,
        /// Source.
        src: Reg,
        /// Width of the source.
        from: Width,
    },
    /// `dst = swap(dst)`
    Swap {
        /// Direction of the swap.
        kind: Swap,
        /// Register.
        dst: Reg,
        /// Width, two bytes or more.
        width: Width,
    },
    /// `dst = value`; two slots.
    LoadImm {
        /// Destination.
        dst: Reg,
        /// Value.
        value: u64,
    },
    /// `dst = map`; two slots.
    LoadMap {
        /// Destination.
        dst: Reg,
        /// Index of the map in the linked program.
        map: u32,
    },
    /// `dst = *(src + off)`
    Load {
        /// Destination.
        dst: Reg,
        /// Base.
        src: Reg,
        /// Offset in bytes.
        off: i16,
        /// Width of the access.
        width: Width,
        /// Sign-extends instead of zero-extending.
        signed: bool,
    },
    /// `*(dst + off) = src`
    Store {
        /// Base.
        dst: Reg,
        /// Offset in bytes.
        off: i16,
        /// Width of the access.
        width: Width,
        /// Stored value.
        src: Source,
    },
    /// `*(dst + off) op= src`
    Atomic {
        /// Operation.
        op: Atomic,
        /// Eight bytes instead of four.
        wide: bool,
        /// Base.
        dst: Reg,
        /// Operand.
        src: Reg,
        /// Offset in bytes.
        off: i16,
        /// Returns the old value in `src` (in `R0` for [`Atomic::CmpXchg`]).
        fetch: bool,
    },
    /// Jumps by `off` slots from the next instruction.
    Jump {
        /// Distance in slots.
        off: i32,
    },
    /// Jumps by `off` slots from the next instruction if `dst cond src`.
    Branch {
        /// Condition.
        cond: Cond,
        /// Compares 64 bits.
        wide: bool,
        /// First operand.
        dst: Reg,
        /// Second operand.
        src: Source,
        /// Distance in slots.
        off: i16,
    },
    /// Calls a helper, see [`p4shield_abi::helper`].
    Call {
        /// Number of the helper.
        helper: u32,
    },
    /// Calls a function of the program, `off` slots from the next instruction.
    CallLocal {
        /// Distance in slots.
        off: i32,
    },
    /// Returns from the function, or from the program.
    Exit,
}

impl Op {
    /// Returns the number of slots: 2 for wide instructions, else 1.
    #[must_use]
    pub const fn slots(&self) -> usize {
        match self {
            Self::LoadImm { .. } | Self::LoadMap { .. } => 2,
            _ => 1,
        }
    }
}
