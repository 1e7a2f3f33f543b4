//! A generator of small random programs. A tape of bytes makes every choice, so that proptest can shrink
//! a program: an exhausted tape chooses the first and simplest alternative.

pub(super) use effects::EFFECT_ROUTINES;
use std::fmt::Write as _;

/// The type of a generated expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Bit(u32),
    Int(u32),
}

impl Kind {
    const fn width(self) -> u32 {
        match self {
            Self::Bit(w) | Self::Int(w) => w,
        }
    }

    fn name(self) -> String {
        match self {
            Self::Bit(w) => format!("bit<{w}>"),
            Self::Int(w) => format!("int<{w}>"),
        }
    }
}

/// A variable that generated code may use.
#[derive(Clone, Debug)]
struct Variable {
    name: String,
    kind: Kind,
    writable: bool,
}

struct Generator<'t> {
    tape: std::slice::Iter<'t, u8>,
    variables: Vec<Variable>,
    /// Whether headers, tables and actions are in scope.
    in_pipeline: bool,
    /// Set while the statements belong to a parser state, which has no `switch` and no `for`.
    in_state: bool,
    /// Whether the body may leave its callee.
    may_exit: bool,
    names: u32,
    /// The rest of the budget of expressions.
    budget: u32,
}

/// Widths of the header's fields, before the one that fills the last byte.
const WIDTHS: &[u32] = &[8, 2, 3, 4, 7, 12, 16, 24, 32, 33, 48, 64, 72, 5, 1];

/// Returns a generated program without a register that shows in which order copies pass egress: one that
/// waits for an answer passes it later.
pub(super) fn in_any_order(text: &str) -> String {
    text.replace("reg.write(1, spare + 1);", "")
}

/// Returns a generated program whose functions with effects run in a compartment.
pub(super) fn placed(text: &str) -> String {
    let declared = EFFECT_ROUTINES.lines().map(|line| match line.split_once(" {") {
        Some((function, _)) if line.contains('(') => format!("@compartment extern {};\n", function.trim()),
        _ => format!("{line}\n"),
    });
    text.replace(EFFECT_ROUTINES, &declared.collect::<String>())
}

/// Returns the text of a program for v1model.
pub(super) fn program(tape: &[u8]) -> String {
    let mut g = Generator {
        tape: tape.iter(),
        variables: Vec::new(),
        in_pipeline: false,
        in_state: false,
        may_exit: false,
        names: 0,
        budget: 250,
    };
    g.program()
}

