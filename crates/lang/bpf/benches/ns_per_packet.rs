//! Nanoseconds per packet of a program like `tcp_guard.p4`, and of parts of a run.
//!
//! `cargo bench -p p4shield-bpf --bench ns_per_packet`. Each figure is the minimum of many rounds,
//! which excludes other load on the machine.

#![allow(clippy::print_stdout, reason = "it prints a report")]

use std::hint::black_box;
use std::time::Instant;

use p4shield_abi::Verdict;
use p4shield_abi::info::{InfoStatus, Snapshot, field};
use p4shield_bpf::asm::assemble;
use p4shield_bpf::maps::UpdateFlag;
use p4shield_bpf::{EngineOptions, Meta, Mode, Packet, Program, Verified, VmInfo};

const ROUNDS: usize = 200;
const PACKETS: u32 = 20_000;

/// The first 128 bytes of a SYN over IPv4.
fn syn() -> [u8; 128] {
    let mut p = [0; 128];
    (p[12], p[14], p[23], p[47]) = (8, 0x45, 6, 2);
    p
}

fn least(mut f: impl FnMut()) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..PACKETS {
            f();
        }
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(PACKETS));
    }
    best
}

fn load(text: &str, mode: Mode) -> Program {
    let linked = assemble(text).expect("right");
    // SAFETY: these programs check bounds before each access.
    let verified = unsafe { Verified::assume(linked) };
    Program::load(&verified, &EngineOptions { mode, ..EngineOptions::default() }).expect("loads")
}

/// Inserts ten thousand prefixes of various lengths, one of them 0.0.0.0/0.
fn fill(program: &mut Program) {
    let Some(routes) = program.maps_mut().and_then(|m| m.get_mut("routes")) else { return };
    for i in 0..10_000u32 {
        let address = i.wrapping_mul(2_654_435_761).to_be_bytes();
        let length = if i == 0 { 0 } else { 8 + i % 25 };
        let key = [length.to_ne_bytes(), address].concat();
        // Some of the short prefixes are equal.
        let _ = routes.update(&key, &[1, 0, 0, 0], UpdateFlag::Any);
    }
}

fn main() {
    let mut snapshot = Snapshot::default();
    snapshot.set(field::TCP_MEM_USED, 1 << 20);
    snapshot.set(field::TCP_MEM_THRESHOLD, 2 << 20);
    let info = VmInfo::new(&snapshot, InfoStatus::Known);
    let (header, meta) = (syn(), Meta::default());
    let mut packet = Packet::new(128, 128);
    packet.reset(&header, 1500);

    let copy = least(|| black_box(&mut packet).reset(black_box(&header), 1500));
    println!("{:<44}{copy:8.2} ns", "copy of a 128-byte header into the buffer");
    let array = ".map a array 4 8 16\nstdw [r10-8], 3\nlddw r1, map a\nmov r2, r10\nadd r2, -8\ncall 1\n\
                 jeq r0, 0, out\nmov r1, 1\nlock add [r0], r1\nout: mov r0, 1\nexit";
    let hash = ".map h hash 8 8 16\nstdw [r10-8], 3\nlddw r1, map h\nmov r2, r10\nadd r2, -8\ncall 1\n\
                 mov r0, 1\nexit";
    let lpm = ".map routes lpm 8 4 10000\nstw [r10-8], 32\nstw [r10-4], 0x31c0a87b\nlddw r1, map routes\n\
               mov r2, r10\nadd r2, -8\ncall 1\njeq r0, 0, out\nldxw r0, [r0]\nout: exit";
    let loops = "mov r0, 1\nmov r1, 0\nagain: add r1, 1\njlt r1, 1000, again\nexit";
    let programs = [
        ("empty program", "mov r0, 1\nexit"),
        ("tcp_guard", include_str!("tcp_guard.asm")),
        ("array lookup and count", array),
        ("hash lookup, 8-byte key", hash),
        ("LPM lookup among 10000 IPv4 prefixes", lpm),
        ("loop of 1000 rounds", loops),
    ];
    for (name, text) in programs {
        for mode in [Mode::Jit, Mode::Interpreter] {
            let mut program = load(text, mode);
            fill(&mut program);
            let result = program.run(&mut packet, &meta, &info);
            assert_eq!(result.verdict, Verdict::Pass, "{name}: {result:?}");
            let ns = least(|| {
                black_box(program.run(&mut packet, black_box(&meta), black_box(&info)));
            });
            println!("{:<44}{ns:8.2} ns", format!("{name}, {mode:?}"));
        }
    }
}
