//! Instruction selection: IR to instructions over virtual registers.

use super::fusion::fused_conditions;
use super::insn::{self, MOV};
use super::machine::{Base, MBlock, MInst, Machine, Reg, Src};
use crate::ir::graph::ControlFlowGraph;
use crate::ir::{BinOp, Block, Function, Op, Opnd, Ty, Val, mask};
use crate::opt::known_max;
use crate::source::Span;
use std::collections::{HashMap, HashSet};

pub(super) struct InstSelector<'a> {
    pub(super) f: &'a Function,
    regs: HashMap<Val, Reg>,
    pub(super) next: u32,
    pub(super) context: Reg,
    /// Conditions that only branches use: they are compared at the branch.
    pub(super) fused: HashSet<Val>,
    pub(super) out: Vec<(MInst, Span)>,
    pub(super) span: Span,
    pub(super) key_bytes: u32,
}

/// Selects instructions for all blocks, in topological order.
pub(super) fn select(f: &Function) -> Machine {
    let g = ControlFlowGraph::new(f);
    let mut s = InstSelector {
        f,
        regs: HashMap::new(),
        next: 1,
        context: Reg(0),
        fused: fused_conditions(f, &g),
        out: Vec::new(),
        span: Span::default(),
        key_bytes: 0,
    };
    let mut blocks = Vec::new();
    for (i, b) in g.order.iter().enumerate() {
        s.block(*b, g.order.get(i + 1).copied());
        blocks.push(MBlock { block: *b, insts: std::mem::take(&mut s.out) });
    }
    let is_int = |v: &Val| matches!(f.inst(*v).ty, Ty::Int(_));
    let bound = packet_distances(f, &g);
    let plain = s.regs.iter().filter(|(v, _)| is_int(v) && !bound.contains(v)).map(|(_, r)| *r).collect();
    Machine { blocks, regs: s.next, context: s.context, key_bytes: s.key_bytes, plain, spill_memory: None }
}

/// Returns the numbers that are added to packet pointers, and all values they depend on.
fn packet_distances(f: &Function, g: &ControlFlowGraph) -> HashSet<Val> {
    let mut open = Vec::new();
    for b in &g.order {
        for v in &f.block(*b).insts {
            if let Op::Offset(_, Opnd::V(by)) = f.inst(*v).op {
                open.push(by);
            }
        }
    }
    let mut found = HashSet::new();
    while let Some(v) = open.pop() {
        if found.insert(v) {
            f.inst(v).op.visit_values(&mut |v| open.push(v));
        }
    }
    found
}

/// Returns a constant as an immediate operand of a 64-bit instruction, which sign-extends it.
pub(super) fn imm64(c: u64) -> Option<i32> {
    i32::try_from(c.cast_signed()).ok()
}

