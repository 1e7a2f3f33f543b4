//! Emission: virtual registers to machine registers, blocks to one list of instructions.

use super::MachineCode;
use super::alloc::{Allocation, Frame, SCRATCH};
use super::insn::{self, FP, Insn, MOV};
use super::machine::{Arg, Base, CallTarget, CopySrc, MInst, Machine, Reg, Src};
use super::moves::{Step, sequence};
use crate::ir::Block;
use crate::source::Span;
use std::collections::HashMap;

struct Emitter<'a> {
    frame: &'a Frame,
    out: MachineCode,
    span: Span,
    labels: HashMap<Block, usize>,
    /// Jumps and their targets.
    jumps: Vec<(usize, Block)>,
}

/// Emits all blocks in order.
pub(super) fn emit(m: &Machine, frame: &Frame) -> MachineCode {
    let mut e = Emitter {
        frame,
        out: MachineCode::default(),
        span: Span::default(),
        labels: HashMap::new(),
        jumps: Vec::new(),
    };
    if let Some(first) = m.blocks.first().and_then(|b| b.insts.first()) {
        e.span = first.1;
    }
    match frame.allocations.get(&m.context) {
        Some(Allocation::Reg(r)) if *r != 1 => e.push(Insn::alu_reg(MOV, true, *r, 1)),
        Some(Allocation::Slot(base, at)) => e.push(Insn::store_reg(8, *base, *at, 1)),
        _ => {}
    }
    for b in &m.blocks {
        e.labels.insert(b.block, e.out.insns.len());
        for (inst, span) in &b.insts {
            e.span = *span;
            e.inst(inst);
        }
    }
    for (at, to) in &e.jumps {
        e.out.insns[*at].offset = e.labels[to] as i32 - *at as i32 - 1;
    }
    e.out
}

