//! Every instruction of RFC 9669 on both engines, from a table of expected values that were computed by hand
//! from the text of the RFC.

use p4shield_bpf::asm::assemble;
use p4shield_bpf::raw::RawProgram;
use p4shield_bpf::{EngineOptions, Mode, Verified};

/// Runs a program on the memory 88 77 66 55 44 33 22 11 (0x1122334455667788) and returns R0.
fn run(text: &str, mode: Mode) -> u64 {
    let linked = assemble(text).unwrap_or_else(|e| panic!("{e} in {text}"));
    // SAFETY: all programs of this file only access their stack and their memory.
    let verified = unsafe { Verified::assume(linked) };
    let options = EngineOptions { mode, ..EngineOptions::default() };
    let mut program = RawProgram::load(&verified, &options).unwrap_or_else(|e| panic!("{e} in {text}"));
    let mut memory = 0x1122_3344_5566_7788u64.to_le_bytes();
    program.run(&mut memory).unwrap_or_else(|e| panic!("{e} in {text}"))
}

fn both(text: &str, expected: u64) {
    for mode in [Mode::Interpreter, Mode::Jit] {
        let r0 = run(text, mode);
        assert_eq!(r0, expected, "{mode:?}: {r0:#x} instead of {expected:#x} from\n{text}");
    }
}

/// Checks `dst op src` with the source as a register and, if it fits, as an immediate.
fn arithmetic(op: &str, a: u64, b: u64, expected: u64) {
    both(&format!("lddw r0, {a:#x}\nlddw r1, {b:#x}\n{op} r0, r1\nexit"), expected);
    let imm = b as i32;
    if imm as u64 == b || op.ends_with("32") {
        both(&format!("lddw r0, {a:#x}\n{op} r0, {imm}\nexit"), expected);
    }
}

const MAX: u64 = u64::MAX;
const MIN: u64 = 1 << 63;

#[test]
fn arithmetic_64() {
    let cases = [
        ("add", MAX, 2, 1),
        ("sub", 1, 2, MAX),
        ("mul", 1 << 63, 3, 1 << 63),
        ("mul", MAX, MAX, 1),
        ("div", MAX, 2, MAX >> 1),
        ("div", 7, 0, 0),
        ("div", 5, MAX, 0),
        ("sdiv", -7i64 as u64, 2, -3i64 as u64),
        ("sdiv", 7, -2i64 as u64, -3i64 as u64),
        ("sdiv", MIN, MAX, MIN),
        ("sdiv", 7, 0, 0),
        ("mod", 17, 5, 2),
        ("mod", 17, 0, 17),
        ("mod", MAX, 10, 5),
        ("smod", -17i64 as u64, 5, -2i64 as u64),
        ("smod", 17, -5i64 as u64, 2),
        ("smod", MIN, MAX, 0),
        ("smod", 17, 0, 17),
        ("or", 0xf0, 0x0f, 0xff),
        ("or", 0, MAX, MAX),
        ("and", 0xff, 0x3c, 0x3c),
        ("and", MAX, 0xffff_ffff_8000_0000, 0xffff_ffff_8000_0000),
        ("xor", 0xff, MAX, 0xffff_ffff_ffff_ff00),
        ("lsh", 1, 63, 1 << 63),
        ("lsh", 1, 64, 1),
        ("lsh", 1, 65, 2),
        ("rsh", MIN, 63, 1),
        ("rsh", 5, 64, 5),
        ("arsh", MIN, 63, MAX),
        ("arsh", MIN, 127, MAX),
        ("mov", 5, 0xffff_ffff_ffff_fff6, 0xffff_ffff_ffff_fff6),
    ];
    for (op, a, b, expected) in cases {
        arithmetic(op, a, b, expected);
    }
    both("lddw r0, 1\nneg r0\nexit", MAX);
    both("lddw r0, 0x8000000000000000\nneg r0\nexit", MIN);
}

