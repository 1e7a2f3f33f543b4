//! The reference interpreter for RFC 9669. It checks every access.
//!
//! Tests compare the JIT with it, and it runs where generated code is forbidden. It repeats at run time
//! the checks that the verifier proves, so it can run unverified programs.

mod memory;

use crate::alu::{alu, holds, sign_extend, swap};
use crate::budget;
use crate::check::{Checked, target};
use crate::env::{Env, FRAME_SIZE, MAX_FRAMES};
use crate::helpers::{self, Arg, Helper, MAP_HANDLE};
use crate::insn::{Atomic, Op, Reg, Source, Width};
use crate::stop::Stop;
use memory::Region;

/// State of a caller, restored when the called function returns.
struct Frame {
    back: usize,
    saved: [u64; 4],
}

/// A run in progress.
struct Interpreter<'a> {
    code: &'a Checked,
    helpers: &'static [Helper],
    env: *mut Env,
    regs: [u64; Reg::COUNT],
    frames: Vec<Frame>,
}

/// Runs a program from its entry with these values in R1 and R2, and returns R0.
///
/// # Safety
/// `env` points to the program's environment: its address ranges and pointers are null or valid, and no
/// other code accesses the memory behind them.
pub(crate) unsafe fn run(
    code: &Checked,
    helpers: &'static [Helper],
    env: *mut Env,
    args: [u64; 2],
) -> Result<u64, Stop> {
    let mut regs = [0; Reg::COUNT];
    regs[1..3].copy_from_slice(&args);
    // SAFETY: by contract.
    regs[Reg::FRAME.index()] = unsafe { (*env).frame };
    let mut interpreter = Interpreter { code, helpers, env, regs, frames: Vec::new() };
    // SAFETY: by contract.
    unsafe { interpreter.run() }
}