impl Generator<'_> {
    fn byte(&mut self) -> u32 {
        self.tape.next().copied().map_or(0, u32::from)
    }

    fn pick(&mut self, n: u32) -> u32 {
        self.byte() % n.max(1)
    }

    fn fresh(&mut self, prefix: &str) -> String {
        self.names += 1;
        format!("{prefix}{}", self.names)
    }

    fn one<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.pick(all.len() as u32) as usize]
    }

    /// Returns a literal, often one at the edge of its type.
    fn literal(&mut self, kind: Kind) -> String {
        let w = kind.width();
        let digits: String = match self.pick(4) {
            0 => format!("{}", self.byte() & 3),
            1 => format!("0x{:02x}", self.byte()),
            2 => format!("0x{}", "f".repeat(w.div_ceil(4) as usize)),
            _ => {
                let digits: String = (0..w.div_ceil(8)).map(|_| format!("{:02x}", self.byte())).collect();
                format!("0x{digits}")
            }
        };
        match kind {
            Kind::Bit(w) => format!("(bit<{w}>){digits}"),
            Kind::Int(w) => format!("(int<{w}>){digits}"),
        }
    }

    fn variable(&mut self, fits: impl Fn(&Variable) -> bool) -> Option<Variable> {
        let all: Vec<Variable> = self.variables.iter().filter(|v| fits(v)).cloned().collect();
        (!all.is_empty()).then(|| all[self.pick(all.len() as u32) as usize].clone())
    }

    /// Returns a variable, cut or extended to `bit<w>`.
    fn read(&mut self, w: u32) -> String {
        let Some(v) = self.variable(|v| matches!(v.kind, Kind::Bit(_))) else {
            return self.literal(Kind::Bit(w));
        };
        let have = v.kind.width();
        match have.cmp(&w) {
            std::cmp::Ordering::Equal => v.name,
            std::cmp::Ordering::Less => format!("(bit<{w}>){}", v.name),
            std::cmp::Ordering::Greater => {
                let lo = self.pick(have - w + 1);
                format!("{}[{}:{lo}]", v.name, lo + w - 1)
            }
        }
    }

    fn expression(&mut self, kind: Kind, depth: u32) -> String {
        self.budget = self.budget.saturating_sub(1);
        let depth = if self.budget == 0 { 0 } else { depth };
        match kind {
            Kind::Bit(w) => self.bits(w, depth),
            Kind::Int(w) => self.signed(w, depth),
        }
    }

    fn bits(&mut self, w: u32, depth: u32) -> String {
        let kind = Kind::Bit(w);
        if depth == 0 {
            return if self.pick(4) == 3 { self.literal(kind) } else { self.read(w) };
        }
        let d = depth - 1;
        match self.pick(18) {
            0 | 1 => self.read(w),
            2 => self.literal(kind),
            3 | 4 => {
                let op = self.one(&["+", "-", "*", "&", "|", "^", "|+|", "|-|"]);
                format!("({} {op} {})", self.expression(kind, d), self.expression(kind, d))
            }
            5 => {
                let op = self.one(&["<<", ">>"]);
                let by = match self.pick(3) {
                    0 => format!("{}", self.pick(w + 2)),
                    1 => self.bits(3, d),
                    _ => self.bits(8, d),
                };
                format!("({} {op} {by})", self.expression(kind, d))
            }
            6 => format!("{}({})", self.one(&["~", "-"]), self.expression(kind, d)),
            7 if w > 1 => {
                let low = 1 + self.pick(w - 1);
                format!("({} ++ {})", self.bits(w - low, d), self.bits(low, d))
            }
            8 => format!("({} ? {} : {})", self.truth(d), self.bits(w, d), self.bits(w, d)),
            9 if w > 1 => format!("(bit<{w}>)({})", self.signed(w, d)),
            10 => {
                let wider = w + 1 + self.pick(9);
                let lo = self.pick(wider - w + 1);
                format!("({})[{}:{lo}]", self.bits(wider, d), lo + w - 1)
            }
            11 => {
                let other = WIDTHS[self.pick(WIDTHS.len() as u32) as usize];
                format!("(bit<{w}>)({})", self.bits(other, d))
            }
            12 if self.in_pipeline => format!("(bit<{w}>)({})", self.element(d)),
            13 if w <= 64 && w > 1 => {
                let divisor = 1 + self.pick(if w < 8 { (1 << w) - 1 } else { 255 });
                let op = self.one(&["/", "%"]);
                format!("({} {op} {divisor})", self.bits(w, d))
            }
            13 if self.in_pipeline => format!("(bit<{w}>)({})", self.union_field()),
            14 if self.in_pipeline => format!("(bit<{w}>)fun({}, {})", self.bits(16, d), self.bits(8, d)),
            15 => {
                let (from, lo) = (w + 8, self.bits(3, d));
                format!("({})[{lo}+:{w}]", self.bits(from, d))
            }
            16 => format!("(bit<{w}>)({})", self.effect(d)),
            _ => self.read(w),
        }
    }

    fn signed(&mut self, w: u32, depth: u32) -> String {
        let kind = Kind::Int(w);
        let variable = self.variable(|v| v.kind == kind);
        if depth == 0 {
            return variable.map_or_else(|| format!("(int<{w}>)({})", self.bits(w, 0)), |v| v.name);
        }
        let d = depth - 1;
        match self.pick(6) {
            0 => variable.map_or_else(|| self.literal(kind), |v| v.name),
            1 => {
                let op = self.one(&["+", "-", "*", "|+|", "|-|", "&", "^"]);
                format!("({} {op} {})", self.signed(w, d), self.signed(w, d))
            }
            2 => format!("({} {} {})", self.signed(w, d), self.one(&[">>", "<<"]), self.bits(4, d)),
            3 => {
                let other = 2 + self.pick(30);
                format!("(int<{w}>)({})", self.signed(other, d))
            }
            4 => format!("-({})", self.signed(w, d)),
            _ => format!("(int<{w}>)({})", self.bits(w, d)),
        }
    }

    fn truth(&mut self, depth: u32) -> String {
        self.budget = self.budget.saturating_sub(1);
        let d = if self.budget == 0 { 0 } else { depth.saturating_sub(1) };
        match self.pick(if depth == 0 || self.budget == 0 { 2 } else { 9 }) {
            0 | 1 => {
                let w = [8, 2, 3, 16, 33, 72][self.pick(6) as usize];
                let op = self.one(&["==", "!=", "<", "<=", ">", ">="]);
                let other = if self.pick(2) == 0 { self.literal(Kind::Bit(w)) } else { self.bits(w, d) };
                format!("({} {op} {other})", self.bits(w, d))
            }
            2 => {
                let w = 2 + self.pick(30);
                format!("({} {} {})", self.signed(w, d), self.one(&["<", ">=", "=="]), self.signed(w, d))
            }
            3 => format!("({} && {})", self.truth(d), self.truth(d)),
            4 => format!("({} || {})", self.truth(d), self.truth(d)),
            5 => format!("!{}", self.truth(d)),
            6 if self.in_pipeline => {
                let header = self.one(&["hdr.g", "hdr.s[0]", "hdr.s[1]", "hdr.s[3]", "hdr.h"]);
                format!("{header}.isValid()")
            }
            7 if self.in_pipeline => {
                let pair = |g: &mut Self| format!("{{ {}, 3 }}", g.bits(8, 0));
                format!("({} == {{ 8w{}, {} }})", pair(self), self.byte(), 2 + self.pick(2))
            }
            8 if self.in_pipeline => self.union_truth(),
            _ => format!("({} == {})", self.bits(8, d), self.literal(Kind::Bit(8))),
        }
    }

    /// Returns an element of the stack, often with an index that is known only at run time.
    fn element(&mut self, depth: u32) -> String {
        match self.pick(3) {
            0 => format!("hdr.s[{}].v", self.pick(4)),
            1 => format!("hdr.s[{}].v", self.bits(2, depth)),
            // Constant indices out of range are errors.
            _ => format!("hdr.s[hdr.h.first[2:0] ^ {}].v", self.bits(3, depth.min(1))),
        }
    }

    /// Returns an l-value and its type.
    fn target(&mut self) -> (String, Kind) {
        if self.in_pipeline && self.pick(6) == 5 {
            return (self.element(1), Kind::Bit(8));
        }
        let Some(v) = self.variable(|v| v.writable) else { return ("spare".to_owned(), Kind::Bit(8)) };
        let w = v.kind.width();
        if w > 2 && self.pick(4) == 3 {
            let lo = self.pick(w - 1);
            let hi = lo + self.pick(w - lo);
            return (format!("{}[{hi}:{lo}]", v.name), Kind::Bit(hi - lo + 1));
        }
        (v.name, v.kind)
    }

    fn statements(&mut self, n: u32, depth: u32, out: &mut String) {
        for _ in 0..=self.pick(n) {
            self.statement(depth, out);
        }
    }

    fn block(&mut self, depth: u32) -> String {
        let mut out = String::new();
        self.statements(2, depth, &mut out);
        out
    }

    fn statement(&mut self, depth: u32, out: &mut String) {
        let d = depth.saturating_sub(1);
        let choice = self.pick(if depth == 0 { 3 } else { 27 });
        let text = match choice {
            3 | 4 => {
                let (c, t) = (self.truth(2), self.block(d));
                let f = self.block(d);
                format!("if ({c}) {{ {t} }} else {{ {f} }}")
            }
            5 if !self.in_state => {
                let subject = self.bits(8, 1);
                let (a, b, c) = (self.block(d), self.block(d), self.block(d));
                format!("switch ({subject}) {{ 0: {{ {a} }} 1: 2: {{ {b} }} default: {{ {c} }} }}")
            }
            6 => {
                let (t, kind) = self.target();
                let op = match kind {
                    Kind::Bit(_) => self.one(&["+=", "-=", "^=", "|=", "&=", "*="]),
                    Kind::Int(_) => self.one(&["+=", "-=", "^="]),
                };
                format!("{t} {op} {};", self.expression(kind, 2))
            }
            7 if self.in_pipeline => match self.pick(4) {
                0 => self.one(&["t1.apply();", "t4.apply();"]).to_owned(),
                3 => format!("if ({} == 1 && t4.apply().miss) {{ {} }}", self.effect(1), self.block(d)),
                1 => format!("if (t2.apply().hit) {{ {} }}", self.block(d)),
                _ => {
                    let (a, b) = (self.block(d), self.block(d));
                    format!("switch (t3.apply().action_run) {{ act2: {{ {a} }} default: {{ {b} }} }}")
                }
            },
            8 if self.in_pipeline => {
                let header = self.one(&["hdr.g", "hdr.s[0]", "hdr.s[1]", "hdr.s[2]"]);
                format!("{header}.{}();", self.one(&["setValid", "setInvalid"]))
            }
            9 if self.in_pipeline => {
                format!("hdr.s.{}({});", self.one(&["push_front", "pop_front"]), 1 + self.pick(2))
            }
            10 if self.in_pipeline => format!("act1({}, {});", self.target8(), self.bits(8, 2)),
            11 if self.in_pipeline => {
                let (a, b) = (self.target8(), self.target8());
                format!("act2({a}, {b}, {}, {});", self.bits(8, 1), self.bits(16, 2))
            }
            12 if self.in_pipeline => {
                let control = self.one(&["sub1", "sub2"]);
                format!("{control}.apply({}, {});", self.target8(), self.target8())
            }
            13 if self.in_pipeline => {
                let which = self.one(&["std", "meta.kept", "copy"]);
                let how = self.one(&["mark_to_drop", "drop_it", "drop_function"]);
                let back = self.one(&["", "std = meta.kept;", "meta.kept = std;"]);
                if which == "copy" {
                    let name = self.fresh("copy");
                    format!("standard_metadata_t {name} = std; {how}({name});")
                } else {
                    format!("{how}({which}); {back}")
                }
            }
            14 => {
                let name = self.fresh("x");
                let kind = if self.pick(3) == 2 {
                    Kind::Int(2 + self.pick(30))
                } else {
                    Kind::Bit(1 + self.pick(70))
                };
                let text = format!("{} {name} = {};", kind.name(), self.expression(kind, 3));
                let _ = writeln!(out, "{text}");
                // In scope until the end of its block.
                let before = self.variables.len();
                self.variables.push(Variable { name, kind, writable: true });
                self.statements(2, d, out);
                self.variables.truncate(before);
                return;
            }
            15 if self.in_pipeline && self.may_exit => {
                let how = self.one(&["return;", "exit;"]);
                format!("if ({}) {{ {how} }}", self.truth(1))
            }
            16 if !self.in_state => {
                let name = self.fresh("i");
                let high = self.pick(4);
                self.variables.push(Variable { name: name.clone(), kind: Kind::Bit(8), writable: false });
                let body = self.block(d.min(1));
                self.variables.pop();
                match self.pick(2) {
                    0 => format!("for (bit<8> {name} in 0 .. {high}) {{ {body} }}"),
                    _ => format!("for (bit<8> {name} in {{ {high}, 8w7, {} }}) {{ {body} }}", self.byte()),
                }
            }
            17 if self.in_pipeline => self
                .one(&[
                    "meta.saved = hdr.h;",
                    "hdr.h = meta.saved;",
                    "hdr.g = { 1, 2 };",
                    "hdr.s[1] = hdr.s[0];",
                ])
                .to_owned(),
            18 if self.in_pipeline => {
                format!("hdr.h.first = fun({}, {})[7:0];", self.bits(16, 2), self.bits(8, 2))
            }
            19..=21 if self.in_pipeline => self.union_statement(d),
            22..=25 => self.effect_statement(),
            _ => {
                let (t, kind) = self.target();
                format!("{t} = {};", self.expression(kind, 3))
            }
        };
        let _ = writeln!(out, "{text}");
    }

    /// Returns an l-value of type `bit<8>`.
    fn target8(&mut self) -> String {
        if self.in_pipeline && self.pick(4) == 3 {
            return format!("{}.v", self.stack_element(1));
        }
        let v = self.variable(|v| v.writable && v.kind == Kind::Bit(8));
        v.map_or_else(|| "hdr.h.first".to_owned(), |v| v.name)
    }
}

mod effects;
mod pieces;
mod traffic;
mod unions;
