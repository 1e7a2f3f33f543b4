//! Translation of one function to Cranelift IR: blocks, jumps and the instruction budget.

use std::collections::BTreeMap;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I32, I64};
use cranelift_codegen::ir::{
    AbiParam, Block, FuncRef, Function, InstBuilder as _, MemFlagsData, Signature, Type, Value,
};
use cranelift_codegen::isa::TargetIsa;
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext, Variable};

use super::facts::Facts;
use crate::budget;
use crate::check::{Checked, target};
use crate::env::{offset, stop};
use crate::helpers::Helper;
use crate::insn::{Cond, Op, Reg, Source};
use crate::maps::Maps;

/// Data that all functions of a program share.
pub(super) struct ProgramParts<'a> {
    pub(super) checked: &'a Checked,
    pub(super) helpers: &'static [Helper],
    pub(super) maps: Option<&'a Maps>,
}

/// The bookkeeping that a function needs.
struct Bookkeeping {
    /// It uses R10 or passes a frame to another function.
    frame: bool,
    /// It jumps backward or calls another function.
    budget: bool,
    /// It stores to memory that may belong to the packet.
    rewritten: bool,
}

impl Bookkeeping {
    fn of(program: &ProgramParts<'_>, index: usize) -> Self {
        let mut needs = Self { frame: false, budget: false, rewritten: false };
        let range = program.checked.functions[index].clone();
        for slot in range {
            match program.checked.ops[slot] {
                Op::CallLocal { .. } => (needs.frame, needs.budget) = (true, true),
                Op::Jump { off } if off < 0 => needs.budget = true,
                Op::Branch { off, .. } if off < 0 => needs.budget = true,
                Op::Store { .. } | Op::Atomic { .. } => needs.rewritten = true,
                _ => {}
            }
            needs.frame |= uses_frame(&program.checked.ops[slot]);
        }
        needs
    }
}

fn uses_frame(op: &Op) -> bool {
    let frame = |r: Reg| r == Reg::FRAME;
    let source = |s: Source| matches!(s, Source::Reg(Reg::FRAME));
    match *op {
        Op::Alu { src, .. } => source(src),
        Op::MovSx { src, .. } | Op::Load { src, .. } => frame(src),
        Op::Store { dst, src, .. } | Op::Branch { dst, src, .. } => frame(dst) || source(src),
        Op::Atomic { dst, src, .. } => frame(dst) || frame(src),
        _ => false,
    }
}

/// State of the translation of a function.
pub(super) struct Translator<'a, 'b> {
    pub(super) program: &'a ProgramParts<'a>,
    pub(super) b: FunctionBuilder<'b>,
    pub(super) isa: &'a dyn TargetIsa,
    /// The environment: first argument of the function.
    pub(super) env: Value,
    /// R0 to R9.
    regs: [Variable; 10],
    /// R10, if it is used.
    pub(super) frame: Option<Value>,
    /// The remaining budget, if the function uses it.
    pub(super) budget: Option<Variable>,
    /// Whether a store wrote to the packet, if the function stores at all.
    pub(super) rewritten: Option<Variable>,
    pub(super) facts: Facts,
    blocks: BTreeMap<usize, Block>,
    pub(super) callees: BTreeMap<usize, FuncRef>,
    /// Blocks that end the run, by [`stop`] code.
    stops: BTreeMap<u8, Block>,
}

/// Returns the signature of every function: takes the environment and R1 to R5, returns R0.
pub(super) fn signature(isa: &dyn TargetIsa) -> Signature {
    let mut s = Signature::new(isa.default_call_conv());
    s.params = vec![AbiParam::new(I64); 6];
    s.returns = vec![AbiParam::new(I64)];
    s
}

/// Flags of accesses to the environment.
pub(super) const fn trusted() -> MemFlagsData {
    MemFlagsData::trusted()
}

/// Flags of accesses to data that is constant during a run.
pub(super) const fn constant() -> MemFlagsData {
    MemFlagsData::trusted().with_readonly().with_can_move()
}

