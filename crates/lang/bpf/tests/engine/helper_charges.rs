//! Helpers charge the instruction budget by the size of their work, the same in both engines.

use p4shield_abi::Verdict;
use p4shield_abi::info::InfoStatus;
use p4shield_bpf::asm::assemble;
use p4shield_bpf::verify::{Limits, check};
use p4shield_bpf::{EngineOptions, Linked, Meta, Mode, Packet, Program, Stop, Verified, VmInfo};

const MODES: [Mode; 2] = [Mode::Interpreter, Mode::Jit];

fn load(linked: Linked, mode: Mode, budget: u64) -> Program {
    let options = EngineOptions { mode, budget, ..EngineOptions::default() };
    // SAFETY: the programs of this file only access their own memory.
    Program::load(&unsafe { Verified::assume(linked) }, &options).expect("loads")
}

fn packet() -> Packet {
    let mut packet = Packet::new(128, 128);
    packet.reset(&[0x11; 60], 60);
    packet
}

/// Hashes a value of 64 KiB 40,000 times, which takes seconds.
const EXPENSIVE: &str = ".map big array 4 65536 1
    stw [r10-4], 0
    mov r7, 0
again:
    lddw r1, map big
    mov r2, r10
    add r2, -4
    call 1
    jeq r0, 0, out
    mov r1, r0
    mov r2, 65536
    mov r3, 0
    call 1010
    add r7, 1
    jlt r7, 40000, again
out:
    mov r0, 1
    exit";

#[test]
fn expensive_helpers_are_stopped() {
    let linked = assemble(EXPENSIVE).expect("right");
    check(&linked, &Limits::default()).expect("is safe");
    for mode in MODES {
        let mut program = load(linked.clone(), mode, 1 << 20);
        let result = program.run(&mut packet(), &Meta::default(), &VmInfo::unknown(InfoStatus::Missing));
        assert_eq!((result.verdict, result.stopped), (Verdict::Drop, Some(Stop::Budget)), "{mode:?}");
    }
}

/// Returns the least budget with which a program ends, which has to be the same in both engines.
fn least_budget(text: &str) -> u64 {
    let text = format!("{text}\nmov r0, 1\nexit");
    let stopped = |mode, budget| {
        let linked = assemble(&text).unwrap_or_else(|e| panic!("{e}"));
        let mut program = load(linked, mode, budget);
        program.run(&mut packet(), &Meta::default(), &VmInfo::unknown(InfoStatus::Missing)).stopped
    };
    let slots = assemble(&text).map_or(0, |linked| linked.insns.len() as u64);
    let least =
        (slots..1 << 16).find(|&budget| stopped(Mode::Interpreter, budget).is_none()).expect("it ends");
    for budget in slots.max(least.saturating_sub(2))..least + 2 {
        let expected = (budget < least).then_some(Stop::Budget);
        assert_eq!(MODES.map(|mode| stopped(mode, budget)), [expected; 2], "{budget} of {least}: {text}");
    }
    least
}

#[test]
fn both_engines_charge_helpers_by_size() {
    let hash = |algorithm: u32, n: u32| {
        format!("mov r1, r10\nadd r1, -{n}\nmov r2, {n}\nmov r3, {algorithm}\nmov r4, 0\ncall 1010")
    };
    let map = |kind: &str, key: u32, value: u32, helper: u32| {
        format!(
            ".map m {kind} {key} {value} 4\nstw [r10-256], 0\nlddw r1, map m\nmov r2, r10\nadd r2, -256\n\
             mov r3, r10\nadd r3, -512\nmov r4, 0\ncall {helper}"
        )
    };
    let packet = |call: &str| format!("mov r6, r1\ncall 1013\nmov r1, r6\n{call}");
    let joined = |n: u32| {
        format!(
            "mov r2, r10\nadd r2, -8\nmov r1, r2\nmov r2, 8\nmov r3, 0\nmov r4, 0\nlddw r5, {:#x}\n\
                 call 1016",
            u64::from(n) << 32
        )
    };
    let mut pairs: Vec<[String; 2]> =
        [0, 1, 3, 4, 6, 7].map(|algorithm| [hash(algorithm, 8), hash(algorithm, 256)]).into();
    pairs.extend([
        [map("array", 4, 8, 2), map("array", 4, 512, 2)],
        [map("hash", 4, 8, 1), map("hash", 256, 8, 1)],
        [map("hash", 4, 8, 2), map("hash", 4, 512, 2)],
        [map("hash", 4, 8, 3), map("hash", 256, 8, 3)],
        [map("lpm", 8, 8, 1), map("lpm", 20, 8, 1)],
        [map("lpm", 8, 8, 2), map("lpm", 8, 512, 2)],
        [packet("mov r2, 59\ncall 1011"), packet("mov r2, 0\ncall 1011")],
        [
            packet("mov r2, 0\nmov r3, 0\nmov r4, 4\ncall 1014"),
            packet("mov r2, 0\nmov r3, 0\nmov r4, 60\ncall 1014"),
        ],
        [
            packet("mov r2, 0\nmov r3, 0\nmov r4, 4\ncall 1015"),
            packet("mov r2, 0\nmov r3, 0\nmov r4, 60\ncall 1015"),
        ],
        [joined(1), joined(60)],
    ]);
    for pair in &pairs {
        let [small, large] = pair.each_ref().map(|text| least_budget(text));
        assert!(small < large, "{small} and {large}: {pair:?}");
    }
    // The charge of a function that others call, within a loop.
    let nested = "mov r6, 0\nagain: add r6, 1\ncall local f\njlt r6, 20, again\nmov r0, 1\nexit
        f: mov r1, r10\nadd r1, -64\nmov r2, 64\nmov r3, 0\ncall 1010\nmov r0, 0";
    assert!(least_budget(nested) > 20 * 64);
}
