//! Accepted programs access only their own memory: random programs that the verifier accepts run on random
//! packets in the interpreter, which checks each access.
//!
//! The generator writes programs like compilers do (load the packet's ends, compare, access, look up, call,
//! loop) and makes mistakes: checks that are missing, off by one or inverted, stale pointers, wrong
//! registers. It therefore produces accepted and refused programs. PREVAIL does not terminate on some of
//! them, so each verification runs in a child with limits. The test has its own harness, because a zygote
//! is forked from a process with one thread.
//!
//! `P4SHIELD_VERIFY_PROGRAMS` and `P4SHIELD_SEED` select more and other programs.

#![allow(clippy::print_stdout, reason = "the test has its own harness")]

use std::time::Duration;

use p4shield_abi::info::InfoStatus;
use p4shield_bpf::asm::assemble;
use p4shield_bpf::verify::{Budget, Isolated, Limits, Refusal};
use p4shield_bpf::{EngineOptions, Linked, Meta, Mode, Packet, Program, Stop, Verified, VmInfo};

struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        let mut r = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for _ in 0..4 {
            r.next();
        }
        r
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() >> 33) as usize % n
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

/// The generator's guess of a register's contents, which may deliberately be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RegisterKind {
    Nothing,
    Number,
    Packet,
    End,
    Stack,
    Value,
}

const POINTERS: [RegisterKind; 3] = [RegisterKind::Packet, RegisterKind::Stack, RegisterKind::Value];
/// r6 holds the context throughout the program.
const REGISTERS: [usize; 8] = [0, 2, 3, 4, 5, 7, 8, 9];
const MASKS: [u64; 7] = [1, 3, 7, 15, 31, 63, 0xff];
const SIZES: [(&str, i64); 4] = [("b", 1), ("h", 2), ("w", 4), ("dw", 8)];

struct Writer<'a> {
    r: &'a mut Random,
    lines: Vec<String>,
    kinds: [RegisterKind; 11],
    labels: usize,
    /// Label of the function's end.
    out: String,
    /// Nesting depth of loops.
    nested: usize,
}

