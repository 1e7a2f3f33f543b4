//! The declarations of a generated program: headers, parsers, actions, tables and controls.

use super::effects::EFFECT_ROUTINES;
use super::unions::UNION_ROUTINES;
use super::{Generator, Kind, Variable, WIDTHS};
use std::fmt::Write as _;

impl Generator<'_> {
    pub(super) fn program(&mut self) -> String {
        let header = self.header();
        let function = self.body_with(&[("x", Kind::Bit(16)), ("y", Kind::Bit(8))], &[], "bit<8> spare = y;");
        let sub_parser = self.sub_parser();
        let control = self.sub_control();
        let meta = [("meta.m", Kind::Bit(8)), ("meta.n", Kind::Bit(16)), ("meta.i", Kind::Int(9))];
        let top: Vec<Variable> = self.variables.clone();
        self.variables = top.clone();
        self.variables.extend(meta.map(|(n, kind)| Variable { name: n.to_owned(), kind, writable: true }));
        let parser = self.parser();
        self.in_pipeline = true;
        let before = self.variables.clone();
        let act1 = self.action(&["inout bit<8> p", "bit<8> q"]);
        let act2 = self.action(&["inout bit<8> p", "out bit<8> o", "in bit<8> q", "bit<16> r"]);
        let tables = self.tables();
        self.variables = before;
        self.may_exit = true;
        let mut body = String::new();
        for _ in 0..=self.pick(5) {
            self.statement(3, &mut body);
            let _ = writeln!(body, "{}", self.effect_statement());
        }
        let deparser = self.one(&[
            "p.emit(hdr);",
            "p.emit(hdr.g); p.emit(hdr.h); p.emit(hdr.s);",
            "p.emit(hdr.h); p.emit(hdr.u); p.emit(hdr.us);",
            "p.emit(hdr.us[1]); p.emit(hdr.u.y); p.emit(hdr.h); p.emit(hdr.u.x);",
        ]);
        let payload = if self.pick(2) == 0 { "" } else { "_with_payload" };
        let (asked, egress) = (self.requests(), self.egress());
        let sum = self.one(&["hdr.h.first", "hdr.g.a, hdr.h.first", "hdr.g.a, hdr.s[0].v, hdr.g.b[7:0]"]);
        format!(
            "#include <v1model.p4>\n{header}header v_t {{ bit<8> v; }}\n\
             header g_t {{ bit<8> a; bit<16> b; }}\n\
             header_union u_t {{ v_t x; g_t y; h_t z; }}\n\
             struct headers_t {{ h_t h; v_t[4] s; g_t g; u_t u; u_t[2] us; }}\n\
             struct meta_t {{ @field_list(1, 2) bit<8> m; @field_list(2) bit<16> n; int<9> i;\n\
             @field_list(2) h_t saved; standard_metadata_t kept; @field_list(2) u_t union;\n\
             @field_list(0, 1, 2, 3) bit<8> rounds; }}\n\
             {UNION_ROUTINES}{EFFECT_ROUTINES}\
             bit<16> fun(in bit<16> x, in bit<8> y) {{ {function} return x + (bit<16>)spare; }}\n\
             void drop_function(inout standard_metadata_t s) {{ mark_to_drop(s); }}\n\
             {sub_parser}{control}{parser}\
             control V(inout headers_t hdr, inout meta_t meta) {{ apply {{ }} }}\n\
             control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {{\n\
             bit<8> spare = 0; Sub(5) sub1; Sub(250) sub2; Turn() turn; register<bit<8>>(8) reg;\n\
             action union_action(inout u_t u, bit<8> v) {{ if (u.y.isValid()) {{ u.x = {{ v }}; }} }}\n\
             action drop_it(inout standard_metadata_t s) {{ mark_to_drop(s); }}\n\
             action act1(inout bit<8> p, bit<8> q) {{ {act1} }}\n\
             action act2(inout bit<8> p, out bit<8> o, in bit<8> q, bit<16> r) {{ {act2} }}\n\
             {tables}apply {{ std.egress_spec = 1;\n{asked}{body} }} }}\n\
             control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {{\n\
             bit<8> spare = 0; register<bit<8>>(8) reg;\n\
             apply {{ {egress} }} }}\n\
             control U(inout headers_t hdr, inout meta_t meta) {{ apply {{\n\
             update_checksum{payload}(hdr.g.isValid(), {{ {sum} }}, hdr.g.b, HashAlgorithm.csum16); }} }}\n\
             control D(packet_out p, in headers_t hdr) {{ apply {{ {deparser} }} }}\n\
             V1Switch(P(), V(), I(), E(), U(), D()) main;\n"
        )
    }

    /// Returns a header with fields of mixed widths, which become variables.
    fn header(&mut self) -> String {
        let mut text = "header h_t { bit<8> first; ".to_owned();
        let mut bits = 8;
        self.variables = vec![field("hdr.h.first", Kind::Bit(8))];
        for i in 0..2 + self.pick(5) {
            let w = WIDTHS[self.pick(WIDTHS.len() as u32) as usize];
            let kind = if w > 1 && self.pick(4) == 3 { Kind::Int(w) } else { Kind::Bit(w) };
            let _ = write!(text, "{} f{i}; ", kind.name());
            self.variables.push(field(&format!("hdr.h.f{i}"), kind));
            bits += w;
        }
        let rest = (8 - bits % 8) % 8;
        if rest > 0 {
            let _ = write!(text, "bit<{rest}> rest; ");
            self.variables.push(field("hdr.h.rest", Kind::Bit(rest)));
        }
        text.push_str("}\n");
        text
    }

    /// Returns statements over parameters only.
    fn body_with(&mut self, read: &[(&str, Kind)], write: &[(&str, Kind)], before: &str) -> String {
        let outer = std::mem::take(&mut self.variables);
        let variable = |writable: bool| {
            move |(n, kind): &(&str, Kind)| Variable { name: (*n).to_owned(), kind: *kind, writable }
        };
        self.variables.extend(read.iter().map(variable(false)));
        self.variables.extend(write.iter().map(variable(true)));
        if before.contains("spare") {
            self.variables.push(field("spare", Kind::Bit(8)));
        }
        let mut out = before.to_owned();
        self.statements(2, 2, &mut out);
        self.variables = outer;
        out
    }

    fn sub_parser(&mut self) -> String {
        self.in_state = true;
        let body = self.body_with(&[("m", Kind::Bit(8))], &[("k", Kind::Bit(8))], "");
        self.in_state = false;
        let end = self.one(&[
            "accept",
            "reject",
            "more",
            "select(k) { 0 .. 9: accept; 10: reject; default: more; }",
        ]);
        let more = self.one(&["accept", "reject"]);
        let semicolon = if end.ends_with('}') { "" } else { ";" };
        format!(
            "parser SubParser(packet_in p, out g_t g, in bit<8> m, inout bit<8> k)(int n) {{\n\
             state start {{ k = k + n; {body} p.extract(g); transition {end}{semicolon} }}\n\
             state more {{ verify(g.a != 7, error.HeaderTooShort); transition {more}; }} }}\n"
        )
    }

    fn parser(&mut self) -> String {
        let mask = self.one(&["0x0f", "0xff", "0x01"]);
        let stack = self.one(&["5", "64 .. 127", "1"]);
        let subject = self.bits(8, 2);
        let last = self.one(&["accept", "reject", "inner"]);
        let union_end = self.one(&["accept", "stack"]);
        format!(
            "parser P(packet_in p, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {{\n\
             SubParser({}) sub; bit<8> spare = 0;\n\
             state start {{ p.extract(hdr.h); transition select(hdr.h.first) {{\n\
             {stack}: elements; 2: inner; 3: reject; 9: x; 10: y; 7: z;\n\
             0x80 &&& {mask}: ahead; default: accept; }} }}\n\
             state x {{ p.extract(hdr.u.x); transition select(hdr.u.x.v) {{ 0 .. 0x7f: y; 0x80 .. 0xbf: z;\n\
             default: {union_end}; }} }}\n\
             state y {{ p.extract(hdr.u.y); transition {union_end}; }}\n\
             state z {{ p.extract(hdr.u.z); transition {union_end}; }}\n\
             state stack {{ p.extract(hdr.us.next.x); p.extract(hdr.us.next.y); transition accept; }}\n\
             state elements {{ p.extract(hdr.s.next); transition select(hdr.s.last.v, {subject}) {{\n\
             (0 .. 0x7f, _): elements; (_, 3): inner; default: accept; }} }}\n\
             state ahead {{ meta.m = p.lookahead<bit<8>>(); p.advance(8); transition {last}; }}\n\
             state inner {{ sub.apply(p, hdr.g, hdr.h.first, meta.m); transition accept; }} }}\n",
            self.pick(9)
        )
    }

    fn action(&mut self, params: &[&str]) -> String {
        let before = self.variables.clone();
        for p in params {
            let words: Vec<&str> = p.split(' ').collect();
            let [.., ty, name] = words.as_slice() else { continue };
            let kind = Kind::Bit(if *ty == "bit<16>" { 16 } else { 8 });
            self.variables.push(Variable { name: (*name).to_owned(), kind, writable: p.contains("out") });
        }
        // Actions call no actions and apply no tables or controls.
        let saved = std::mem::replace(&mut self.in_pipeline, false);
        let mut out = String::new();
        self.statements(2, 1, &mut out);
        self.in_pipeline = saved;
        self.variables = before;
        out
    }

    fn tables(&mut self) -> String {
        let key = self.bits(8, 2);
        let (a, b, c) = (self.byte(), self.pick(8), 8 + self.pick(24));
        let const_keys = self.one(&["", "const "]);
        let argument = self.target8_plain();
        let (one, two, element) = (self.effect(2), self.effect(2), self.stack_element(1));
        format!(
            "table t1 {{ key = {{ {key} : exact @name(\"k\"); }}\n\
             actions = {{ act1({argument}); NoAction; }}\n\
             const entries = {{ {b} : act1({a}); {c} : act1(9); 0xff : NoAction(); }}\n\
             const default_action = act1({c}); }}\n\
             table t2 {{ key = {{ hdr.h.first : lpm; }} actions = {{ act1(meta.m); NoAction; }}\n\
             const entries = {{ 0x80 &&& 0xf0 : act1(1); 0x80 &&& 0xc0 : act1(2); 5 : act1(3); }}\n\
             default_action = NoAction; }}\n\
             table t3 {{ key = {{ hdr.h.first : ternary; meta.n : range; }}\n\
             actions = {{ act2(hdr.h.first, meta.m, meta.m); act1(meta.m); }}\n\
             const entries = {{ (1 &&& 3, 0 .. 9) : act2({a}); (_, 3 .. 0x7fff) : act1({b});\n\
             (2, _) : act2(65535); }}\n\
             {const_keys}default_action = act1(4); }}\n\
             table t4 {{ key = {{ {one} : ternary @name(\"one\"); {two} : ternary @name(\"two\"); }}\n\
             actions = {{ act1({element}.v); act2(q = {two}, o = {argument}, p = {element}.v); }}\n\
             const entries = {{ (1 &&& 3, _) : act1({a}); (_, 2 &&& 2) : act2({b}); }}\n\
             default_action = act1(5); }}\n"
        )
    }

    fn target8_plain(&mut self) -> &'static str {
        self.one(&["hdr.h.first", "meta.m", "hdr.g.a"])
    }

    fn sub_control(&mut self) -> String {
        let body = self.body_with(&[], &[("v", Kind::Bit(8)), ("o", Kind::Bit(8))], "");
        let leave = self.one(&["", "if (v == 3) { return; }", "if (v == 4) { exit; }"]);
        format!(
            "control Sub(inout bit<8> v, inout bit<8> o)(int n) {{ bit<8> spare = 0;\n\
             apply {{ v = v + n; {body} {leave} o = o ^ (bit<8>)(n + 1); }} }}\n"
        )
    }
}

fn field(name: &str, kind: Kind) -> Variable {
    Variable { name: name.to_owned(), kind, writable: true }
}