impl Emitter<'_> {
    fn push(&mut self, i: Insn) {
        self.out.insns.push(i);
        self.out.spans.push(self.span);
    }

    /// Returns the storage of a register; a register that is never read may have any.
    fn allocation(&self, r: Reg) -> Allocation {
        self.frame.allocations.get(&r).copied().unwrap_or(Allocation::Reg(SCRATCH[0]))
    }

    /// Returns a machine register with the value: its own, or scratch register `n`.
    fn read(&mut self, r: Reg, n: usize) -> u8 {
        match self.allocation(r) {
            Allocation::Reg(p) => p,
            Allocation::Slot(base, at) => {
                self.push(Insn::load(8, SCRATCH[n], base, at));
                SCRATCH[n]
            }
        }
    }

    /// Stores a result that was computed in `from`.
    fn write(&mut self, r: Reg, from: u8) {
        match self.allocation(r) {
            Allocation::Reg(p) if p == from => {}
            to => self.transfer(to, Allocation::Reg(from)),
        }
    }

    /// Returns the machine register to compute a result in.
    fn target(&self, r: Reg) -> u8 {
        match self.allocation(r) {
            Allocation::Reg(p) => p,
            Allocation::Slot(..) => SCRATCH[0],
        }
    }

    fn inst(&mut self, m: &MInst) {
        match m {
            MInst::Alu { op, wide, dst, src } => self.alu(*op, *wide, *dst, *src),
            MInst::Const { dst, value } => {
                let r = self.target(*dst);
                self.push(Insn::constant64(r, *value));
                self.write(*dst, r);
            }
            MInst::Swap { bytes, dst } => {
                let r = self.read(*dst, 0);
                self.push(Insn::swap(*bytes, r));
                self.write(*dst, r);
            }
            MInst::Load { bytes, dst, base, offset } => {
                let b = self.base(*base, 1);
                let r = self.target(*dst);
                self.push(Insn::load(*bytes, r, b, *offset));
                self.write(*dst, r);
            }
            MInst::Store { bytes, base, offset, src } => {
                let b = self.base(*base, 1);
                match src {
                    Src::Imm(i) => self.push(Insn::store_imm(*bytes, b, *offset, *i)),
                    Src::Reg(r) => {
                        let r = self.read(*r, 0);
                        self.push(Insn::store_reg(*bytes, b, *offset, r));
                    }
                }
            }
            MInst::Set { op, wide, dst, a, b } => self.set(*op, *wide, *dst, *a, *b),
            MInst::Call { target, args, dst } => self.call(target, args, *dst),
            MInst::Copies(cs) => self.copies(cs),
            MInst::Branch { op, wide, a, b, to } => {
                self.compare(*op, *wide, *a, *b);
                self.jumps.push((self.out.insns.len() - 1, *to));
            }
            MInst::Jump(to) => {
                self.push(Insn::jump(0));
                self.jumps.push((self.out.insns.len() - 1, *to));
            }
            MInst::Return(src) => {
                match src {
                    Src::Imm(i) => self.push(Insn::alu_imm(MOV, false, 0, *i)),
                    Src::Reg(r) => {
                        let r = self.read(*r, 0);
                        if r != 0 {
                            self.push(Insn::alu_reg(MOV, true, 0, r));
                        }
                    }
                }
                self.push(Insn::exit());
            }
        }
    }

    fn base(&mut self, b: Base, n: usize) -> u8 {
        match b {
            Base::Frame => FP,
            Base::Reg(r) => self.read(r, n),
        }
    }

    fn alu(&mut self, op: u8, wide: bool, dst: Reg, src: Src) {
        let d = if op == MOV { self.target(dst) } else { self.read(dst, 0) };
        match src {
            Src::Imm(i) => self.push(Insn::alu_imm(op, wide, d, i)),
            Src::Reg(s) => {
                let s = self.read(s, 1);
                if op != MOV || !wide || s != d {
                    self.push(Insn::alu_reg(op, wide, d, s));
                }
            }
        }
        self.write(dst, d);
    }

    /// Emits a branch whose target is filled in later.
    fn compare(&mut self, op: u8, wide: bool, a: Reg, b: Src) {
        let a = self.read(a, 0);
        match b {
            Src::Imm(i) => self.push(Insn::branch_imm(op, wide, a, i, 0)),
            Src::Reg(b) => {
                let b = self.read(b, 1);
                self.push(Insn::branch_reg(op, wide, a, b, 0));
            }
        }
    }

    /// Sets `dst` to 1 if the comparison holds, otherwise to 0.
    fn set(&mut self, op: u8, wide: bool, dst: Reg, a: Reg, b: Src) {
        // Both paths write the result; its register differs from those of the comparison.
        self.set_to(dst, 1);
        self.compare(op, wide, a, b);
        if let Some(branch) = self.out.insns.last_mut() {
            branch.offset = 1;
        }
        self.set_to(dst, 0);
    }

    /// Writes a constant without a scratch register.
    fn set_to(&mut self, dst: Reg, value: i32) {
        match self.allocation(dst) {
            Allocation::Reg(d) => self.push(Insn::alu_imm(MOV, false, d, value)),
            Allocation::Slot(base, at) => self.push(Insn::store_imm(8, base, at, value)),
        }
    }

    fn call(&mut self, target: &CallTarget, args: &[Arg], dst: Option<Reg>) {
        let mut moves: Vec<(Allocation, Allocation)> = Vec::new();
        for (i, a) in args.iter().enumerate() {
            if let Arg::Reg(r) = a {
                moves.push((Allocation::Reg(i as u8 + 1), self.allocation(*r)));
            }
        }
        self.parallel(&moves);
        for (i, a) in args.iter().enumerate() {
            let r = i as u8 + 1;
            match a {
                Arg::Reg(_) => {}
                Arg::Imm(c) => self.constant(r, *c),
                Arg::Map(m) => self.push(Insn::map(r, *m)),
                Arg::Frame(at) => {
                    self.push(Insn::alu_reg(MOV, true, r, FP));
                    self.push(Insn::alu_imm(insn::ADD, true, r, *at));
                }
            }
        }
        match target {
            CallTarget::Helper(id) => self.push(Insn::helper(*id)),
            CallTarget::Extern(name) => self.push(Insn::call(name.clone())),
        }
        if let Some(d) = dst.filter(|d| self.frame.allocations.contains_key(d)) {
            self.write(d, 0);
        }
    }

    fn constant(&mut self, r: u8, c: u64) {
        match u32::try_from(c) {
            Ok(n) => self.push(Insn::alu_imm(MOV, false, r, n.cast_signed())),
            Err(_) => self.push(Insn::constant64(r, c)),
        }
    }

    fn copies(&mut self, cs: &[(Reg, CopySrc)]) {
        let mut moves = Vec::new();
        let mut constants = Vec::new();
        for (d, s) in cs {
            match s {
                CopySrc::Reg(s) => moves.push((self.allocation(*d), self.allocation(*s))),
                CopySrc::Const(c) => constants.push((*d, *c)),
            }
        }
        self.parallel(&moves);
        for (d, c) in constants {
            match i32::try_from(c.cast_signed()) {
                Ok(small) if !matches!(self.allocation(d), Allocation::Reg(_)) => self.set_to(d, small),
                _ => {
                    let r = self.target(d);
                    self.constant(r, c);
                    self.write(d, r);
                }
            }
        }
    }

    fn parallel(&mut self, moves: &[(Allocation, Allocation)]) {
        let temporary = Allocation::Slot(FP, self.frame.temporary);
        for step in sequence(moves) {
            match step {
                Step::Move(d, s) => self.transfer(d, s),
                Step::Save(s) => self.transfer(temporary, s),
                Step::Restore(d) => self.transfer(d, temporary),
            }
        }
    }

    fn transfer(&mut self, d: Allocation, s: Allocation) {
        match (d, s) {
            (Allocation::Reg(d), Allocation::Reg(s)) => self.push(Insn::alu_reg(MOV, true, d, s)),
            (Allocation::Reg(d), Allocation::Slot(base, at)) => self.push(Insn::load(8, d, base, at)),
            (Allocation::Slot(base, at), Allocation::Reg(s)) => self.push(Insn::store_reg(8, base, at, s)),
            (to, from) => {
                self.transfer(Allocation::Reg(SCRATCH[0]), from);
                self.transfer(to, Allocation::Reg(SCRATCH[0]));
            }
        }
    }
}