impl InstSelector<'_> {
    pub(super) const fn fresh(&mut self) -> Reg {
        self.next += 1;
        Reg(self.next - 1)
    }

    pub(super) fn push(&mut self, m: MInst) {
        self.out.push((m, self.span));
    }

    pub(super) fn reg_of(&mut self, v: Val) -> Reg {
        if let Some(r) = self.regs.get(&v) {
            return *r;
        }
        let r = self.fresh();
        self.regs.insert(v, r);
        r
    }

    /// Returns a register with the operand.
    pub(super) fn reg(&mut self, o: Opnd) -> Reg {
        match o {
            Opnd::V(v) => self.reg_of(v),
            Opnd::C(c) => {
                let dst = self.fresh();
                self.constant(dst, c);
                dst
            }
        }
    }

    pub(super) fn constant(&mut self, dst: Reg, c: u64) {
        match u32::try_from(c) {
            Ok(n) => self.push(MInst::Alu { op: MOV, wide: false, dst, src: Src::Imm(n.cast_signed()) }),
            Err(_) => match imm64(c) {
                Some(n) => self.push(MInst::Alu { op: MOV, wide: true, dst, src: Src::Imm(n) }),
                None => self.push(MInst::Const { dst, value: c }),
            },
        }
    }

    /// Returns an operand of a 64-bit or 32-bit instruction.
    pub(super) fn src(&mut self, o: Opnd, wide: bool) -> Src {
        match o {
            Opnd::C(c) if wide => imm64(c).map_or_else(|| Src::Reg(self.reg(o)), Src::Imm),
            Opnd::C(c) => Src::Imm((c as u32).cast_signed()),
            Opnd::V(v) => Src::Reg(self.reg_of(v)),
        }
    }

    pub(super) fn alu(&mut self, op: u8, wide: bool, dst: Reg, src: Src) {
        self.push(MInst::Alu { op, wide, dst, src });
    }

    pub(super) fn copy(&mut self, dst: Reg, o: Opnd) {
        match o {
            Opnd::C(c) => self.constant(dst, c),
            Opnd::V(v) => {
                let r = self.reg_of(v);
                self.alu(MOV, true, dst, Src::Reg(r));
            }
        }
    }

    fn block(&mut self, b: Block, next: Option<Block>) {
        for v in &self.f.block(b).insts {
            self.span = self.f.inst(*v).span;
            if !self.fused.contains(v) {
                self.inst(*v);
            }
        }
        self.span = self.f.block(b).insts.last().map_or(self.f.block(b).span, |v| self.f.inst(*v).span);
        self.terminator(b, next);
    }

    fn inst(&mut self, v: Val) {
        let inst = self.f.inst(v);
        match &inst.op {
            Op::Phi(_) | Op::WriteBack(_) | Op::Suspend => {}
            Op::Bin(op, a, b) => {
                let Ty::Int(w) = inst.ty else { return };
                let dst = self.reg_of(v);
                self.binary(*op, dst, *a, *b, w);
            }
            Op::Cmp(cc, a, b, w) => {
                let dst = self.reg_of(v);
                let (op, wide, a, b) = self.comparison(*cc, *a, *b, *w);
                self.push(MInst::Set { op, wide, dst, a, b });
            }
            Op::InBounds { base, len, end } => {
                let dst = self.reg_of(v);
                let (a, b) = self.bounds(*base, *len, *end);
                self.push(MInst::Set { op: insn::JLE, wide: true, dst, a, b: Src::Reg(b) });
            }
            Op::Swap(bytes, a) => {
                let dst = self.reg_of(v);
                self.copy(dst, *a);
                self.push(MInst::Swap { bytes: *bytes, dst });
            }
            Op::Context(offset, bytes) => {
                let dst = self.reg_of(v);
                let base = Base::Reg(self.context);
                self.push(MInst::Load { bytes: *bytes, dst, base, offset: i32::from(*offset) });
            }
            Op::SetContext(offset, bytes, value) => {
                let src = self.src(*value, true);
                let base = Base::Reg(self.context);
                self.push(MInst::Store { bytes: *bytes, base, offset: i32::from(*offset), src });
            }
            Op::Offset(p, by) => {
                let dst = self.reg_of(v);
                self.copy(dst, *p);
                let src = self.src(*by, true);
                self.alu(insn::ADD, true, dst, src);
            }
            Op::Load { base, offset, bytes } | Op::LoadMap { base, offset, bytes } => {
                let base = Base::Reg(self.reg(*base));
                let dst = self.reg_of(v);
                self.push(MInst::Load { bytes: *bytes, dst, base, offset: *offset });
            }
            Op::Store { base, offset, bytes, value } | Op::StoreMap { base, offset, bytes, value } => {
                let base = Base::Reg(self.reg(*base));
                let src = self.src(*value, *bytes == 8);
                self.push(MInst::Store { bytes: *bytes, base, offset: *offset, src });
            }
            Op::Lookup { .. } | Op::Helper { .. } | Op::Buffer { .. } | Op::Extern { .. } => {
                // A call without a result leaves r0 unreadable.
                let dst = (inst.ty != Ty::None).then(|| self.reg_of(v));
                self.call(&inst.op, dst);
            }
        }
    }

    fn binary(&mut self, op: BinOp, dst: Reg, a: Opnd, b: Opnd, w: u8) {
        let wide = w > 32;
        if op == BinOp::And
            && let Opnd::C(m) = b
        {
            return self.and_mask(dst, a, m, w);
        }
        if op == BinOp::Sar {
            return self.arithmetic_shift(dst, a, b, w);
        }
        self.copy_sized(dst, a, wide);
        let code = match op {
            BinOp::Add => insn::ADD,
            BinOp::Sub => insn::SUB,
            BinOp::Mul => insn::MUL,
            BinOp::Div => insn::DIV,
            BinOp::Mod => insn::MOD,
            BinOp::And => insn::AND,
            BinOp::Or => insn::OR,
            BinOp::Xor => insn::XOR,
            BinOp::Shl => insn::LSH,
            BinOp::Shr | BinOp::Sar => insn::RSH,
        };
        let src = self.src(b, wide);
        self.alu(code, wide, dst, src);
        if self.may_exceed(op, a, b, w) {
            self.wrap(dst, w);
        }
    }

    /// Moves the first operand of an operation; a 32-bit move suffices for narrow values and clears
    /// the upper bits.
    fn copy_sized(&mut self, dst: Reg, a: Opnd, wide: bool) {
        match a {
            Opnd::V(v) if !wide => {
                let r = self.reg_of(v);
                // A 64-bit move costs the same and disappears if both get the same register.
                self.alu(MOV, true, dst, Src::Reg(r));
            }
            _ => self.copy(dst, a),
        }
    }

    /// Whether a result may have bits above its width, in a register of 32 or 64 bits.
    fn may_exceed(&self, op: BinOp, a: Opnd, b: Opnd, w: u8) -> bool {
        if w == 32 || w == 64 {
            return false;
        }
        let (x, y) = (known_max(self.f, a), known_max(self.f, b));
        let most = match op {
            BinOp::Add => x.checked_add(y),
            BinOp::Mul => x.checked_mul(y),
            BinOp::Shl => match b {
                Opnd::C(n) if n < 64 && x.leading_zeros() >= n as u32 => Some(x << n),
                _ => None,
            },
            BinOp::Sub => None,
            _ => return false,
        };
        most.is_none_or(|m| m > mask(w))
    }

    /// Clears the bits above `w`.
    fn wrap(&mut self, dst: Reg, w: u8) {
        if w < 32 {
            self.alu(insn::AND, false, dst, Src::Imm((mask(w) as u32).cast_signed()));
        } else if w < 64 {
            let n = Src::Imm(64 - i32::from(w));
            self.alu(insn::LSH, true, dst, n);
            self.alu(insn::RSH, true, dst, n);
        }
    }

    fn and_mask(&mut self, dst: Reg, a: Opnd, m: u64, w: u8) {
        let Opnd::V(v) = a else { return self.copy(dst, a) };
        let r = self.reg_of(v);
        if m == mask(32) {
            return self.alu(MOV, false, dst, Src::Reg(r));
        }
        self.alu(MOV, true, dst, Src::Reg(r));
        if let Ok(small) = u32::try_from(m) {
            // 32-bit operations clear the upper half.
            self.alu(insn::AND, false, dst, Src::Imm(small.cast_signed()));
        } else if let Some(imm) = imm64(m) {
            self.alu(insn::AND, true, dst, Src::Imm(imm));
        } else if m == mask(w.min(63)) || (m + 1).is_power_of_two() {
            self.wrap(dst, 64 - m.leading_zeros() as u8);
        } else {
            let c = self.reg(Opnd::C(m));
            self.alu(insn::AND, true, dst, Src::Reg(c));
        }
    }

    fn arithmetic_shift(&mut self, dst: Reg, a: Opnd, by: Opnd, w: u8) {
        self.copy(dst, a);
        if w == 32 || w == 64 {
            let src = self.src(by, w == 64);
            return self.alu(insn::ARSH, w == 64, dst, src);
        }
        let up = 64 - i32::from(w);
        self.alu(insn::LSH, true, dst, Src::Imm(up));
        self.alu(insn::ARSH, true, dst, Src::Imm(up));
        let src = self.src(by, true);
        self.alu(insn::ARSH, true, dst, src);
        self.wrap(dst, w);
    }

    /// Returns a register with `base + len`, and the end.
    pub(super) fn bounds(&mut self, base: Opnd, len: u32, end: Opnd) -> (Reg, Reg) {
        let end = self.reg(end);
        let base_reg = self.reg(base);
        if len == 0 {
            return (base_reg, end);
        }
        let t = self.fresh();
        self.alu(MOV, true, t, Src::Reg(base_reg));
        self.alu(insn::ADD, true, t, Src::Imm(len.cast_signed()));
        (t, end)
    }
}
