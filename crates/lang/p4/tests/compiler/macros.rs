//! Programs that make declarations with macros, as published ones do.

use crate::common::{Bench, program};
use p4shield_p4::{NoIncludes, Options, check};

const MACROS: &str = "#define CAT(a, b) a##b\n\
    #define ROUND(N, KEY) \\\n\
    action mix_##N() { hdr.h.v = hdr.h.v ^ KEY; hdr.h.n = hdr.h.n + 1; } \\\n\
    table round_##N { actions = { mix_##N; } const default_action = mix_##N(); }\n\
    #define RUN(N) round_##N.apply();\n\
    #define LABEL(x) @name(#x)\n";

#[test]
fn rounds_of_a_cipher_are_made_by_macros() {
    let locals = "ROUND(0, 0x01010101)\nROUND(1, 0x02020202)\nROUND(2, 32w0xf0f0f0f0)\n\
        LABEL(extra) action more() { hdr.h.n = hdr.h.n + CAT(8w, 0x10); }\n\
        table last { key = { hdr.h.n : exact; } actions = { more; } default_action = more(); }";
    let body = "RUN(0) RUN(1) RUN(2) last.apply();";
    let text = format!("{MACROS}{}", program("bit<32> v; bit<8> n;", "", locals, body));
    let mut b = Bench::new(&text);
    assert_eq!(b.passes(&[0, 0, 0, 0, 0]), [0xf3, 0xf3, 0xf3, 0xf3, 0x13]);
    let last = b.compiled.facts.tables.iter().find(|t| t.name == "pipe.last").expect("the table");
    assert_eq!(last.actions[0].name, "pipe.extra");
}

#[test]
fn a_join_that_makes_no_token_is_shown_at_its_definition() {
    let text = "#define BAD(a, b) a ## b\nconst bit<8> X = 1\nBAD(+, 2);\n";
    let found = check("m.p4", text, &NoIncludes, &Options::default()).plain();
    let p = found.iter().find(|p| p.code == "E0103").expect("an error");
    assert_eq!((p.line, p.column, p.related[0].line, p.hint.is_some()), (1, 21, 3, true));
    assert!(p.message.contains("`+2`"), "{}", p.message);
}
