//! Generates random programs.

use p4shield_bpf::Linked;
use p4shield_bpf::asm::assemble;

/// The random-number generator xorshift64*.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        let mut r = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for _ in 0..4 {
            r.next();
        }
        r
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() >> 33) as usize % n
    }

    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

/// The generator's guess of a register's contents, which may deliberately be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RegisterKind {
    Unknown,
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
    fn emit(&mut self, line: impl Into<String>) {
        // Omits a line now and then: the most natural mistake.
        if !self.r.one_in(60) {
            self.lines.push(line.into());
        }
    }

    fn any_register(&mut self) -> usize {
        self.r.pick(&REGISTERS)
    }

    /// Returns a register of one of these kinds if there is one, and sometimes another.
    fn register_of(&mut self, kinds: &[RegisterKind]) -> usize {
        let found: Vec<usize> = REGISTERS.into_iter().filter(|n| kinds.contains(&self.kinds[*n])).collect();
        if found.is_empty() || self.r.one_in(40) { self.any_register() } else { self.r.pick(&found) }
    }

    fn set_kind(&mut self, register: usize, kind: RegisterKind) {
        self.kinds[register] = kind;
    }

    fn load_number(&mut self) {
        let d = self.any_register();
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
                self.emit(format!("mov r{d}, {v}"));
            }
            1 => {
                let (size, _) = self.r.pick(&SIZES[..3]);
                let off = 16 + 4 * self.r.below(8);
                self.emit(format!("ldx{size} r{d}, [r6+{off}]"));
            }
            2 => self.emit(format!("lddw r{d}, {:#x}", self.r.0)),
            _ => {
                let s = self.register_of(&[RegisterKind::Number]);
                self.emit(format!("mov r{d}, r{s}"));
            }
        }
        self.set_kind(d, RegisterKind::Number);
        let limit = self.r.below(3);
        if limit == 0 {
            let mask = self.r.pick(&MASKS);
            self.emit(format!("and r{d}, {mask}"));
        } else if limit == 1 {
            let (mask, c) =
                (self.r.pick(&MASKS), self.r.pick(&["jgt", "jge", "jsgt", "jgt32", "jsge32", "jset", "jne"]));
            let out = self.out.clone();
            self.emit(format!("{c} r{d}, {mask}, {out}"));
        }
    }

    fn arithmetic(&mut self) {
        const OPS: [&str; 12] =
            ["add", "sub", "mul", "div", "mod", "or", "and", "xor", "lsh", "rsh", "arsh", "sdiv"];
        let (d, op) = (self.register_of(&[RegisterKind::Number]), self.r.pick(&OPS));
        let width = self.r.pick(&["", "32"]);
        if self.r.one_in(2) {
            let s = self.register_of(&[RegisterKind::Number]);
            self.emit(format!("{op}{width} r{d}, r{s}"));
        } else {
            let v = self.r.pick(&[1, 2, 3, 4, 8, 16, 31, 255, -1]);
            self.emit(format!("{op}{width} r{d}, {v}"));
        }
        if self.r.one_in(4) {
            let swap =
                self.r.pick(&["be16", "be32", "be64", "le16", "le32", "bswap16", "bswap64", "neg", "neg32"]);
            self.emit(format!("{swap} r{d}"));
        }
    }

    fn load_packet(&mut self) {
        let (p, e) = (self.any_register(), self.any_register());
        self.emit(format!("ldxdw r{p}, [r6+0]"));
        self.set_kind(p, RegisterKind::Packet);
        if p == e {
            return;
        }
        self.emit(format!("ldxdw r{e}, [r6+8]"));
        self.set_kind(e, RegisterKind::End);
    }

    fn check_bounds(&mut self) {
        let (p, e) = (self.register_of(&[RegisterKind::Packet]), self.register_of(&[RegisterKind::End]));
        let t = self.any_register();
        let n = self.r.pick(&[1, 2, 4, 8, 14, 20, 34]);
        let out = self.out.clone();
        if t == p || t == e || self.r.one_in(8) {
            let c = self.r.pick(&["jge", "jgt", "jeq", "jsge"]);
            self.emit(format!("{c} r{p}, r{e}, {out}"));
            return;
        }
        self.emit(format!("mov r{t}, r{p}"));
        self.emit(format!("add r{t}, {n}"));
        let line = match self.r.below(12) {
            0 => format!("jlt r{e}, r{t}, {out}"),
            1 => format!("jge r{t}, r{e}, {out}"),
            2 => format!("jgt32 r{t}, r{e}, {out}"),
            3 => format!("jsgt r{t}, r{e}, {out}"),
            4 => format!("jlt r{t}, r{e}, {out}"),
            _ => format!("jgt r{t}, r{e}, {out}"),
        };
        self.emit(line);
        self.set_kind(t, RegisterKind::Packet);
    }

    fn stack_pointer(&mut self) {
        let d = self.any_register();
        self.emit(format!("mov r{d}, r10"));
        let off = -8 * (1 + self.r.below(10) as i64);
        self.emit(format!("add r{d}, {off}"));
        self.set_kind(d, RegisterKind::Stack);
    }

    fn move_pointer(&mut self) {
        let p = self.register_of(&POINTERS);
        match self.r.below(4) {
            0 => {
                let v = self.r.pick(&[1, 2, 4, 8, 14, -1, -4, -8]);
                self.emit(format!("add r{p}, {v}"));
            }
            1 => {
                let d = self.any_register();
                self.emit(format!("mov r{d}, r{p}"));
                self.set_kind(d, self.kinds[p]);
            }
            2 => {
                let (s, op) = (
                    self.register_of(&[RegisterKind::Number]),
                    self.r.pick(&["add", "add", "add", "sub", "add32"]),
                );
                self.emit(format!("{op} r{p}, r{s}"));
            }
            _ => {
                let (d, e) = (
                    self.register_of(&[RegisterKind::End, RegisterKind::Packet]),
                    self.register_of(&[RegisterKind::Packet]),
                );
                self.emit(format!("sub r{d}, r{e}"));
                self.set_kind(d, RegisterKind::Number);
            }
        }
    }

    fn access(&mut self) {
        let p = self.register_of(&POINTERS);
        let (size, bytes) = self.r.pick(&SIZES);
        let off = match self.r.below(4) {
            0 => self.r.below(24) as i64 - 4,
            _ => bytes * self.r.below((16 / bytes) as usize) as i64,
        };
        match self.r.below(8) {
            0..=2 => {
                let (d, sign) = (self.any_register(), if bytes < 8 && self.r.one_in(3) { "s" } else { "" });
                self.emit(format!("ldx{sign}{size} r{d}, [r{p}{off:+}]"));
                self.set_kind(d, RegisterKind::Number);
            }
            3..=5 => {
                let s = self.register_of(&[RegisterKind::Number]);
                self.emit(format!("stx{size} [r{p}{off:+}], r{s}"));
            }
            6 => {
                let v = self.r.pick(&[0, 1, -1, 255]);
                self.emit(format!("st{size} [r{p}{off:+}], {v}"));
            }
            _ => {
                let s = self.register_of(&[RegisterKind::Number]);
                let op = self.r.pick(&["add", "or32", "fetch add", "fetch xor32", "xchg", "cmpxchg"]);
                self.emit(format!("lock {op} [r{p}{off:+}], r{s}"));
            }
        }
    }

    fn spill_and_reload(&mut self) {
        let (s, d) = (self.any_register(), self.any_register());
        let off = -8 * (1 + self.r.below(6) as i64);
        let (size, shift) =
            self.r.pick(&[("dw", 0), ("dw", 0), ("dw", 0), ("w", 0), ("w", 4), ("b", 3), ("dw", -3)]);
        self.emit(format!("stxdw [r10{off:+}], r{s}"));
        if self.r.one_in(4) {
            self.emit(format!("st{size} [r10{:+}], -1", off + shift));
        }
        if self.r.one_in(2) {
            self.emit(format!("ldx{size} r{d}, [r10{:+}]", off + shift));
            self.set_kind(d, self.kinds[s]);
        }
    }

    fn use_map(&mut self) {
        let key = if self.r.one_in(2) {
            format!("r{}", self.register_of(&[RegisterKind::Number]))
        } else {
            "0".to_owned()
        };
        let store = if key.starts_with('r') { "stxw" } else { "stw" };
        let map = self.r.pick(&["one", "many", "prefixes"]);
        self.emit(format!("{store} [r10-4], {key}"));
        self.emit("stw [r10-8], 16");
        let off = if map == "prefixes" { -8 } else { -4 };
        self.emit("mov r2, r10");
        self.emit(format!("add r2, {off}"));
        self.emit(format!("lddw r1, map {map}"));
        match self.r.below(6) {
            0 => {
                self.emit("mov r3, r10");
                self.emit("add r3, -32");
                self.emit("stdw [r10-32], 7");
                self.emit("stdw [r10-24], -7");
                self.emit("mov r4, 0");
                self.emit("call 2");
                self.clobber(RegisterKind::Number);
                return;
            }
            1 => {
                self.emit("call 3");
                self.clobber(RegisterKind::Number);
                return;
            }
            _ => self.emit("call 1"),
        }
        self.clobber(RegisterKind::Value);
        let c = self.r.pick(&["jeq", "jeq", "jeq", "jeq", "jne", "jle"]);
        let out = self.out.clone();
        self.emit(format!("{c} r0, 0, {out}"));
        let d = self.r.pick(&[7, 8, 9]);
        self.emit(format!("mov r{d}, r0"));
        self.set_kind(d, RegisterKind::Value);
    }

    fn clobber(&mut self, result: RegisterKind) {
        self.kinds[1..6].fill(RegisterKind::Unknown);
        self.set_kind(0, result);
    }

    fn resize_packet(&mut self) {
        let delta = self.r.pick(&[-14, -4, 4, 14, -200, 0]);
        let helper = self.r.pick(&[44, 44, 65]);
        self.emit("mov r1, r6");
        self.emit(format!("mov r2, {delta}"));
        self.emit(format!("call {helper}"));
        self.clobber(RegisterKind::Number);
        if !self.r.one_in(5) {
            for k in &mut self.kinds {
                if matches!(k, RegisterKind::Packet | RegisterKind::End) {
                    *k = RegisterKind::Unknown;
                }
            }
        }
    }

    fn bounded_loop(&mut self) {
        if self.nested >= 2 {
            return;
        }
        let i = self.any_register();
        let n = 2 + self.r.below(6);
        let label = format!("again{}{}", self.out, self.labels);
        self.labels += 1;
        self.emit(format!("mov r{i}, 0"));
        self.set_kind(i, RegisterKind::Unknown);
        self.lines.push(format!("{label}:"));
        self.nested += 1;
        for _ in 0..1 + self.r.below(4) {
            self.step();
        }
        self.nested -= 1;
        self.emit(format!("add r{i}, 1"));
        self.emit(format!("jlt r{i}, {n}, {label}"));
    }

    fn branch(&mut self) {
        let label = format!("skip{}{}", self.out, self.labels);
        self.labels += 1;
        let (s, c) = (
            self.register_of(&[RegisterKind::Number]),
            self.r.pick(&["jeq", "jgt", "jslt", "jset32", "jle32", "jne"]),
        );
        let v = self.r.pick(&[0, 1, 7, 100, -1]);
        self.emit(format!("{c} r{s}, {v}, {label}"));
        for _ in 0..1 + self.r.below(3) {
            self.step();
        }
        self.lines.push(format!("{label}:"));
    }

    fn call_function(&mut self) {
        if self.out != "out" {
            return;
        }
        let p = self.register_of(&POINTERS);
        self.emit(format!("mov r1, r{p}"));
        let n = self.register_of(&[RegisterKind::Number]);
        self.emit(format!("mov r2, r{n}"));
        self.lines.push("call local f".to_owned());
        self.clobber(RegisterKind::Number);
    }

    fn step(&mut self) {
        match self.r.below(21) {
            0..=2 => self.load_number(),
            3 | 4 => self.arithmetic(),
            5 | 6 => self.load_packet(),
            7..=9 => self.check_bounds(),
            10 => self.stack_pointer(),
            11 | 12 => self.move_pointer(),
            13..=15 => self.access(),
            16 => self.spill_and_reload(),
            17 => self.use_map(),
            18 => self.resize_packet(),
            19 => self.bounded_loop(),
            _ if self.r.one_in(2) => self.branch(),
            _ => self.call_function(),
        }
    }
}