#[test]
fn arithmetic_32() {
    let high = 0xdead_beef_0000_0000;
    let cases = [
        ("add32", high | 0xffff_ffff, 2, 1),
        ("sub32", high | 1, 2, 0xffff_ffff),
        ("mul32", high | 0x8000_0001, 3, 0x8000_0003),
        ("div32", high | 7, 2, 3),
        ("div32", high | 7, 0, 0),
        ("div32", high | 7, high, 0),
        ("sdiv32", high | 0xffff_fff9, 2, 0xffff_fffd),
        ("sdiv32", high | 0x8000_0000, 0xffff_ffff, 0x8000_0000),
        ("mod32", high | 17, 5, 2),
        ("mod32", high | 17, 0, 17),
        ("smod32", high | 0xffff_ffef, 5, 0xffff_fffe),
        ("smod32", high | 0x8000_0000, 0xffff_ffff, 0),
        ("or32", high | 0xf0, 0x0f, 0xff),
        ("and32", high | 0xff, 0x3c, 0x3c),
        ("xor32", high | 0xff, 0xffff_ffff, 0xffff_ff00),
        ("lsh32", high | 1, 31, 0x8000_0000),
        ("lsh32", high | 1, 32, 1),
        ("rsh32", high | 0x8000_0000, 31, 1),
        ("rsh32", high | 5, 32, 5),
        ("arsh32", high | 0x8000_0000, 31, 0xffff_ffff),
        ("arsh32", high | 0x8000_0000, 63, 0xffff_ffff),
        ("mov32", 5, 0xffff_fff6, 0xffff_fff6),
    ];
    for (op, a, b, expected) in cases {
        arithmetic(op, a, b, expected);
    }
    both("lddw r0, 0xdeadbeef00000001\nneg32 r0\nexit", 0xffff_ffff);
}

#[test]
fn sign_extending_moves() {
    let from = 0xdead_beef_8765_4f81u64;
    let cases = [
        ("movsx832", 0xffff_ff81),
        ("movsx1632", 0x4f81),
        ("movsx864", 0xffff_ffff_ffff_ff81),
        ("movsx1664", 0x4f81),
        ("movsx3264", 0xffff_ffff_8765_4f81),
    ];
    for (op, expected) in cases {
        both(&format!("lddw r1, {from:#x}\n{op} r0, r1\nexit"), expected);
    }
}

#[test]
fn byte_swaps() {
    let cases = [
        ("le16", 0x7788),
        ("le32", 0x5566_7788),
        ("le64", 0x1122_3344_5566_7788),
        ("be16", 0x8877),
        ("be32", 0x8877_6655),
        ("be64", 0x8877_6655_4433_2211),
        ("bswap16", 0x8877),
        ("bswap32", 0x8877_6655),
        ("bswap64", 0x8877_6655_4433_2211),
    ];
    for (op, expected) in cases {
        both(&format!("ldxdw r0, [r1]\n{op} r0\nexit"), expected);
    }
}

/// Each case states whether `a cond b` holds: (wide, narrow).
#[test]
fn conditions() {
    let (minus, one) = (MAX, 1);
    // Equal lower halves, different upper ones.
    let (upper, lower) = (0x1_0000_0005, 5);
    let table = [
        ("jeq", [(minus, minus, true, true), (upper, lower, false, true)]),
        ("jne", [(minus, minus, false, false), (upper, lower, true, false)]),
        ("jset", [(minus, one, true, true), (upper, 1 << 32, true, false)]),
        ("jgt", [(minus, one, true, true), (upper, lower, true, false)]),
        ("jge", [(one, minus, false, false), (lower, upper, false, true)]),
        ("jlt", [(one, minus, true, true), (lower, upper, true, false)]),
        ("jle", [(minus, one, false, false), (upper, lower, false, true)]),
        ("jsgt", [(one, minus, true, true), (upper, lower, true, false)]),
        ("jsge", [(minus, one, false, false), (lower, upper, false, true)]),
        ("jslt", [(minus, one, true, true), (lower, upper, true, false)]),
        ("jsle", [(one, minus, false, false), (upper, lower, false, true)]),
    ];
    for (op, cases) in table {
        for (a, b, wide, narrow) in cases {
            for (op, expected) in [(op.to_owned(), wide), (format!("{op}32"), narrow)] {
                let text = format!(
                    "mov r0, 1\nlddw r1, {a:#x}\nlddw r2, {b:#x}\n{op} r1, r2, out\nmov r0, 0\nout: exit"
                );
                both(&text, expected.into());
                if b as i32 as u64 == b {
                    let imm = b as i32;
                    let text =
                        format!("mov r0, 1\nlddw r1, {a:#x}\n{op} r1, {imm}, out\nmov r0, 0\nout: exit");
                    both(&text, expected.into());
                }
            }
        }
    }
}