impl Writer<'_> {
    fn put(&mut self, line: impl Into<String>) {
        // Omits a line now and then: the most natural mistake.
        if !self.r.one_in(60) {
            self.lines.push(line.into());
        }
    }

    fn any(&mut self) -> usize {
        self.r.pick(&REGISTERS)
    }

    /// Returns a register of one of these kinds if there is one, and sometimes another.
    fn of(&mut self, kinds: &[RegisterKind]) -> usize {
        let found: Vec<usize> = REGISTERS.into_iter().filter(|n| kinds.contains(&self.kinds[*n])).collect();
        if found.is_empty() || self.r.one_in(40) { self.any() } else { self.r.pick(&found) }
    }

    fn set(&mut self, register: usize, kind: RegisterKind) {
        self.kinds[register] = kind;
    }

    fn number(&mut self) {
        let d = self.any();
        match self.r.below(4) {
            0 => {
                let v = self.r.pick(&[
                    0i64,
                    1,
                    2,
                    7,
                    8,
                    14,
                    16,
                    64,
                    255,
                    -1,
                    -8,
                    i64::from(i32::MAX),
                    i64::from(i32::MIN),
                ]);
                self.put(format!("mov r{d}, {v}"));
            }
            1 => {
                let (size, _) = self.r.pick(&SIZES[..3]);
                let off = 16 + 4 * self.r.below(8);
                self.put(format!("ldx{size} r{d}, [r6+{off}]"));
            }
            2 => self.put(format!("lddw r{d}, {:#x}", self.r.0)),
            _ => {
                let s = self.of(&[RegisterKind::Number]);
                self.put(format!("mov r{d}, r{s}"));
            }
        }
        self.set(d, RegisterKind::Number);
        let limit = self.r.below(3);
        if limit == 0 {
            let mask = self.r.pick(&MASKS);
            self.put(format!("and r{d}, {mask}"));
        } else if limit == 1 {
            let (mask, c) =
                (self.r.pick(&MASKS), self.r.pick(&["jgt", "jge", "jsgt", "jgt32", "jsge32", "jset", "jne"]));
            let out = self.out.clone();
            self.put(format!("{c} r{d}, {mask}, {out}"));
        }
    }

    fn arithmetic(&mut self) {
        const OPS: [&str; 12] =
            ["add", "sub", "mul", "div", "mod", "or", "and", "xor", "lsh", "rsh", "arsh", "sdiv"];
        let (d, op) = (self.of(&[RegisterKind::Number]), self.r.pick(&OPS));
        let width = self.r.pick(&["", "32"]);
        if self.r.one_in(2) {
            let s = self.of(&[RegisterKind::Number]);
            self.put(format!("{op}{width} r{d}, r{s}"));
        } else {
            let v = self.r.pick(&[1, 2, 3, 4, 8, 16, 31, 255, -1]);
            self.put(format!("{op}{width} r{d}, {v}"));
        }
        if self.r.one_in(4) {
            let swap =
                self.r.pick(&["be16", "be32", "be64", "le16", "le32", "bswap16", "bswap64", "neg", "neg32"]);
            self.put(format!("{swap} r{d}"));
        }
    }

    fn packet(&mut self) {
        let (p, e) = (self.any(), self.any());
        self.put(format!("ldxdw r{p}, [r6+0]"));
        self.set(p, RegisterKind::Packet);
        if p == e {
            return;
        }
        self.put(format!("ldxdw r{e}, [r6+8]"));
        self.set(e, RegisterKind::End);
    }

    fn bounds(&mut self) {
        let (p, e) = (self.of(&[RegisterKind::Packet]), self.of(&[RegisterKind::End]));
        let t = self.any();
        let n = self.r.pick(&[1, 2, 4, 8, 14, 20, 34]);
        let out = self.out.clone();
        if t == p || t == e || self.r.one_in(8) {
            let c = self.r.pick(&["jge", "jgt", "jeq", "jsge"]);
            self.put(format!("{c} r{p}, r{e}, {out}"));
            return;
        }
        self.put(format!("mov r{t}, r{p}"));
        self.put(format!("add r{t}, {n}"));
        let line = match self.r.below(12) {
            0 => format!("jlt r{e}, r{t}, {out}"),
            1 => format!("jge r{t}, r{e}, {out}"),
            2 => format!("jgt32 r{t}, r{e}, {out}"),
            3 => format!("jsgt r{t}, r{e}, {out}"),
            4 => format!("jlt r{t}, r{e}, {out}"),
            _ => format!("jgt r{t}, r{e}, {out}"),
        };
        self.put(line);
        self.set(t, RegisterKind::Packet);
    }

    fn stack_pointer(&mut self) {
        let d = self.any();
        self.put(format!("mov r{d}, r10"));
        let off = -8 * (1 + self.r.below(10) as i64);
        self.put(format!("add r{d}, {off}"));
        self.set(d, RegisterKind::Stack);
    }

    fn move_pointer(&mut self) {
        let p = self.of(&POINTERS);
        match self.r.below(4) {
            0 => {
                let v = self.r.pick(&[1, 2, 4, 8, 14, -1, -4, -8]);
                self.put(format!("add r{p}, {v}"));
            }
            1 => {
                let d = self.any();
                self.put(format!("mov r{d}, r{p}"));
                self.set(d, self.kinds[p]);
            }
            2 => {
                let (s, op) =
                    (self.of(&[RegisterKind::Number]), self.r.pick(&["add", "add", "add", "sub", "add32"]));
                self.put(format!("{op} r{p}, r{s}"));
            }
            _ => {
                let (d, e) =
                    (self.of(&[RegisterKind::End, RegisterKind::Packet]), self.of(&[RegisterKind::Packet]));
                self.put(format!("sub r{d}, r{e}"));
                self.set(d, RegisterKind::Number);
            }
        }
    }

    fn access(&mut self) {
        let p = self.of(&POINTERS);
        let (size, bytes) = self.r.pick(&SIZES);
        let off = match self.r.below(4) {
            0 => self.r.below(24) as i64 - 4,
            _ => bytes * self.r.below((16 / bytes) as usize) as i64,
        };
        match self.r.below(8) {
            0..=2 => {
                let (d, sign) = (self.any(), if bytes < 8 && self.r.one_in(3) { "s" } else { "" });
                self.put(format!("ldx{sign}{size} r{d}, [r{p}{off:+}]"));
                self.set(d, RegisterKind::Number);
            }
            3..=5 => {
                let s = self.of(&[RegisterKind::Number]);
                self.put(format!("stx{size} [r{p}{off:+}], r{s}"));
            }
            6 => {
                let v = self.r.pick(&[0, 1, -1, 255]);
                self.put(format!("st{size} [r{p}{off:+}], {v}"));
            }
            _ => {
                let s = self.of(&[RegisterKind::Number]);
                let op = self.r.pick(&["add", "or32", "fetch add", "fetch xor32", "xchg", "cmpxchg"]);
                self.put(format!("lock {op} [r{p}{off:+}], r{s}"));
            }
        }
    }

    fn spill(&mut self) {
        let (s, d) = (self.any(), self.any());
        let off = -8 * (1 + self.r.below(6) as i64);
        let (size, shift) =
            self.r.pick(&[("dw", 0), ("dw", 0), ("dw", 0), ("w", 0), ("w", 4), ("b", 3), ("dw", -3)]);
        self.put(format!("stxdw [r10{off:+}], r{s}"));
        if self.r.one_in(4) {
            self.put(format!("st{size} [r10{:+}], -1", off + shift));
        }
        if self.r.one_in(2) {
            self.put(format!("ldx{size} r{d}, [r10{:+}]", off + shift));
            self.set(d, self.kinds[s]);
        }
    }

    fn lookup(&mut self) {
        let key =
            if self.r.one_in(2) { format!("r{}", self.of(&[RegisterKind::Number])) } else { "0".to_owned() };
        let store = if key.starts_with('r') { "stxw" } else { "stw" };
        let map = self.r.pick(&["one", "many", "prefixes"]);
        self.put(format!("{store} [r10-4], {key}"));
        self.put("stw [r10-8], 16");
        let off = if map == "prefixes" { -8 } else { -4 };
        self.put("mov r2, r10");
        self.put(format!("add r2, {off}"));
        self.put(format!("lddw r1, map {map}"));
        match self.r.below(6) {
            0 => {
                self.put("mov r3, r10");
                self.put("add r3, -32");
                self.put("stdw [r10-32], 7");
                self.put("stdw [r10-24], -7");
                self.put("mov r4, 0");
                self.put("call 2");
                self.clobber(RegisterKind::Number);
                return;
            }
            1 => {
                self.put("call 3");
                self.clobber(RegisterKind::Number);
                return;
            }
            _ => self.put("call 1"),
        }
        self.clobber(RegisterKind::Value);
        let c = self.r.pick(&["jeq", "jeq", "jeq", "jeq", "jne", "jle"]);
        let out = self.out.clone();
        self.put(format!("{c} r0, 0, {out}"));
        let d = self.r.pick(&[7, 8, 9]);
        self.put(format!("mov r{d}, r0"));
        self.set(d, RegisterKind::Value);
    }

    fn clobber(&mut self, result: RegisterKind) {
        self.kinds[1..6].fill(RegisterKind::Nothing);
        self.set(0, result);
    }

    fn resize(&mut self) {
        let delta = self.r.pick(&[-14, -4, 4, 14, -200, 0]);
        let helper = self.r.pick(&[44, 44, 65]);
        self.put("mov r1, r6");
        self.put(format!("mov r2, {delta}"));
        self.put(format!("call {helper}"));
        self.clobber(RegisterKind::Number);
        if !self.r.one_in(5) {
            for k in &mut self.kinds {
                if matches!(k, RegisterKind::Packet | RegisterKind::End) {
                    *k = RegisterKind::Nothing;
                }
            }
        }
    }

    fn rounds(&mut self) {
        if self.nested >= 2 {
            return;
        }
        let i = self.any();
        let n = 2 + self.r.below(6);
        let label = format!("again{}{}", self.out, self.labels);
        self.labels += 1;
        self.put(format!("mov r{i}, 0"));
        self.set(i, RegisterKind::Nothing);
        self.lines.push(format!("{label}:"));
        self.nested += 1;
        for _ in 0..1 + self.r.below(4) {
            self.piece();
        }
        self.nested -= 1;
        self.put(format!("add r{i}, 1"));
        self.put(format!("jlt r{i}, {n}, {label}"));
    }

    fn skip(&mut self) {
        let label = format!("skip{}{}", self.out, self.labels);
        self.labels += 1;
        let (s, c) = (
            self.of(&[RegisterKind::Number]),
            self.r.pick(&["jeq", "jgt", "jslt", "jset32", "jle32", "jne"]),
        );
        let v = self.r.pick(&[0, 1, 7, 100, -1]);
        self.put(format!("{c} r{s}, {v}, {label}"));
        for _ in 0..1 + self.r.below(3) {
            self.piece();
        }
        self.lines.push(format!("{label}:"));
    }

    fn call(&mut self) {
        if self.out != "out" {
            return;
        }
        let p = self.of(&POINTERS);
        self.put(format!("mov r1, r{p}"));
        let n = self.of(&[RegisterKind::Number]);
        self.put(format!("mov r2, r{n}"));
        self.lines.push("call local f".to_owned());
        self.clobber(RegisterKind::Number);
    }

    fn piece(&mut self) {
        match self.r.below(21) {
            0..=2 => self.number(),
            3 | 4 => self.arithmetic(),
            5 | 6 => self.packet(),
            7..=9 => self.bounds(),
            10 => self.stack_pointer(),
            11 | 12 => self.move_pointer(),
            13..=15 => self.access(),
            16 => self.spill(),
            17 => self.lookup(),
            18 => self.resize(),
            19 => self.rounds(),
            _ if self.r.one_in(2) => self.skip(),
            _ => self.call(),
        }
    }
}

