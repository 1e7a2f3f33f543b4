//! Accepted programs access only their own memory: random programs that the verifier accepts run on random
//! packets in the interpreter, which checks each access.
//!
//! The generator writes programs like compilers do (load the packet's ends, compare, access, look up, call,
//! loop) and makes mistakes: checks that are missing, off by one or inverted, stale pointers, wrong
//! registers. It therefore produces accepted and refused programs. PREVAIL does not terminate on some of
//! them, so each verification runs in a child with limits. The test has its own harness, because a zygote
//! is forked from a process with one thread.
//!
//! `P4SHIELD_EFFORT` and `P4SHIELD_SEED` select more and other programs.

#![allow(clippy::print_stdout, reason = "the test has its own harness")]

mod generator;

use std::time::Duration;

use p4shield_abi::info::InfoStatus;
use p4shield_bpf::verify::{Budget, Isolated, Limits, Refusal};
use p4shield_bpf::{EngineOptions, Meta, Mode, Packet, Program, Stop, Verified, VmInfo};

use generator::{Random, program};

/// Runs an accepted program on some packets. Returns the rule that it violated.
fn find_violation(verified: &Verified, r: &mut Random) -> Option<Stop> {
    let options = EngineOptions { mode: Mode::Interpreter, ..EngineOptions::default() };
    let mut program = Program::load(verified, &options).expect("loads");
    (0..12).find_map(|_| {
        let len = r.pick(&[0, 1, 13, 14, 15, 20, 34, 64, 128]);
        let bytes: Vec<u8> =
            (0..len).map(|_| if r.one_in(2) { r.next() as u8 } else { r.pick(&[0, 255, 1]) }).collect();
        let mut packet = Packet::new(r.pick(&[0, 16, 128]), 128);
        packet.reset(&bytes, 1500);
        let meta = Meta {
            input_port: r.next() as u32,
            direction: r.below(2) as u32,
            vm: r.pick(&[0, 1, 255, u32::MAX]),
            timestamp_ns: r.next(),
        };
        let stopped = program.run(&mut packet, &meta, &VmInfo::unknown(InfoStatus::Missing)).stopped;
        stopped.filter(|s| !matches!(s, Stop::Budget))
    })
}

fn main() {
    let n = p4shield_need::extent(600, 15_000);
    let seed = std::env::var("P4SHIELD_SEED").ok().and_then(|v| v.parse().ok()).unwrap_or(1);
    let budget = Budget { cpu: Duration::from_secs(1), ..Budget::default() };
    let mut verifier = Isolated::spawn().expect("this process has one thread");
    let (mut accepted, mut endless) = (0, 0);
    for i in seed..seed + n {
        let mut r = Random::new(i);
        let (text, linked) = program(&mut r);
        match verifier.verify(linked, &Limits::default(), &budget) {
            Ok((verified, _)) => {
                accepted += 1;
                if let Some(stop) = find_violation(&verified, &mut r) {
                    panic!("seed {i}: the verifier accepted a program that violates a rule: {stop}\n{text}");
                }
            }
            Err(Refusal::Program(_)) => {}
            Err(Refusal::Resources { .. }) => endless += 1,
            Err(Refusal::Unavailable { cause }) => panic!("seed {i}: {cause}\n{text}"),
        }
    }
    // With far more or far fewer accepted programs, the generator tests little.
    assert!(accepted * 20 > n && accepted * 10 < n * 9, "{accepted} of {n} programs were accepted");
    println!(
        "{accepted} of {n} programs were accepted and accessed only their memory; {endless} exceeded a limit"
    );
}