/// Translates function `index` of the program.
pub(super) fn translate(
    program: &ProgramParts<'_>,
    index: usize,
    func: &mut Function,
    context: &mut FunctionBuilderContext,
    isa: &dyn TargetIsa,
) {
    func.signature = signature(isa);
    let mut b = FunctionBuilder::new(func, context);
    let entry = b.create_block();
    b.append_block_params_for_function_params(entry);
    b.switch_to_block(entry);
    let params = b.block_params(entry).to_vec();
    let needs = Bookkeeping::of(program, index);
    let regs = std::array::from_fn(|_| b.declare_var(I64));
    let zero = b.ins().iconst(I64, 0);
    for (i, &reg) in regs.iter().enumerate() {
        b.def_var(reg, if (1..6).contains(&i) { params[i] } else { zero });
    }
    let env = params[0];
    let frame = needs.frame.then(|| b.ins().load(I64, trusted(), env, offset::FRAME));
    let budget = needs.budget.then(|| b.declare_var(I64));
    let rewritten = needs.rewritten.then(|| b.declare_var(I8));
    let (blocks, callees, stops) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let facts = Facts::new();
    let mut t =
        Translator { program, b, isa, env, regs, frame, budget, rewritten, facts, blocks, callees, stops };
    t.body(index);
    t.b.seal_all_blocks();
    t.b.finalize(isa.frontend_config());
}

impl Translator<'_, '_> {
    pub(super) fn get(&mut self, r: Reg) -> Value {
        match self.regs.get(r.index()) {
            Some(&variable) => self.b.use_var(variable),
            None => self.frame.expect("functions that use R10 load it"),
        }
    }

    pub(super) fn set(&mut self, r: Reg, v: Value) {
        // The decoder refuses writes to R10.
        self.b.def_var(self.regs[r.index()], v);
    }

    /// Clears R1 to R5, which are undefined after a call.
    pub(super) fn clear_arguments(&mut self) {
        let zero = self.b.ins().iconst(I64, 0);
        for r in 1..6 {
            self.b.def_var(self.regs[r], zero);
        }
    }

    /// Returns a register or an immediate in 64 or 32 bits.
    pub(super) fn operand(&mut self, src: Source, wide: bool) -> Value {
        match src {
            Source::Reg(r) => self.register(r, wide),
            Source::Imm(imm) if wide => self.b.ins().iconst(I64, i64::from(imm)),
            Source::Imm(imm) => self.b.ins().iconst(I32, i64::from(imm as u32)),
        }
    }

    /// Returns a register in 64 or 32 bits.
    pub(super) fn register(&mut self, r: Reg, wide: bool) -> Value {
        let v = self.get(r);
        if wide { v } else { self.b.ins().ireduce(I32, v) }
    }

    pub(super) fn load_env(&mut self, ty: Type, offset: i32) -> Value {
        self.b.ins().load(ty, trusted(), self.env, offset)
    }

    pub(super) fn store_env(&mut self, v: Value, offset: i32) {
        self.b.ins().store(trusted(), v, self.env, offset);
    }

    fn body(&mut self, index: usize) {
        let program = self.program;
        let range = program.checked.functions[index].clone();
        self.find_blocks(index);
        if let Some(budget) = self.budget {
            let v = self.load_env(I64, offset::BUDGET);
            self.b.def_var(budget, v);
        }
        if let Some(rewritten) = self.rewritten {
            let no = self.b.ins().iconst(I8, 0);
            self.b.def_var(rewritten, no);
        }
        let mut open = true;
        let mut slot = range.start;
        while slot < range.end {
            if let Some(&block) = self.blocks.get(&slot) {
                if open {
                    self.b.ins().jump(block, &[]);
                }
                self.b.switch_to_block(block);
                self.facts = Facts::new();
                open = true;
            }
            let op = program.checked.ops[slot];
            if open {
                open = self.op(slot, &op);
                self.facts.learn(&op);
            }
            slot += op.slots();
        }
    }

    /// Creates a block for the target of each jump.
    fn find_blocks(&mut self, index: usize) {
        let checked = self.program.checked;
        let range = checked.functions[index].clone();
        let mut slot = range.start;
        while slot < range.end {
            let op = &checked.ops[slot];
            let to = match *op {
                Op::Jump { off } => Some(target(slot, off) as usize),
                Op::Branch { off, .. } => Some(target(slot, off.into()) as usize),
                _ => None,
            };
            if let Some(to) = to {
                self.blocks.entry(to).or_insert_with(|| self.b.create_block());
            }
            slot += op.slots();
        }
    }