/// Returns a function: its initial lines and register kinds, then random pieces.
fn function(
    r: &mut Random,
    out: &str,
    first: &[&str],
    kinds: &[(usize, RegisterKind)],
    pieces: usize,
) -> Vec<String> {
    let lines = first.iter().map(|l| (*l).to_owned()).collect();
    let mut w =
        Writer { r, lines, kinds: [RegisterKind::Nothing; 11], labels: 0, out: out.to_owned(), nested: 0 };
    for (n, k) in kinds {
        w.kinds[*n] = *k;
    }
    for _ in 0..pieces {
        w.piece();
    }
    w.lines.push(format!("{out}: mov r0, 1\nexit"));
    w.lines
}

fn program(r: &mut Random) -> (String, Linked) {
    let pieces = 3 + r.below(12);
    let mut lines = vec![
        ".map one array 4 16 1".to_owned(),
        ".map many hash 4 16 4".to_owned(),
        ".map prefixes lpm 8 16 4".to_owned(),
    ];
    let start = ["mov r6, r1", "ldxdw r7, [r6+0]", "ldxdw r8, [r6+8]", "mov r9, 0", "mov r0, 0"];
    let held = [
        (7, RegisterKind::Packet),
        (8, RegisterKind::End),
        (9, RegisterKind::Number),
        (0, RegisterKind::Number),
    ];
    lines.extend(function(r, "out", &start, &held, pieces));
    if lines.iter().any(|l| l == "call local f") {
        let pieces = 1 + r.below(4);
        let held = [(7, RegisterKind::Packet), (9, RegisterKind::Number), (0, RegisterKind::Number)];
        lines.push("f:".to_owned());
        // A function has no context, so pieces that need one are refused.
        let start = ["mov r7, r1", "mov r9, r2", "mov r0, 0", "mov r6, 0"];
        lines.extend(function(r, "outf", &start, &held, pieces));
    }
    let text = lines.join("\n");
    let linked = assemble(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    (text, linked)
}

/// Runs an accepted program on some packets. Returns why it was stopped for a violation.
fn breaks_out(verified: &Verified, r: &mut Random) -> Option<Stop> {
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

/// Number of generated programs by default.
const PROGRAMS: u64 = 1500;

fn environment(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

fn main() {
    let (n, seed) = (environment("P4SHIELD_VERIFY_PROGRAMS", PROGRAMS), environment("P4SHIELD_SEED", 1));
    let budget = Budget { cpu: Duration::from_secs(1), ..Budget::default() };
    let mut verifier = Isolated::spawn().expect("this process has one thread");
    let (mut accepted, mut endless) = (0, 0);
    for i in seed..seed + n {
        let mut r = Random::new(i);
        let (text, linked) = program(&mut r);
        match verifier.verify(linked, &Limits::default(), &budget) {
            Ok((verified, _)) => {
                accepted += 1;
                if let Some(stop) = breaks_out(&verified, &mut r) {
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
