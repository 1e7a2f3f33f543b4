//! The intermediate representation: one function of basic blocks in SSA form, over values of at most 64 bits.
//!
//! A P4 program has no loops once parsers are unrolled and controls inlined, so the control flow
//! graph has no cycles, and every analysis is one pass in topological order. Integers of width `w`
//! are zero-extended: the bits above `w` are always zero, and every operation wraps around at the
//! width of its result. A wider P4 value is a list of IR values, lowest 64 bits first.
//!
//! `lower` builds the IR with [`builder`], `opt` transforms it, `codegen` translates it to eBPF.

pub(crate) mod builder;
pub(crate) mod graph;
pub(crate) mod print;
mod tree;

use crate::lexer::Name;
use crate::source::Span;
use p4shield_abi::map::MapDefinition;
use std::rc::Rc;

/// The result of an instruction, identified by the instruction's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Val(pub(crate) u32);

/// A basic block, identified by its number. Block 0 is the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Block(pub(crate) u32);

/// A map, identified by its index in [`Function::maps`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct MapId(pub(crate) u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Opnd {
    V(Val),
    C(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Ty {
    /// An unsigned integer of 1 to 64 bits.
    Int(u8),
    /// A pointer into the packet, or to its end.
    Packet,
    /// A pointer to a map's value, or null.
    MapValue,
    /// No result.
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum BinOp {
    Add,
    Sub,
    Mul,
    /// Unsigned; the divisor is never zero.
    Div,
    Mod,
    And,
    Or,
    Xor,
    /// The distance is less than the width.
    Shl,
    Shr,
    /// Arithmetic shift: fills with copies of the sign bit.
    Sar,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Cc {
    Eq,
    Ne,
    Ult,
    Ule,
    Ugt,
    Uge,
    Slt,
    Sle,
    Sgt,
    Sge,
}

impl Cc {
    /// Returns the condition that holds exactly if this one does not.
    pub(crate) const fn negate(self) -> Self {
        match self {
            Self::Eq => Self::Ne,
            Self::Ne => Self::Eq,
            Self::Ult => Self::Uge,
            Self::Ule => Self::Ugt,
            Self::Ugt => Self::Ule,
            Self::Uge => Self::Ult,
            Self::Slt => Self::Sge,
            Self::Sle => Self::Sgt,
            Self::Sgt => Self::Sle,
            Self::Sge => Self::Slt,
        }
    }

    /// Returns the condition for swapped operands.
    pub(crate) const fn swap(self) -> Self {
        match self {
            Self::Eq | Self::Ne => self,
            Self::Ult => Self::Ugt,
            Self::Ule => Self::Uge,
            Self::Ugt => Self::Ult,
            Self::Uge => Self::Ule,
            Self::Slt => Self::Sgt,
            Self::Sle => Self::Sge,
            Self::Sgt => Self::Slt,
            Self::Sge => Self::Sle,
        }
    }

    pub(crate) const fn is_signed(self) -> bool {
        matches!(self, Self::Slt | Self::Sle | Self::Sgt | Self::Sge)
    }

    /// Compares two values of `width` bits.
    pub(crate) fn holds(self, a: u64, b: u64, width: u8) -> bool {
        let shift = 64 - u32::from(width.max(1));
        let (sa, sb) = ((a << shift).cast_signed(), (b << shift).cast_signed());
        match self {
            Self::Eq => a == b,
            Self::Ne => a != b,
            Self::Ult => a < b,
            Self::Ule => a <= b,
            Self::Ugt => a > b,
            Self::Uge => a >= b,
            Self::Slt => sa < sb,
            Self::Sle => sa <= sb,
            Self::Sgt => sa > sb,
            Self::Sge => sa >= sb,
        }
    }
}

/// The position of a field in a header.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FieldSlot {
    pub(crate) name: Name,
    /// Offset in bits from the start of the header.
    pub(crate) offset: u32,
    pub(crate) width: u32,
}

/// The fields of a header, in order.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct HeaderLayout {
    pub(crate) name: Name,
    pub(crate) bytes: u32,
    pub(crate) fields: Vec<FieldSlot>,
}

/// Writes the fields of a header to the packet at `base`; a preceding check ensured the bounds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct WriteBack {
    pub(crate) base: Opnd,
    pub(crate) layout: Rc<HeaderLayout>,
    /// Per field: its value and the packet's current value, in limbs; no `original` if the
    /// latter is unknown.
    pub(crate) fields: Vec<(Vec<Opnd>, Option<Vec<Opnd>>)>,
}

