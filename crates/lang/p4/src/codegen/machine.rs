//! Machine instructions over virtual registers.

use crate::ir::{Block, MapId};
use crate::lexer::Name;
use crate::source::Span;
use std::collections::HashSet;

/// A virtual register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Reg(pub(crate) u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Src {
    Reg(Reg),
    Imm(i32),
}

/// The base address of a memory access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    Reg(Reg),
    Frame,
}

/// An argument of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Arg {
    Reg(Reg),
    Imm(u64),
    Map(MapId),
    /// The address of this frame offset.
    Frame(i32),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CallTarget {
    Helper(u32),
    Extern(Name),
}

#[derive(Clone, Debug)]
pub(crate) enum MInst {
    /// `dst = dst op src`; for a move, `dst = src`.
    Alu {
        op: u8,
        wide: bool,
        dst: Reg,
        src: Src,
    },
    Const {
        dst: Reg,
        value: u64,
    },
    Swap {
        bytes: u8,
        dst: Reg,
    },
    Load {
        bytes: u8,
        dst: Reg,
        base: Base,
        offset: i32,
    },
    Store {
        bytes: u8,
        base: Base,
        offset: i32,
        src: Src,
    },
    /// `dst = a cc b`
    Set {
        op: u8,
        wide: bool,
        dst: Reg,
        a: Reg,
        b: Src,
    },
    Call {
        target: CallTarget,
        args: Vec<Arg>,
        dst: Option<Reg>,
    },
    /// Parallel copies.
    Copies(Vec<(Reg, CopySrc)>),
    Branch {
        op: u8,
        wide: bool,
        a: Reg,
        b: Src,
        to: Block,
    },
    Jump(Block),
    Return(Src),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopySrc {
    Reg(Reg),
    Const(u64),
}

/// A block's instructions with their source locations.
#[derive(Debug)]
pub(crate) struct MBlock {
    pub(crate) block: Block,
    pub(crate) insts: Vec<(MInst, Span)>,
}

#[derive(Debug)]
pub(crate) struct Machine {
    /// Blocks in the order of their layout.
    pub(crate) blocks: Vec<MBlock>,
    pub(crate) regs: u32,
    /// The context, which R1 holds on entry.
    pub(crate) context: Reg,
    /// Bytes of the stack frame for map keys.
    pub(crate) key_bytes: u32,
    /// Numbers that no packet access depends on: they may be spilled beyond the stack.
    pub(crate) plain: HashSet<Reg>,
    /// Spill memory beyond the stack.
    pub(crate) spill_memory: Option<SpillMemory>,
}

/// The spill memory of a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpillMemory {
    pub(super) map: MapId,
    /// The virtual register that holds its address.
    pub(super) pointer: Reg,
}

impl MInst {
    /// Calls `f` with every register that the instruction reads.
    pub(crate) fn uses(&self, f: &mut dyn FnMut(Reg)) {
        fn src(s: &Src, f: &mut dyn FnMut(Reg)) {
            if let Src::Reg(r) = s {
                f(*r);
            }
        }
        fn base(b: &Base, f: &mut dyn FnMut(Reg)) {
            if let Base::Reg(r) = b {
                f(*r);
            }
        }
        match self {
            Self::Alu { op, dst, src: s, .. } => {
                if *op != super::insn::MOV {
                    f(*dst);
                }
                src(s, f);
            }
            Self::Swap { dst, .. } => f(*dst),
            Self::Load { base: b, .. } => base(b, f),
            Self::Store { base: b, src: s, .. } => {
                base(b, f);
                src(s, f);
            }
            Self::Set { a, b, .. } | Self::Branch { a, b, .. } => {
                f(*a);
                src(b, f);
            }
            Self::Call { args, .. } => {
                for a in args {
                    if let Arg::Reg(r) = a {
                        f(*r);
                    }
                }
            }
            Self::Copies(cs) => {
                for (_, c) in cs {
                    if let CopySrc::Reg(r) = c {
                        f(*r);
                    }
                }
            }
            Self::Return(s) => src(s, f),
            Self::Const { .. } | Self::Jump(_) => {}
        }
    }

    /// Calls `f` with every register that the instruction writes.
    pub(crate) fn defs(&self, f: &mut dyn FnMut(Reg)) {
        match self {
            Self::Alu { dst, .. }
            | Self::Const { dst, .. }
            | Self::Swap { dst, .. }
            | Self::Load { dst, .. } => f(*dst),
            Self::Set { dst, .. } => f(*dst),
            Self::Call { dst, .. } => {
                if let Some(d) = dst {
                    f(*d);
                }
            }
            Self::Copies(cs) => cs.iter().for_each(|(d, _)| f(*d)),
            Self::Store { .. } | Self::Branch { .. } | Self::Jump(_) | Self::Return(_) => {}
        }
    }

    pub(crate) const fn is_call(&self) -> bool {
        matches!(self, Self::Call { .. })
    }
}
