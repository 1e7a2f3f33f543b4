//! Requests to the traffic manager in generated programs. A packet that starts again keeps its number of
//! rounds, so that each program comes to an end.

use super::Generator;
use std::fmt::Write as _;

impl Generator<'_> {
    /// Returns statements of ingress that ask for copies or further rounds, under conditions. Half of the
    /// programs ask for nothing.
    pub(super) fn requests(&mut self) -> String {
        let mut out = String::new();
        for _ in 0..self.pick(6).saturating_sub(2) {
            let condition = self.truth(1);
            let request = match self.pick(4) {
                0 => format!("std.mcast_grp = {};", self.pick(4)),
                1 => format!("clone(CloneType.I2E, {});", self.pick(5)),
                2 => {
                    let (session, list) = (self.pick(5), self.pick(4));
                    format!("clone_preserving_field_list(CloneType.I2E, {session}, {list});")
                }
                _ => self.further("resubmit"),
            };
            let _ = writeln!(out, "if ({condition}) {{ {request} }}");
        }
        out
    }

    fn further(&mut self, how: &str) -> String {
        let list = self.pick(4);
        format!(
            "if (meta.rounds < 2) {{ meta.rounds = meta.rounds + 1; {how}_preserving_field_list({list}); }}"
        )
    }

    /// Returns the statements of egress.
    pub(super) fn egress(&mut self) -> String {
        if self.pick(2) == 0 {
            return String::new();
        }
        let mut out = String::from(
            "meta.m = meta.m ^ (bit<8>) std.egress_port + (bit<8>) std.instance_type * 3;\n\
             meta.m = meta.m + std.egress_rid[7:0];\n\
             reg.read(spare, 1); reg.write(1, spare + 1); hdr.g.a = hdr.g.a ^ spare;\n",
        );
        self.in_pipeline = false;
        for _ in 0..self.pick(3) {
            self.statement(2, &mut out);
        }
        for _ in 0..self.pick(3) {
            let condition = self.truth(1);
            let request = match self.pick(4) {
                // A clone without its number of rounds would come back for ever.
                0 => format!(
                    "if (std.instance_type == 0 || std.instance_type == 5) {{ {} }}",
                    self.further("recirculate")
                ),
                1 => format!("if (std.instance_type != 2) {{ clone(CloneType.E2E, {}); }}", self.pick(5)),
                2 => format!(
                    "if (std.instance_type != 2) {{ clone_preserving_field_list(CloneType.E2E, {}, {}); }}",
                    self.pick(5),
                    self.pick(4)
                ),
                _ => "mark_to_drop(std);".to_owned(),
            };
            let _ = writeln!(out, "if ({condition}) {{ {request} }}");
        }
        out
    }
}
