//! Comparison of interpreter and JIT on random programs: valid ones with loops, functions and memory, and
//! random bytes.

use crate::common::{Rng, fuzz_bytes};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use p4shield_bpf::fuzz::{run_both, run_both_linked};
use p4shield_bpf::insn::{Alu, Atomic, Cond, Insn, Op, Reg, Source, Swap, Width, decode};
use p4shield_bpf::linked::{Linked, Subprogram};

fn any_of<T: Clone + std::fmt::Debug + 'static>(items: &'static [T]) -> impl Strategy<Value = T> {
    proptest::sample::select(items)
}

fn register(range: std::ops::Range<u8>) -> impl Strategy<Value = Reg> {
    range.prop_filter_map("a register", Reg::new)
}

/// R9 holds a pointer to the program's memory, so instructions write only R0 to R8.
fn written() -> impl Strategy<Value = Reg> {
    register(0..9)
}

fn immediate() -> impl Strategy<Value = i32> {
    prop_oneof![any_of(&[0, 1, -1, 2, 7, 31, 32, 63, 64, i32::MIN, i32::MAX]), any::<i32>()]
}

fn source() -> impl Strategy<Value = Source> {
    prop_oneof![register(0..11).prop_map(Source::Reg), immediate().prop_map(Source::Imm)]
}

const WIDTHS: &[Width] = &[Width::B1, Width::B2, Width::B4, Width::B8];
/// A memory operand: the stack below R10, or the 64 bytes from R9.
fn memory_operand() -> impl Strategy<Value = (Reg, i16)> {
    let stack = (-64i16..=-8).prop_map(|off| (Reg::FRAME, off));
    let memory = (0i16..=56).prop_filter_map("r9", |off| Reg::new(9).map(|r| (r, off)));
    prop_oneof![stack, memory]
}

/// An instruction. Jump distances are adapted once the length of the function is known.
fn op() -> impl Strategy<Value = Op> {
    let binary = any_of(&Alu::ALL).prop_filter("neg has one operand", |op| *op != Alu::Neg);
    let alu = (binary, any::<bool>(), written(), source()).prop_map(|(op, wide, dst, src)| Op::Alu {
        op,
        wide,
        dst,
        src,
    });
    let neg = (any::<bool>(), written()).prop_map(|(wide, dst)| Op::Alu {
        op: Alu::Neg,
        wide,
        dst,
        src: Source::Imm(0),
    });
    let mov_sx = (any::<bool>(), written(), register(0..11), any_of(&[Width::B1, Width::B2]))
        .prop_map(|(wide, dst, src, from)| Op::MovSx { wide, dst, src, from });
    let swap = (any_of(&[Swap::ToLe, Swap::ToBe, Swap::Always]), written(), any_of(&WIDTHS[1..]))
        .prop_map(|(kind, dst, width)| Op::Swap { kind, dst, width });
    let imm = (written(), any::<u64>()).prop_map(|(dst, value)| Op::LoadImm { dst, value });
    let load = (written(), memory_operand(), any_of(WIDTHS), any::<bool>()).prop_map(
        |(dst, (src, off), width, signed)| Op::Load {
            dst,
            src,
            off,
            width,
            signed: signed && width != Width::B8,
        },
    );
    let store = (memory_operand(), any_of(WIDTHS), source()).prop_map(|((dst, off), width, src)| Op::Store {
        dst,
        off,
        width,
        src,
    });
    let atomic = (any_of(&Atomic::ALL), any::<bool>(), memory_operand(), written(), any::<bool>()).prop_map(
        |(op, wide, (dst, off), src, fetch)| {
            let fetch = fetch || matches!(op, Atomic::Xchg | Atomic::CmpXchg);
            Op::Atomic { op, wide, dst, src, off, fetch }
        },
    );
    let branch = (any_of(&Cond::ALL), any::<bool>(), register(0..11), source(), any::<i16>())
        .prop_map(|(cond, wide, dst, src, off)| Op::Branch { cond, wide, dst, src, off });
    let jump = any::<i16>().prop_map(|off| Op::Jump { off: off.into() });
    let call = any::<u8>().prop_map(|f| Op::CallLocal { off: f.into() });
    prop_oneof![
        8 => alu, 1 => neg, 1 => mov_sx, 1 => swap, 1 => imm, 2 => load, 2 => store, 2 => atomic, 4 => branch,
        1 => jump, 1 => call, 1 => Just(Op::Call { helper: 5 }), 1 => Just(Op::Exit)
    ]
}

/// A test runner with this number of cases, unless `PROPTEST_CASES` sets another.
fn runner(cases: u32) -> TestRunner {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(cases);
    TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() })
}