/// One part of a map key on the stack: offset, size in bytes, value.
pub(crate) type KeyPart = (u32, u8, Opnd);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Op {
    /// One value per predecessor.
    Phi(Vec<(Block, Opnd)>),
    Bin(BinOp, Opnd, Opnd),
    /// A comparison of two values of this width.
    Cmp(Cc, Opnd, Opnd, u8),
    /// Swaps the lowest 2, 4 or 8 bytes and clears the others.
    Swap(u8, Opnd),
    /// A field of the context: offset and size.
    Context(i16, u8),
    /// Sets a field of the context.
    SetContext(i16, u8, Opnd),
    /// A pointer plus an offset.
    Offset(Opnd, Opnd),
    /// Whether the `len` bytes from `base` end at or before `end`.
    InBounds {
        base: Opnd,
        len: u32,
        end: Opnd,
    },
    /// Loads bytes of the packet, as a little-endian number.
    Load {
        base: Opnd,
        offset: i32,
        bytes: u8,
    },
    Store {
        base: Opnd,
        offset: i32,
        bytes: u8,
        value: Opnd,
    },
    WriteBack(Box<WriteBack>),
    /// The value in a map, or null. An array yields the same pointer for the same key.
    Lookup {
        map: MapId,
        key: Vec<KeyPart>,
    },
    LoadMap {
        base: Opnd,
        offset: i32,
        bytes: u8,
    },
    StoreMap {
        base: Opnd,
        offset: i32,
        bytes: u8,
        value: Opnd,
    },
    /// A call of an engine helper; the context is the first argument if `context` is set.
    Helper {
        id: u32,
        context: bool,
        args: Vec<Opnd>,
    },
    /// A call of a helper that reads a buffer of this many bytes on the stack; the other
    /// arguments follow its size.
    Buffer {
        id: u32,
        size: u32,
        data: Vec<KeyPart>,
        args: Vec<Opnd>,
    },
    /// A call of the tenant's own function.
    Extern {
        name: Name,
        args: Vec<Opnd>,
    },
    /// The run ends, and another one goes on here. Only between lowering and `opt::suspend`.
    Suspend,
}

/// Calls `$f` with a reference to every operand of an operation, from iterators and boxes that `$iter`
/// and `$unboxed` borrow.
macro_rules! walk_operands {
    ($op:expr, $f:ident, $iter:ident, $unboxed:ident) => {
        match $op {
            Op::Context(..) | Op::Suspend => {}
            Op::Swap(_, a) | Op::SetContext(_, _, a) => $f(a),
            Op::Load { base: a, .. } | Op::LoadMap { base: a, .. } => $f(a),
            Op::Bin(_, a, b)
            | Op::Cmp(_, a, b, _)
            | Op::Offset(a, b)
            | Op::InBounds { base: a, end: b, .. }
            | Op::Store { base: a, value: b, .. }
            | Op::StoreMap { base: a, value: b, .. } => {
                $f(a);
                $f(b);
            }
            Op::WriteBack(w) => {
                let WriteBack { base, fields, .. } = w.$unboxed();
                $f(base);
                for (now, before) in fields {
                    now.$iter().chain(before.$iter().flatten()).for_each(|o| $f(o));
                }
            }
            Op::Phi(ins) => ins.$iter().for_each(|(_, o)| $f(o)),
            Op::Lookup { key, .. } => key.$iter().for_each(|(_, _, o)| $f(o)),
            Op::Buffer { data, args, .. } => {
                data.$iter().for_each(|(_, _, o)| $f(o));
                args.$iter().for_each($f);
            }
            Op::Helper { args, .. } | Op::Extern { args, .. } => args.$iter().for_each($f),
        }
    };
}

impl Op {
    /// Whether it is a call that clobbers the caller-saved registers.
    pub(crate) const fn is_call(&self) -> bool {
        matches!(self, Self::Lookup { .. } | Self::Helper { .. } | Self::Buffer { .. } | Self::Extern { .. })
    }

    /// Whether it must stay even if its result is unused.
    pub(crate) const fn has_effect(&self) -> bool {
        matches!(
            self,
            Self::SetContext(..)
                | Self::Store { .. }
                | Self::WriteBack(_)
                | Self::StoreMap { .. }
                | Self::Helper { .. }
                | Self::Extern { .. }
                | Self::Suspend
        )
    }

    /// Whether it changes or moves the packet.
    pub(crate) const fn changes_packet(&self) -> bool {
        use p4shield_abi::helper::{ADJUST_HEAD, ADJUST_TAIL};
        match self {
            Self::Store { .. } | Self::WriteBack(_) => true,
            Self::Helper { id, .. } => *id == ADJUST_HEAD || *id == ADJUST_TAIL,
            _ => false,
        }
    }

    /// Whether it uses a value as operand.
    pub(crate) fn uses(&self, v: Val) -> bool {
        let mut found = false;
        self.visit(&mut |o| found |= o == Opnd::V(v));
        found
    }

    /// Calls `f` with every operand, in the order of [`Op::for_each_operand`].
    pub(crate) fn visit(&self, f: &mut dyn FnMut(Opnd)) {
        let mut f = |o: &Opnd| f(*o);
        walk_operands!(self, f, iter, as_ref);
    }

    /// Calls `f` with every operand that is not a constant.
    pub(crate) fn visit_values(&self, f: &mut dyn FnMut(Val)) {
        self.visit(&mut |o| {
            if let Opnd::V(v) = o {
                f(v);
            }
        });
    }