    /// Translates one instruction; returns whether control continues after it.
    fn op(&mut self, slot: usize, op: &Op) -> bool {
        match *op {
            Op::Alu { op, wide, dst, src } => self.alu(op, wide, dst, src),
            Op::MovSx { wide, dst, src, from } => self.mov_sx(wide, dst, src, from),
            Op::Swap { kind, dst, width } => self.swap(kind, dst, width),
            Op::LoadImm { dst, value } => {
                let v = self.b.ins().iconst(I64, value as i64);
                self.set(dst, v);
            }
            Op::LoadMap { dst, map } => {
                let v = self.b.ins().iconst(I64, (crate::helpers::MAP_HANDLE + u64::from(map)) as i64);
                self.set(dst, v);
            }
            Op::Load { dst, src, off, width, signed } => self.load(dst, src, off, width, signed),
            Op::Store { dst, off, width, src } => self.store(dst, off, width, src),
            Op::Atomic { op, wide, dst, src, off, fetch } => self.atomic(op, wide, dst, src, off, fetch),
            Op::Call { helper } => self.call_helper(helper),
            Op::CallLocal { off } => self.call_local(target(slot, off) as usize),
            Op::Branch { cond, wide, dst, src, off } => {
                let taken = self.condition(cond, wide, dst, src);
                self.branch(slot, target(slot, off.into()) as usize, taken);
            }
            Op::Jump { off } => {
                self.jump(slot, target(slot, off) as usize);
                return false;
            }
            Op::Exit => {
                self.leave();
                return false;
            }
        }
        true
    }

    fn condition(&mut self, cond: Cond, wide: bool, dst: Reg, src: Source) -> Value {
        let a = self.register(dst, wide);
        let b = self.operand(src, wide);
        let cc = match cond {
            Cond::Set => return self.b.ins().band(a, b),
            Cond::Eq => IntCC::Equal,
            Cond::Ne => IntCC::NotEqual,
            Cond::Gt => IntCC::UnsignedGreaterThan,
            Cond::Ge => IntCC::UnsignedGreaterThanOrEqual,
            Cond::Lt => IntCC::UnsignedLessThan,
            Cond::Le => IntCC::UnsignedLessThanOrEqual,
            Cond::Sgt => IntCC::SignedGreaterThan,
            Cond::Sge => IntCC::SignedGreaterThanOrEqual,
            Cond::Slt => IntCC::SignedLessThan,
            Cond::Sle => IntCC::SignedLessThanOrEqual,
        };
        self.b.ins().icmp(cc, a, b)
    }

    fn branch(&mut self, slot: usize, to: usize, taken: Value) {
        let next = self.b.create_block();
        if budget::of_jump(slot, to) == 0 {
            let block = self.blocks[&to];
            self.b.ins().brif(taken, block, &[], next, &[]);
        } else {
            let back = self.b.create_block();
            self.b.ins().brif(taken, back, &[], next, &[]);
            self.b.switch_to_block(back);
            self.jump(slot, to);
        }
        self.b.switch_to_block(next);
    }

    fn jump(&mut self, slot: usize, to: usize) {
        self.charge(budget::of_jump(slot, to));
        let block = self.blocks[&to];
        self.b.ins().jump(block, &[]);
    }

    /// Charges `cost` to the budget, or ends the run.
    pub(super) fn charge(&mut self, cost: u64) {
        if cost == 0 {
            return;
        }
        let variable = self.budget.expect("functions that jump backward have a budget");
        let left = self.b.use_var(variable);
        let cost = self.b.ins().iconst(I64, cost as i64);
        let short = self.b.ins().icmp(IntCC::UnsignedLessThan, left, cost);
        self.stop_if(short, stop::BUDGET);
        let left = self.b.ins().isub(left, cost);
        self.b.def_var(variable, left);
    }

    /// Ends the run if `condition` is not zero.
    pub(super) fn stop_if(&mut self, condition: Value, code: u8) {
        let block = *self.stops.entry(code).or_insert_with(|| self.b.create_block());
        let go_on = self.b.create_block();
        self.b.ins().brif(condition, block, &[], go_on, &[]);
        let filled = self.b.func.layout.is_block_inserted(block);
        if !filled {
            self.b.set_cold_block(block);
            self.b.switch_to_block(block);
            let code = self.b.ins().iconst(I8, i64::from(code));
            self.store_env(code, offset::STOPPED);
            let zero = self.b.ins().iconst(I64, 0);
            self.b.ins().return_(&[zero]);
        }
        self.b.switch_to_block(go_on);
    }

    /// Returns to the caller.
    fn leave(&mut self) {
        self.publish();
        let r0 = self.get(Reg::R0);
        self.b.ins().return_(&[r0]);
    }

    /// Writes the remaining budget back to the environment.
    pub(super) fn publish_budget(&mut self) {
        if let Some(budget) = self.budget {
            let left = self.b.use_var(budget);
            self.store_env(left, offset::BUDGET);
        }
    }

    /// Writes the variables that cache fields of the environment back to it.
    pub(super) fn publish(&mut self) {
        self.publish_budget();
        if let Some(rewritten) = self.rewritten {
            let before = self.load_env(I8, offset::REWRITTEN);
            let here = self.b.use_var(rewritten);
            let any = self.b.ins().bor(before, here);
            self.store_env(any, offset::REWRITTEN);
        }
    }
}
