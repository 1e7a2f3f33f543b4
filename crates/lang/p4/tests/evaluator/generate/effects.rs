//! Calls with effects in generated programs, wherever the order or the number of evaluations shows: in
//! indices, l-values, arguments by name, struct and tuple expressions, keys and subjects.

use super::{Generator, Kind};

/// Routines that change their arguments, and a struct.
pub(in crate::evaluator) const EFFECT_ROUTINES: &str = "\
    struct pair_t { bit<8> x; bit<8> y; }
    bit<8> step(inout bit<8> n) { n = n * 5 + 1; return n; }
    bit<8> mix(inout bit<8> a, in bit<8> b, out bit<8> c) { c = a; a = a + b; return a ^ (b << 1); }
    void swap(inout bit<8> a, inout bit<8> b) { bit<8> t = a; a = b + 1; b = t; }
    bit<8> touch(inout v_t v, in bit<8> by) { v.v = v.v + by; return v.v; }
    void fill(out v_t v, in bit<8> by) { v.setValid(); v.v = by; }
";

impl Generator<'_> {
    /// Returns an expression of type `bit<8>` that changes variables.
    pub(super) fn effect(&mut self, depth: u32) -> String {
        let d = depth.min(2).saturating_sub(1);
        match self.pick(if self.in_pipeline { 8 } else { 6 }) {
            0 | 1 => format!("step({})", self.target8()),
            2 => format!("mix({}, {}, {})", self.target8(), self.bits(8, d), self.target8()),
            3 => {
                let (c, b, a) = (self.target8(), self.bits(8, d), self.target8());
                format!("mix(c = {c}, b = {b}, a = {a})")
            }
            4 => {
                let (y, x) = (self.bits(8, depth), self.bits(8, depth));
                format!("((pair_t) {{ y = {y}, x = {x} }}).{}", self.one(&["x", "y"]))
            }
            5 => {
                let w = 1 + self.pick(7);
                format!("(step({})[{}:0] ++ {})", self.target8(), w - 1, self.bits(8 - w, d))
            }
            6 => format!("touch({}, {})", self.stack_element(d), self.bits(8, d)),
            _ => format!("fun(y = {}, x = {})[7:0]", self.bits(8, d), self.bits(16, d)),
        }
    }

    /// Returns an element of the stack whose index may have an effect.
    pub(super) fn stack_element(&mut self, depth: u32) -> String {
        let at = if self.pick(2) == 0 { self.effect(depth) } else { self.bits(8, depth) };
        format!("hdr.s[({at})[1:0]]")
    }

    fn stack_union(&mut self, depth: u32) -> String {
        let at = if self.pick(2) == 0 { self.effect(depth) } else { self.bits(8, depth) };
        format!("hdr.us[({at})[0:0]]")
    }

    /// Returns a statement in which the order or the number of evaluations shows.
    pub(super) fn effect_statement(&mut self) -> String {
        let text = match self.pick(8) {
            0 => format!("swap({}, {});", self.target8(), self.target8()),
            1 => {
                let (name, y, x) = (self.fresh("q"), self.effect(1), self.effect(1));
                format!("pair_t {name} = {{ y = {y}, x = {x} }}; {} = {name}.x - {name}.y;", self.target8())
            }
            2 => {
                let (t, w) = (self.target8(), 1 + self.pick(5));
                format!("{t}[({})[1:0]+:{w}] = ({})[{}:0];", self.effect(1), self.effect(1), w - 1)
            }
            3 => {
                let op = self.one(&["+=", "^=", "-=", "|+|="]);
                format!("{} {op} {};", self.target8(), self.effect(2))
            }
            4 => {
                let (name, x, y) = (self.fresh("q"), self.effect(1), self.effect(1));
                let tuple = "tuple<bit<8>, bit<8>>";
                format!("{tuple} {name} = {{ {x}, {y} }}; {} = {name}[0] ^ {name}[1];", self.target8())
            }
            5 => format!("if ({} < {}) {{ {} }}", self.effect(1), self.effect(1), self.block(0)),
            6 if !self.in_state => {
                let (a, b) = (self.block(0), self.block(0));
                format!("switch ({}) {{ 0: 1: {{ {a} }} default: {{ {b} }} }}", self.effect(2))
            }
            _ => format!("{} = {};", self.target8(), self.effect(2)),
        };
        if self.in_pipeline && self.pick(2) == 0 { self.pipeline_effect() } else { text }
    }

    /// Returns such a statement with headers, stacks, unions, actions, controls or registers.
    fn pipeline_effect(&mut self) -> String {
        match self.pick(13) {
            0 => format!("{} = {};", self.stack_element(1), self.stack_element(1)),
            1 => format!("{}.{}();", self.stack_element(1), self.one(&["setValid", "setInvalid"])),
            2 => format!("fill({}, {});", self.stack_element(1), self.effect(1)),
            3 => format!("hdr.g = {{ b = {}, a = {} }};", self.expression(Kind::Bit(16), 2), self.effect(1)),
            4 => format!("{} = {};", self.stack_union(1), self.stack_union(1)),
            5 => format!("{}.x = {{ {} }};", self.stack_union(1), self.effect(1)),
            6 => format!("fill({}.x, {});", self.stack_union(1), self.effect(1)),
            7 => {
                let member = self.one(&["x", "y", "z"]);
                format!("{}.{member}.setInvalid();", self.stack_union(1))
            }
            8 => format!("turn_function({}, {});", self.stack_union(1), self.effect(1)),
            9 => format!("act1(q = {}, p = {});", self.effect(1), self.target8()),
            10 => {
                let (r, q, o, p) = (self.bits(16, 2), self.effect(1), self.target8(), self.target8());
                format!("act2(r = {r}, q = {q}, o = {o}, p = {p});")
            }
            11 => {
                let control = self.one(&["sub1", "sub2"]);
                format!("{control}.apply(o = {}, v = {});", self.target8(), self.target8())
            }
            _ => {
                let (value, index) = (self.effect(1), self.effect(1));
                let (to, at) = (self.target8(), self.effect(1));
                format!(
                    "reg.write(value = {value}, index = (bit<32>)({index} & 7));\n\
                     reg.read(index = (bit<32>)({at} & 7), result = {to});"
                )
            }
        }
    }
}