#[test]
fn loads_and_stores() {
    let cases = [
        ("ldxb r0, [r1+7]", 0x11),
        ("ldxh r0, [r1+1]", 0x6677),
        ("ldxw r0, [r1+3]", 0x2233_4455),
        ("ldxdw r0, [r1]", 0x1122_3344_5566_7788),
        ("ldxsb r0, [r1]", 0xffff_ffff_ffff_ff88),
        ("ldxsh r0, [r1]", 0x7788),
        ("ldxsw r0, [r1]", 0x5566_7788),
        ("stb [r1+1], 0xff\nldxdw r0, [r1]", 0x1122_3344_5566_ff88),
        ("sth [r1+1], -2\nldxdw r0, [r1]", 0x1122_3344_55ff_fe88),
        ("stw [r1+4], -2\nldxdw r0, [r1]", 0xffff_fffe_5566_7788),
        ("stdw [r1], -2\nldxdw r0, [r1]", 0xffff_ffff_ffff_fffe),
        ("lddw r2, 0x1a2b3c4d5e6f7081\nstxb [r1], r2\nldxdw r0, [r1]", 0x1122_3344_5566_7781),
        ("lddw r2, 0x1a2b3c4d5e6f7081\nstxh [r1+3], r2\nldxdw r0, [r1]", 0x1122_3370_8166_7788),
        ("lddw r2, 0x1a2b3c4d5e6f7081\nstxw [r1+4], r2\nldxdw r0, [r1]", 0x5e6f_7081_5566_7788),
        ("lddw r2, 0x1a2b3c4d5e6f7081\nstxdw [r1], r2\nldxdw r0, [r1]", 0x1a2b_3c4d_5e6f_7081),
        ("ldxdw r0, [r10-512]", 0),
    ];
    for (text, expected) in cases {
        both(&format!("{text}\nexit"), expected);
    }
}

#[test]
fn atomics() {
    let memory = 0x1122_3344_5566_7788u64;
    // Operation, operand, memory afterwards for 8 bytes and for the lower 4 bytes.
    let table = [
        ("add", 0x1_0000_00f8, 0x1122_3345_5566_7880, 0x1122_3344_5566_7880),
        ("or", 0x1_0000_0077, 0x1122_3345_5566_77ff, 0x1122_3344_5566_77ff),
        ("and", 0xf_0000_00f0, 0x0000_0004_0000_0080, 0x1122_3344_0000_0080),
        ("xor", 0xf_0000_ffff, 0x1122_334b_5566_8877, 0x1122_3344_5566_8877),
        ("xchg", 0xf_0000_0001, 0xf_0000_0001, 0x1122_3344_0000_0001),
    ];
    for (op, operand, wide, narrow) in table {
        let run = |first: &str, op: &str, then: &str| {
            format!("lddw r2, {operand:#x}\nmov r0, r2\n{first} {op} [r1], r2\n{then}\nexit")
        };
        both(&run("lock", op, "ldxdw r0, [r1]"), wide);
        both(&run("lock", &format!("{op}32"), "ldxdw r0, [r1]"), narrow);
        both(&run("lock fetch", op, "mov r0, r2"), memory);
        both(&run("lock fetch", &format!("{op}32"), "mov r0, r2"), memory & 0xffff_ffff);
        if op != "xchg" {
            both(&run("lock", op, "mov r0, r2"), operand);
        }
    }
    let exchange = |expected: u64, op: &str, then: &str| {
        format!("lddw r0, {expected:#x}\nmov r2, 1\nlock {op} [r1], r2\n{then}\nexit")
    };
    both(&exchange(memory, "cmpxchg", "ldxdw r0, [r1]"), 1);
    both(&exchange(memory, "cmpxchg", ""), memory);
    both(&exchange(5, "cmpxchg", "ldxdw r0, [r1]"), memory);
    both(&exchange(5, "cmpxchg", ""), memory);
    both(&exchange(0xdead_0000_5566_7788, "cmpxchg32", "ldxdw r0, [r1]"), 0x1122_3344_0000_0001);
    both(&exchange(5, "cmpxchg32", ""), 0x5566_7788);
}

#[test]
fn jumps_and_calls() {
    both("mov r0, 1\nja over\nmov r0, 2\nover: exit", 1);
    both("mov r0, 1\nja32 over\nmov r0, 2\nover: exit", 1);
    both("mov r0, 0\nagain: add r0, 3\njlt r0, 30, again\nexit", 30);
    both("mov r1, 77\ncall 5\nexit", 77);
    let factorial = "mov r1, 6\ncall local f\nexit
        f: mov r6, r1\nmov r0, 1\njle r1, 1, done\nsub r1, 1\ncall local f\nmul r0, r6\ndone: exit";
    both(factorial, 720);
    let saved = "mov r6, 1\nmov r7, 2\nmov r8, 3\nmov r9, 4\ncall local f\nmov r0, r6\nadd r0, r7\nadd r0, r8
        add r0, r9\nexit\nf: mov r6, 9\nmov r7, 9\nmov r8, 9\nmov r9, 9\nmov r0, 0\nexit";
    both(saved, 10);
    let frames = "stdw [r10-8], 1\nmov r1, r10\ncall local f\nldxdw r1, [r10-8]\nadd r0, r1\nexit
        f: stdw [r10-8], 40\nstdw [r1-8], 2\nldxdw r0, [r10-8]\nexit";
    both(frames, 42);
}