    /// Calls `f` with every operand.
    pub(crate) fn for_each_operand(&mut self, f: &mut dyn FnMut(&mut Opnd)) {
        walk_operands!(self, f, iter_mut, as_mut);
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Term {
    Jump(Block),
    /// A branch on a value of one bit: targets for 1 and 0.
    Branch(Opnd, Block, Block),
    /// Returns the verdict.
    Return(Opnd),
    /// An unfinished or removed block.
    None,
}

impl Term {
    pub(crate) fn successors(&self) -> Vec<Block> {
        match self {
            Self::Jump(b) => vec![*b],
            Self::Branch(_, t, f) => vec![*t, *f],
            Self::Return(_) | Self::None => Vec::new(),
        }
    }

    pub(crate) fn for_each_successor(&mut self, mut f: impl FnMut(&mut Block)) {
        match self {
            Self::Jump(b) => f(b),
            Self::Branch(_, t, e) => {
                f(t);
                f(e);
            }
            Self::Return(_) | Self::None => {}
        }
    }

    /// Replaces one successor by another.
    pub(crate) fn redirect(&mut self, from: Block, to: Block) {
        self.for_each_successor(|s| *s = if *s == from { to } else { *s });
    }

    pub(crate) const fn operand(&self) -> Option<Opnd> {
        match self {
            Self::Branch(o, ..) | Self::Return(o) => Some(*o),
            Self::Jump(_) | Self::None => None,
        }
    }

    pub(crate) const fn operand_mut(&mut self) -> Option<&mut Opnd> {
        match self {
            Self::Branch(o, ..) | Self::Return(o) => Some(o),
            Self::Jump(_) | Self::None => None,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Inst {
    pub(crate) op: Op,
    pub(crate) ty: Ty,
    pub(crate) span: Span,
}

#[derive(Clone, Debug)]
pub(crate) struct BlockData {
    pub(crate) phis: Vec<Val>,
    pub(crate) insts: Vec<Val>,
    pub(crate) term: Term,
    pub(crate) span: Span,
    /// A label for readers of the IR.
    pub(crate) label: Name,
}

/// A map of the program.
#[derive(Clone, Debug)]
pub(crate) struct Map {
    /// A C identifier.
    pub(crate) name: String,
    pub(crate) definition: MapDefinition,
    /// Keys and values that are installed at load.
    pub(crate) entries: Vec<(Vec<u8>, Vec<u8>)>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Function {
    pub(crate) insts: Vec<Inst>,
    pub(crate) blocks: Vec<BlockData>,
    pub(crate) maps: Vec<Map>,
}

impl Function {
    pub(crate) fn inst(&self, v: Val) -> &Inst {
        &self.insts[v.0 as usize]
    }

    pub(crate) fn inst_mut(&mut self, v: Val) -> &mut Inst {
        &mut self.insts[v.0 as usize]
    }

    pub(crate) fn block(&self, b: Block) -> &BlockData {
        &self.blocks[b.0 as usize]
    }

    pub(crate) fn block_mut(&mut self, b: Block) -> &mut BlockData {
        &mut self.blocks[b.0 as usize]
    }

    /// Creates an instruction that is not in a block yet.
    pub(crate) fn make(&mut self, op: Op, ty: Ty, span: Span) -> Val {
        self.insts.push(Inst { op, ty, span });
        Val(self.insts.len() as u32 - 1)
    }

    pub(crate) fn add_block(&mut self, label: &str, span: Span) -> Block {
        let data =
            BlockData { phis: Vec::new(), insts: Vec::new(), term: Term::None, span, label: label.into() };
        self.blocks.push(data);
        Block(self.blocks.len() as u32 - 1)
    }

    /// Returns the operands of a phi by predecessor; none for another operation.
    pub(crate) fn phi(&self, v: Val) -> &[(Block, Opnd)] {
        if let Op::Phi(ins) = &self.inst(v).op { ins } else { &[] }
    }

    /// Returns the operand of a phi for a predecessor.
    pub(crate) fn phi_operand(&self, v: Val, from: Block) -> Option<Opnd> {
        self.phi(v).iter().find(|(p, _)| *p == from).map(|(_, o)| *o)
    }

    /// Calls `f` with the operands of each phi of a block.
    pub(crate) fn for_each_phi(&mut self, b: Block, mut f: impl FnMut(Val, &mut Vec<(Block, Opnd)>)) {
        for v in self.block(b).phis.clone() {
            if let Op::Phi(ins) = &mut self.inst_mut(v).op {
                f(v, ins);
            }
        }
    }

    /// Returns the operation that computes an operand, unless it is a constant.
    pub(crate) fn op_of(&self, o: Opnd) -> Option<&Op> {
        match o {
            Opnd::V(v) => Some(&self.inst(v).op),
            Opnd::C(_) => None,
        }
    }

    /// Returns an upper bound of an integer operand's width in bits.
    pub(crate) fn bits(&self, o: Opnd) -> u8 {
        match o {
            Opnd::C(c) => 64 - c.leading_zeros() as u8,
            Opnd::V(v) => match self.inst(v).ty {
                Ty::Int(w) => w,
                _ => 64,
            },
        }
    }
}

/// Returns a mask of the lowest `w` bits.
pub(crate) const fn mask(w: u8) -> u64 {
    if w >= 64 { u64::MAX } else { (1 << w) - 1 }
}
