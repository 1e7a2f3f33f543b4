//! Text of instructions in the syntax of [`crate::asm`], with numeric jump distances.

use std::fmt;

use super::{Alu, Atomic, Cond, Op, Source, Swap, Width};

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reg(r) => r.fmt(f),
            Self::Imm(imm) => imm.fmt(f),
        }
    }
}

const fn suffix(width: Width) -> &'static str {
    match width {
        Width::B1 => "b",
        Width::B2 => "h",
        Width::B4 => "w",
        Width::B8 => "dw",
    }
}

const fn narrow(wide: bool) -> &'static str {
    if wide { "" } else { "32" }
}

impl Alu {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Sub => "sub",
            Self::Mul => "mul",
            Self::Div => "div",
            Self::SDiv => "sdiv",
            Self::Or => "or",
            Self::And => "and",
            Self::Lsh => "lsh",
            Self::Rsh => "rsh",
            Self::Neg => "neg",
            Self::Mod => "mod",
            Self::SMod => "smod",
            Self::Xor => "xor",
            Self::Mov => "mov",
            Self::Arsh => "arsh",
        }
    }
}

impl Cond {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Eq => "jeq",
            Self::Ne => "jne",
            Self::Set => "jset",
            Self::Gt => "jgt",
            Self::Ge => "jge",
            Self::Lt => "jlt",
            Self::Le => "jle",
            Self::Sgt => "jsgt",
            Self::Sge => "jsge",
            Self::Slt => "jslt",
            Self::Sle => "jsle",
        }
    }
}

impl Atomic {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Or => "or",
            Self::And => "and",
            Self::Xor => "xor",
            Self::Xchg => "xchg",
            Self::CmpXchg => "cmpxchg",
        }
    }
}

impl Swap {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::ToLe => "le",
            Self::ToBe => "be",
            Self::Always => "bswap",
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Alu { op: Alu::Neg, wide, dst, .. } => write!(f, "neg{} {dst}", narrow(wide)),
            Self::Alu { op, wide, dst, src } => {
                write!(f, "{}{} {dst}, {src}", op.name(), narrow(wide))
            }
            Self::MovSx { wide, dst, src, from } => {
                write!(f, "movsx{}{} {dst}, {src}", from.bits(), if wide { 64 } else { 32 })
            }
            Self::Swap { kind, dst, width } => write!(f, "{}{} {dst}", kind.name(), width.bits()),
            Self::LoadImm { dst, value } => write!(f, "lddw {dst}, {value:#x}"),
            Self::LoadMap { dst, map } => write!(f, "lddw {dst}, map {map}"),
            Self::Load { dst, src, off, width, signed } => {
                let s = if signed { "s" } else { "" };
                write!(f, "ldx{s}{} {dst}, [{src}{off:+}]", suffix(width))
            }
            Self::Store { dst, off, width, src } => {
                let x = if matches!(src, Source::Reg(_)) { "x" } else { "" };
                write!(f, "st{x}{} [{dst}{off:+}], {src}", suffix(width))
            }
            Self::Atomic { op, wide, dst, src, off, fetch } => {
                let always = matches!(op, Atomic::Xchg | Atomic::CmpXchg);
                let fetch = if fetch && !always { "fetch " } else { "" };
                write!(f, "lock {fetch}{}{} [{dst}{off:+}], {src}", op.name(), narrow(wide))
            }
            Self::Jump { off } => write!(f, "ja {off:+}"),
            Self::Branch { cond, wide, dst, src, off } => {
                write!(f, "{}{} {dst}, {src}, {off:+}", cond.name(), narrow(wide))
            }
            Self::Call { helper } => write!(f, "call {helper}"),
            Self::CallLocal { off } => write!(f, "call local {off:+}"),
            Self::Exit => f.write_str("exit"),
        }
    }
}
