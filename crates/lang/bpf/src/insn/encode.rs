//! Encoding of [`Op`] to raw slots.

use super::{Alu, Atomic, Cond, Insn, Op, Reg, Source, Swap, Width, opcode as o};

impl Op {
    /// Returns the one or two raw slots. [`super::decode()`] returns `self` for them if `self` is a valid
    /// instruction (no swap of one byte, no write to R10 and so on).
    #[must_use]
    pub fn encode(&self) -> (Insn, Option<Insn>) {
        match *self {
            Self::LoadImm { dst, value } => {
                let low = Insn { code: o::LDDW, dst: dst.0, imm: value as i32, ..Insn::default() };
                (low, Some(Insn { imm: (value >> 32) as i32, ..Insn::default() }))
            }
            Self::LoadMap { dst, map } => {
                let low = Insn { code: o::LDDW, dst: dst.0, src: o::PSEUDO_MAP, off: 0, imm: map as i32 };
                (low, Some(Insn::default()))
            }
            _ => (self.encode_narrow(), None),
        }
    }

    fn encode_narrow(&self) -> Insn {
        match *self {
            Self::Alu { op, wide, dst, src } => alu(op, wide, dst, src),
            Self::MovSx { wide, dst, src, from } => Insn {
                code: alu_class(wide) | o::MOV | o::X,
                dst: dst.0,
                src: src.0,
                off: from.bits() as i16,
                imm: 0,
            },
            Self::Swap { kind, dst, width } => {
                let code = match kind {
                    Swap::ToLe => o::ALU | o::END,
                    Swap::ToBe => o::ALU | o::END | o::X,
                    Swap::Always => o::ALU64 | o::END,
                };
                Insn { code, dst: dst.0, src: 0, off: 0, imm: width.bits() as i32 }
            }
            Self::Load { dst, src, off, width, signed } => {
                let mode = if signed { o::MEMSX } else { o::MEM };
                Insn { code: o::LDX | mode | size(width), dst: dst.0, src: src.0, off, imm: 0 }
            }
            Self::Store { dst, off, width, src } => {
                let (class, src, imm) = match src {
                    Source::Reg(r) => (o::STX, r.0, 0),
                    Source::Imm(imm) => (o::ST, 0, imm),
                };
                Insn { code: class | o::MEM | size(width), dst: dst.0, src, off, imm }
            }
            Self::Atomic { op, wide, dst, src, off, fetch } => {
                let size = if wide { o::DW } else { o::W };
                let imm = atomic(op) | if fetch { o::FETCH } else { 0 };
                Insn { code: o::STX | o::ATOMIC | size, dst: dst.0, src: src.0, off, imm }
            }
            Self::Jump { off } => match i16::try_from(off) {
                Ok(off) => Insn { code: o::JMP | o::JA, off, ..Insn::default() },
                Err(_) => Insn { code: o::JMP32 | o::JA, imm: off, ..Insn::default() },
            },
            Self::Branch { cond, wide, dst, src, off } => {
                let class = if wide { o::JMP } else { o::JMP32 };
                let (x, src, imm) = operand(src);
                Insn { code: class | condition(cond) | x, dst: dst.0, src, off, imm }
            }
            Self::Call { helper } => Insn { code: o::JMP | o::CALL, imm: helper as i32, ..Insn::default() },
            Self::CallLocal { off } => {
                Insn { code: o::JMP | o::CALL, src: o::PSEUDO_CALL, imm: off, ..Insn::default() }
            }
            Self::LoadImm { .. } | Self::LoadMap { .. } | Self::Exit => {
                Insn { code: o::JMP | o::EXIT, ..Insn::default() }
            }
        }
    }
}

const fn alu_class(wide: bool) -> u8 {
    if wide { o::ALU64 } else { o::ALU }
}

const fn operand(src: Source) -> (u8, u8, i32) {
    match src {
        Source::Reg(r) => (o::X, r.0, 0),
        Source::Imm(imm) => (o::K, 0, imm),
    }
}

fn alu(op: Alu, wide: bool, dst: Reg, src: Source) -> Insn {
    let (code, off) = match op {
        Alu::Add => (o::ADD, 0),
        Alu::Sub => (o::SUB, 0),
        Alu::Mul => (o::MUL, 0),
        Alu::Div => (o::DIV, 0),
        Alu::SDiv => (o::DIV, 1),
        Alu::Or => (o::OR, 0),
        Alu::And => (o::AND, 0),
        Alu::Lsh => (o::LSH, 0),
        Alu::Rsh => (o::RSH, 0),
        Alu::Neg => (o::NEG, 0),
        Alu::Mod => (o::MOD, 0),
        Alu::SMod => (o::MOD, 1),
        Alu::Xor => (o::XOR, 0),
        Alu::Mov => (o::MOV, 0),
        Alu::Arsh => (o::ARSH, 0),
    };
    let (x, src, imm) = operand(src);
    Insn { code: alu_class(wide) | code | x, dst: dst.0, src, off, imm }
}

const fn size(width: Width) -> u8 {
    match width {
        Width::B1 => o::B,
        Width::B2 => o::H,
        Width::B4 => o::W,
        Width::B8 => o::DW,
    }
}

const fn atomic(op: Atomic) -> i32 {
    match op {
        Atomic::Add => o::ADD as i32,
        Atomic::Or => o::OR as i32,
        Atomic::And => o::AND as i32,
        Atomic::Xor => o::XOR as i32,
        Atomic::Xchg => o::XCHG,
        Atomic::CmpXchg => o::CMPXCHG,
    }
}

const fn condition(cond: Cond) -> u8 {
    match cond {
        Cond::Eq => o::JEQ,
        Cond::Ne => o::JNE,
        Cond::Set => o::JSET,
        Cond::Gt => o::JGT,
        Cond::Ge => o::JGE,
        Cond::Lt => o::JLT,
        Cond::Le => o::JLE,
        Cond::Sgt => o::JSGT,
        Cond::Sge => o::JSGE,
        Cond::Slt => o::JSLT,
        Cond::Sle => o::JSLE,
    }
}