/// Returns a function: its initial lines and register kinds, then random steps.
fn function(
    r: &mut Random,
    out: &str,
    first: &[&str],
    kinds: &[(usize, RegisterKind)],
    steps: usize,
) -> Vec<String> {
    let lines = first.iter().map(|l| (*l).to_owned()).collect();
    let mut w =
        Writer { r, lines, kinds: [RegisterKind::Unknown; 11], labels: 0, out: out.to_owned(), nested: 0 };
    for (n, k) in kinds {
        w.kinds[*n] = *k;
    }
    for _ in 0..steps {
        w.step();
    }
    w.lines.push(format!("{out}: mov r0, 1\nexit"));
    w.lines
}

/// Returns a random program as text and assembled.
pub(crate) fn program(r: &mut Random) -> (String, Linked) {
    let steps = 3 + r.below(12);
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
    lines.extend(function(r, "out", &start, &held, steps));
    if lines.iter().any(|l| l == "call local f") {
        let steps = 1 + r.below(4);
        let held = [(7, RegisterKind::Packet), (9, RegisterKind::Number), (0, RegisterKind::Number)];
        lines.push("f:".to_owned());
        // A function has no context, so steps that need one are refused.
        let start = ["mov r7, r1", "mov r9, r2", "mov r0, 0", "mov r6, 0"];
        lines.extend(function(r, "outf", &start, &held, steps));
    }
    let text = lines.join("\n");
    let linked = assemble(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    (text, linked)
}
