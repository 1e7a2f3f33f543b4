//! Header unions in generated programs: validity, assignments, copies in and out, equality.

use super::{Generator, Kind};

/// Routines that get a union and change its valid member.
pub(super) const UNION_ROUTINES: &str = "\
    void turn_function(inout u_t u, in bit<8> v) { if (v > 3) { u.y = { v, 7 }; } else { u.x.setInvalid(); } }
    control Turn(inout u_t u, out u_t old, in bit<8> v) { apply {
    u_t local = u; old = u; if (v == 2) { exit; }
    if (v > 9) { u.x.setValid(); u.x.v = v; } else { u = local; }
    if (v == 5) { old.x = { 9 }; } } }
";

const UNIONS: &[&str] = &["hdr.u", "hdr.us[0]", "hdr.us[1]", "meta.union"];

impl Generator<'_> {
    fn union(&mut self) -> &'static str {
        UNIONS[self.pick(UNIONS.len() as u32) as usize]
    }

    /// Returns a field of a union's member; the fields of invalid members have no specified value.
    pub(super) fn union_field(&mut self) -> String {
        let u = self.union();
        let field = self.one(&["x.v", "y.a", "z.first"]);
        let member = &field[..1];
        format!("({u}.{member}.isValid() ? {u}.{field} : 8w{})", self.byte())
    }

    pub(super) fn union_truth(&mut self) -> String {
        let (a, b) = (self.union(), self.union());
        match self.pick(3) {
            0 => format!("{a}.isValid()"),
            1 => format!("{a}.{}.isValid()", self.one(&["x", "y", "z"])),
            _ => format!("({a} {} {b})", self.one(&["==", "!="])),
        }
    }

    pub(super) fn union_statement(&mut self, depth: u32) -> String {
        let (a, b) = (self.union(), self.union());
        match self.pick(9) {
            0 => format!("{a} = {b};"),
            1 => {
                let member = self.one(&["x", "y", "z"]);
                format!("{a}.{member} = {b}.{member};")
            }
            2 => {
                self.one(&["hdr.u.x = hdr.s[1];", "hdr.us[0].y = hdr.g;", "meta.union.z = hdr.h;"]).to_owned()
            }
            3 => {
                self.one(&["hdr.g = hdr.u.y;", "hdr.h = hdr.us[1].z;", "hdr.s[2] = meta.union.x;"]).to_owned()
            }
            4 => format!("{a}.y = {{ {}, {} }};", self.bits(8, 1), self.expression(Kind::Bit(16), 1)),
            // The fields of a header that becomes valid have no specified value before they are written.
            5 => format!("{a}.x.setValid(); {a}.x.v = {};", self.bits(8, 1)),
            6 => format!("{a}.{}.setInvalid();", self.one(&["x", "y", "z"])),
            7 => format!("if ({a}.x.isValid()) {{ {a}.x.v = {}; }}", self.bits(8, depth)),
            _ => match self.pick(3) {
                0 => format!("turn_function({a}, {});", self.bits(8, 1)),
                1 => format!("turn.apply({a}, {b}, {});", self.bits(8, 1)),
                _ => format!("union_action({a}, {});", self.bits(8, 1)),
            },
        }
    }
}