/// Combines functions: every jump lands on an instruction of its function, every call on a function.
fn program(functions: Vec<Vec<Op>>) -> Linked {
    let prologue = |index: usize| {
        let memory = Op::Alu {
            op: Alu::Mov,
            wide: true,
            dst: Reg::new(9).expect("r9"),
            src: Source::Reg(if index == 0 { Reg::R1 } else { Reg::FRAME }),
        };
        // In a function, R9 points to its own frame.
        let down = Op::Alu { op: Alu::Sub, wide: true, dst: Reg::new(9).expect("r9"), src: Source::Imm(128) };
        if index == 0 { vec![memory] } else { vec![memory, down] }
    };
    let mut bodies = Vec::new();
    for (index, body) in functions.into_iter().enumerate() {
        let mut ops = prologue(index);
        ops.extend(body);
        ops.push(Op::Exit);
        bodies.push(ops);
    }
    let mut starts = Vec::new();
    let mut at = 0;
    for ops in &bodies {
        starts.push(at);
        at += ops.iter().map(Op::slots).sum::<usize>();
    }
    let mut linked = Linked::default();
    for (ops, &start) in bodies.iter().zip(&starts) {
        let mut starts_of_ops = Vec::new();
        let mut slot = start;
        for op in ops {
            starts_of_ops.push(slot);
            slot += op.slots();
        }
        for (op, &slot) in ops.iter().zip(&starts_of_ops) {
            let to = |off: i64| {
                starts_of_ops[off.rem_euclid(starts_of_ops.len() as i64) as usize] as i64 - slot as i64 - 1
            };
            let op = match *op {
                Op::Branch { cond, wide, dst, src, off } => {
                    Op::Branch { cond, wide, dst, src, off: to(off.into()) as i16 }
                }
                Op::Jump { off } => Op::Jump { off: to(off.into()) as i32 },
                Op::CallLocal { off } => {
                    let callee = starts[off as usize % starts.len()];
                    Op::CallLocal { off: (callee as i64 - slot as i64 - 1) as i32 }
                }
                op => op,
            };
            let (first, second) = op.encode();
            linked.insns.push(first);
            linked.insns.extend(second);
        }
        linked.subprograms.push(Subprogram { name: format!("f{start}"), start, end: slot });
    }
    linked
}

#[test]
fn encoded_instructions_are_decoded() {
    let mut runner = runner(2000);
    let result = runner.run(&op(), |op| {
        let (first, second) = op.encode();
        let slots: Vec<Insn> = [first].into_iter().chain(second).collect();
        let bytes: Vec<_> = slots.iter().map(|&slot| Insn::from_bytes(slot.to_bytes())).collect();
        prop_assert_eq!(decode(&bytes, 0), Ok(op));
        Ok(())
    });
    result.unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn both_engines_agree_on_random_programs() {
    let functions = prop::collection::vec(prop::collection::vec(op(), 0..24), 1..4);
    let mut runner = runner(1500);
    let ran = std::cell::Cell::new(0);
    let result = runner.run(&functions, |functions| {
        let linked = program(functions);
        prop_assert_eq!(p4shield_bpf::check::check(&linked), Ok(()));
        if let Some(pair) = run_both_linked(linked.clone()) {
            ran.set(ran.get() + 1);
            let text: Vec<_> =
                (0..linked.insns.len()).map(|slot| format!("{slot}: {}", linked.text(slot))).collect();
            prop_assert_eq!(pair.interpreter, pair.jit, "{}", text.join("\n"));
        }
        Ok(())
    });
    result.unwrap_or_else(|e| panic!("{e}"));
    assert!(ran.get() * 2 > runner.config().cases, "only {} programs ran", ran.get());
}

/// Instruction slots with plausible opcodes and random fields: most are refused, none causes a panic, and
/// both engines agree on the others. `P4SHIELD_EFFORT` sets how many.
#[test]
fn random_slots_are_refused_or_run_alike() {
    let budget = fuzz_bytes();
    let opcodes =
        [0x07, 0x0f, 0x17, 0xb7, 0xbf, 0x04, 0xb4, 0x7b, 0x79, 0x61, 0x15, 0x55, 0x05, 0xdb, 0xd4, 0x37];
    let mut rng = Rng(7);
    let (mut spent, mut ran) = (0, 0);
    while spent < budget {
        let slots = 1 + rng.below(6);
        let mut bytes = Vec::with_capacity(slots * 8 + 8);
        for _ in 0..slots {
            let [mut code, mut registers, off, .., imm] = rng.next().to_le_bytes();
            if code & 7 != 0 {
                code = opcodes[code as usize % opcodes.len()];
                registers &= 0x77;
                if code & 8 == 0 {
                    registers &= 0x0f;
                }
            }
            let (off, imm) = (if code & 7 == 5 { off & 3 } else { 0 }, if code & 8 == 0 { imm } else { 0 });
            bytes.extend([code, registers, off, 0, imm, 0, 0, 0]);
        }
        bytes.extend([0x95, 0, 0, 0, 0, 0, 0, 0]);
        spent += bytes.len();
        if let Some(pair) = run_both(&bytes) {
            ran += 1;
            assert_eq!(pair.interpreter, pair.jit, "{bytes:x?}");
        }
    }
    assert!(ran > 50, "only {ran} programs ran");
}