impl Interpreter<'_> {
    fn get(&self, r: Reg) -> u64 {
        self.regs[r.index()]
    }

    fn set(&mut self, r: Reg, v: u64) {
        self.regs[r.index()] = v;
    }

    /// Returns the value of a source operand. Immediates are sign-extended.
    fn source(&self, s: Source) -> u64 {
        match s {
            Source::Reg(r) => self.get(r),
            Source::Imm(imm) => imm as u64,
        }
    }

    /// # Safety
    /// As [`run`].
    unsafe fn run(&mut self) -> Result<u64, Stop> {
        let mut pc = 0;
        loop {
            let op = self.code.ops[pc];
            let next = pc + op.slots();
            pc = match op {
                Op::Jump { off } => self.jump(pc, off)?,
                Op::Branch { cond, wide, dst, src, off } => {
                    if holds(cond, wide, self.get(dst), self.source(src)) {
                        self.jump(pc, off.into())?
                    } else {
                        next
                    }
                }
                Op::CallLocal { off } => self.enter(pc, off)?,
                Op::Exit => match self.leave() {
                    Some(back) => back,
                    None => return Ok(self.get(Reg::R0)),
                },
                op => {
                    // SAFETY: by contract.
                    unsafe { self.step(pc, op)? };
                    next
                }
            };
        }
    }

    fn charge(&mut self, cost: u64) -> Result<(), Stop> {
        // SAFETY: by the contract of `run`.
        let left = unsafe { &mut (*self.env).budget };
        *left = left.checked_sub(cost).ok_or(Stop::Budget)?;
        Ok(())
    }

    fn jump(&mut self, pc: usize, off: i32) -> Result<usize, Stop> {
        // By the structural check, the target is inside the function.
        let to = target(pc, off) as usize;
        self.charge(budget::of_jump(pc, to))?;
        Ok(to)
    }

    fn enter(&mut self, pc: usize, off: i32) -> Result<usize, Stop> {
        let to = target(pc, off) as usize;
        if self.frames.len() + 1 >= MAX_FRAMES {
            return Err(Stop::CallDepth);
        }
        let length = self.code.function_at(to).map_or(0, |f| self.code.functions[f].len());
        self.charge(length as u64)?;
        let mut saved = [0; 4];
        saved.copy_from_slice(&self.regs[6..10]);
        self.frames.push(Frame { back: pc + 1, saved });
        self.regs[0] = 0;
        self.regs[6..10].fill(0);
        self.move_frame(|frame| frame - FRAME_SIZE as u64);
        Ok(to)
    }

    fn leave(&mut self) -> Option<usize> {
        let frame = self.frames.pop()?;
        self.regs[1..6].fill(0);
        self.regs[6..10].copy_from_slice(&frame.saved);
        self.move_frame(|frame| frame + FRAME_SIZE as u64);
        Some(frame.back)
    }

    fn move_frame(&mut self, to: impl FnOnce(u64) -> u64) {
        // SAFETY: by the contract of `run`.
        let frame = unsafe { &mut (*self.env).frame };
        *frame = to(*frame);
        self.regs[Reg::FRAME.index()] = *frame;
    }

    /// # Safety
    /// As [`run`].
    unsafe fn step(&mut self, pc: usize, op: Op) -> Result<(), Stop> {
        match op {
            Op::Alu { op, wide, dst, src } => {
                let v = alu(op, wide, self.get(dst), self.source(src));
                self.set(dst, v);
            }
            Op::MovSx { wide, dst, src, from } => {
                let v = sign_extend(self.get(src), from);
                self.set(dst, if wide { v } else { (v as u32).into() });
            }
            Op::Swap { kind, dst, width } => self.set(dst, swap(kind, width, self.get(dst))),
            Op::LoadImm { dst, value } => self.set(dst, value),
            Op::LoadMap { dst, map } => self.set(dst, MAP_HANDLE + u64::from(map)),
            Op::Load { dst, src, off, width, signed } => {
                let address = self.checked(pc, src, off, width)?.0;
                // SAFETY: checked.
                let v = unsafe { memory::load(address, width) };
                self.set(dst, if signed { sign_extend(v, width) } else { v });
            }
            Op::Store { dst, off, width, src } => {
                let value = self.source(src);
                let address = self.checked_for_store(pc, dst, off, width)?;
                // SAFETY: checked.
                unsafe { memory::store(address, width, value) };
            }
            Op::Atomic { op, wide, dst, src, off, fetch } => {
                let width = if wide { Width::B8 } else { Width::B4 };
                let address = self.checked_for_store(pc, dst, off, width)?;
                // SAFETY: checked.
                unsafe { self.atomic(op, address, width, src, fetch) };
            }
            // SAFETY: by contract.
            Op::Call { helper } => unsafe { self.call(pc, helper)? },
            Op::Jump { .. } | Op::Branch { .. } | Op::CallLocal { .. } | Op::Exit => {}
        }
        Ok(())
    }

    fn checked(&self, slot: usize, base: Reg, off: i16, width: Width) -> Result<(u64, Region), Stop> {
        let address = self.get(base).wrapping_add(off as u64);
        let bytes = width.bytes();
        // SAFETY: by the contract of `run`.
        match unsafe { memory::region(self.env, address, bytes as u64) } {
            Some(region) => Ok((address, region)),
            None => Err(Stop::Memory { slot, address, bytes }),
        }
    }

    fn checked_for_store(&mut self, slot: usize, base: Reg, off: i16, width: Width) -> Result<u64, Stop> {
        let (address, region) = self.checked(slot, base, off, width)?;
        if region == Region::Packet {
            // SAFETY: by the contract of `run`.
            unsafe { (*self.env).flags.rewritten = 1 };
        }
        Ok(address)
    }

    /// Only one thread accesses the memory of a program, so plain loads and stores are atomic enough.
    ///
    /// # Safety
    /// The access is checked.
    unsafe fn atomic(&mut self, op: Atomic, address: u64, width: Width, src: Reg, fetch: bool) {
        // SAFETY: by contract.
        let old = unsafe { memory::load(address, width) };
        let operand = self.get(src);
        let expected = self.get(Reg::R0) & if width == Width::B4 { u32::MAX.into() } else { u64::MAX };
        let new = match op {
            Atomic::Add => old.wrapping_add(operand),
            Atomic::Or => old | operand,
            Atomic::And => old & operand,
            Atomic::Xor => old ^ operand,
            Atomic::Xchg => operand,
            Atomic::CmpXchg if old == expected => operand,
            Atomic::CmpXchg => old,
        };
        // SAFETY: by contract.
        unsafe { memory::store(address, width, new) };
        match op {
            Atomic::CmpXchg => self.set(Reg::R0, old),
            _ if fetch => self.set(src, old),
            _ => {}
        }
    }

    /// # Safety
    /// As [`run`].
    unsafe fn call(&mut self, slot: usize, number: u32) -> Result<(), Stop> {
        let helper = helpers::find(self.helpers, number).ok_or(Stop::Helper { slot, helper: number })?;
        self.check_arguments(slot, helper)?;
        let [r1, r2, r3, r4, r5] = [1, 2, 3, 4, 5].map(|i| self.regs[i]);
        // SAFETY: `check_arguments` has accepted the arguments.
        let (result, stopped) =
            unsafe { ((helper.function)(self.env, r1, r2, r3, r4, r5), (*self.env).flags.stopped) };
        if stopped != 0 {
            return Err(Stop::Budget);
        }
        self.regs[1..6].fill(0);
        self.set(Reg::R0, result);
        Ok(())
    }

    fn check_arguments(&self, slot: usize, helper: &Helper) -> Result<(), Stop> {
        let wrong = Stop::Argument { slot, helper: helper.number };
        // SAFETY: by the contract of `run`.
        let (env, maps) = unsafe { (&*self.env, (*self.env).maps.as_ref()) };
        let ctx = (&raw const env.ctx).expose_provenance() as u64;
        let mut sizes = (0, 0);
        for (i, (arg, &value)) in helper.args.iter().zip(&self.regs[1..6]).enumerate() {
            let readable = |bytes: u32| {
                // SAFETY: by the contract of `run`.
                unsafe { memory::region(self.env, value, bytes.into()) }.is_some()
            };
            let fine = match arg {
                Arg::Any => true,
                Arg::Context => value == ctx,
                Arg::Map => {
                    let index = value.checked_sub(MAP_HANDLE).and_then(|i| usize::try_from(i).ok());
                    let map = index.and_then(|i| maps?.by_index(i));
                    sizes = map.map_or((0, 0), |m| (m.definition().key_size, m.definition().value_size));
                    map.is_some()
                }
                Arg::Key => readable(sizes.0),
                Arg::Value => readable(sizes.1),
                Arg::Memory => u32::try_from(self.regs[i + 2]).is_ok_and(readable),
            };
            if !fine {
                return Err(wrong);
            }
        }
        Ok(())
    }
}
