//! The page of limits states the compiler's own constants, and loops that are cut are warned of.

use crate::common::{Bench, compiled, program};
use p4shield_abi::ProgramLimit;
use p4shield_abi::object::MAX_INSTRUCTIONS;
use p4shield_p4::{NoIncludes, Options, Placement, compile};

fn read(path: &str) -> String {
    let path = format!("{}/{path}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Returns a constant of a source file. The constants are private to their modules, so the text is read.
fn constant(file: &str, name: &str) -> u64 {
    let text = read(&format!("src/{file}.rs"));
    let line = text.lines().find(|l| l.contains(&format!("const {name}: ")));
    let line = line.unwrap_or_else(|| panic!("{file} has no {name}"));
    let value =
        line.split_once("= ").and_then(|(_, v)| v.strip_suffix(';')).expect("a value").replace('_', "");
    let hex = value.strip_prefix("0x").map(|h| u64::from_str_radix(h, 16));
    hex.unwrap_or_else(|| value.parse()).expect("a number")
}

/// Returns a number with a comma between thousands.
fn written(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// The parts of the page with a number, of which `{}` stands for each.
fn statements() -> Vec<(&'static str, Vec<u64>)> {
    let rounds = constant("lower/states", "MAX_ROUNDS");
    let (for_rounds, inner) = (constant("lower/loops", "MAX_ROUNDS"), constant("lower/loops", "MAX_INNER"));
    vec![
        // The last iteration shows that no other follows.
        ("| of parser states, counted to a constant | {} |", vec![constant("lower/states", "MAX_COUNT") - 1]),
        ("| of any other parser states | {}; {}, {} or {} if ", [1, 2, 4, 8].map(|n| rounds / n).to_vec()),
        (
            "| `for` over a variable range of at most {} bits | as many as it has; {} bits within another",
            vec![for_rounds.ilog2().into(), inner.ilog2().into()],
        ),
        ("| any other `for` | {}, within another loop {} |", vec![for_rounds, inner]),
        ("| `for` whose condition is a constant | {} |", vec![constant("lower/loops", "MAX_KNOWN")]),
        ("| instructions | {} |", vec![MAX_INSTRUCTIONS as u64]),
        (
            "| statements after the inlining of calls and loops | {} |",
            vec![constant("lower/mod", "MAX_INLINED")],
        ),
        ("| values in use at once | {} |", vec![constant("codegen/spill", "MAX_VALUES")]),
        ("| elements of a header stack | {} |", vec![constant("check/types", "MAX_STACK")]),
        ("a variable index selects from | {} |", vec![constant("lower/lvalue", "MAX_OPTIONS")]),
        ("| bytes of a header without its varbit field | {} |", vec![constant("lower/parser", "MAX_HEADER")]),
        ("| bits of an integer | {} |", vec![constant("constant", "MAX_WIDTH")]),
        ("| bits of a register's element | {} |", vec![constant("lower/objects", "MAX_WIDTH")]),
        ("| bits that are hashed | {} |", vec![constant("lower/hash", "MAX_BITS")]),
        (
            "| arguments of a C function | {}, and {} bytes in memory |",
            vec![constant("lower/tenant", "MAX_ARGS"), constant("lower/tenant", "MAX_MEMORY")],
        ),
        ("| nested expressions and blocks | {} |", vec![constant("parser/mod", "MAX_DEPTH")]),
        ("| `advance` by a variable | {} bytes |", vec![constant("lower/parser", "MAX_ADVANCE")]),
    ]
}

#[test]
fn the_page_of_limits_states_the_constants() {
    let page = read("../../../docs/reference/limits.md");
    for (statement, numbers) in statements() {
        let text = numbers.iter().fold(statement.to_owned(), |t, n| t.replacen("{}", &written(*n), 1));
        assert!(page.contains(&text), "docs/reference/limits.md does not say: {text}");
    }
}

/// Returns the messages of the warnings of loops that are cut.
fn cut(body: &str) -> Vec<String> {
    let warnings = compiled(&program("bit<8> a; bit<8> b;", "", "", body)).warnings.plain();
    warnings.into_iter().filter(|w| w.code == "W0114").map(|w| w.message).collect()
}

#[test]
fn a_for_loop_that_never_ends_is_warned_of_and_cut() {
    let once = "this loop ends after 1024 iterations; a packet that needs more is dropped";
    let body = "for (bit<8> i = 0; true; i = i + 1) { if (hdr.h.a == i) { hdr.h.b = hdr.h.b ^ i; } }";
    assert_eq!(cut(body), [once]);
    assert_eq!(cut("for (bit<8> i = 0; i >= 0; i = i + 2) { hdr.h.b = hdr.h.b + i; }"), [once]);
    let mut b = Bench::new(&program("bit<8> a; bit<8> b;", "", "", body));
    b.meets(&[1, 2, 3], ProgramLimit::Loop);
    // The packet may leave it.
    let left = body.replace("{ hdr.h.b = hdr.h.b ^ i; }", "{ break; } hdr.h.b = hdr.h.b + 1;");
    assert_eq!(cut(&left), [once]);
    let mut b = Bench::new(&program("bit<8> a; bit<8> b;", "", "", &left));
    assert_eq!(b.passes(&[200, 2, 3]), [200, 202, 3]);
}

#[test]
fn packets_that_meet_a_limit_are_dropped_by_reason() {
    // More iterations of a parser loop than there is code for.
    let text = program("bit<8> a;", "", "", "").replace(
        "p.extract(hdr.h); transition accept;",
        "p.extract(hdr.h); transition more; } state more { bit<8> n = p.lookahead<bit<8>>(); p.advance(8); \
         transition select(n) { 0: accept; default: more; }",
    );
    let mut b = Bench::new(&text);
    b.meets(&[1; 64], ProgramLimit::Loop);
    assert_eq!(b.run(&[&[1, 1, 0][..], &[9; 60]].concat()).limit, None);
    // A packet that grows beyond the headroom.
    let grown = "header g_t { bit<1600> a; }\nstruct headers_t { h_t h; g_t g; }";
    let text =
        program("bit<8> a;", "", "", "hdr.g.setValid();").replace("struct headers_t { h_t h; }", grown);
    Bench::new(&text).meets(&[7, 8, 9], ProgramLimit::Size);
    // A program that drops a packet of its own accord meets no limit.
    let mut b = Bench::new(&program("bit<8> a;", "", "", "mark_to_drop();"));
    assert_eq!((b.run(&[7]).pass, b.run(&[7]).limit), (false, None));
}

/// As in the field case of 127 source routes, the stack is named, with what fits and what to write instead.
#[test]
fn a_stack_too_long_for_its_program_is_named() {
    let stack = "header r_t { bit<1> last; bit<7> next; }\nstruct headers_t { h_t h;\nr_t[90] hops; }";
    let text = program("bit<8> a;", "", "", "hdr.hops.pop_front(1); hdr.h.a = (bit<8>)hdr.hops[0].next;")
        .replace("struct headers_t { h_t h; }", stack)
        .replace(
            "transition accept; }",
            "transition hop; } state hop { p.extract(hdr.hops.next); \
             transition select(hdr.hops.last.last) { 1: accept; default: hop; } }",
        );
    let refused = compile("t.p4", &text, &NoIncludes, &Options::default());
    let found = refused.expect_err("too large").plain();
    let errors: Vec<_> = found.iter().filter(|p| p.code == "E0902").collect();
    assert!(!errors.is_empty(), "{found:?}");
    for e in errors {
        assert_eq!(e.source, "r_t[90] hops; }");
        assert!(e.hint.as_deref().is_some_and(|h| h.contains("up to about 20 fit")), "{e:?}");
    }
}

/// Returns a program that needs so many pairs of values of 64 bits behind a call in a compartment.
fn keeping(pairs: usize) -> String {
    let all = |each: fn(usize) -> String| (0..pairs).map(each).collect::<Vec<_>>().join(" ");
    let fields = all(|n| format!("bit<64> f{n};"));
    let set = all(|n| format!("m.a.f{n} = hdr.h.value * {0}; m.b.f{n} = hdr.h.value + {0};", 2 * n + 3));
    let used = all(|n| format!("hdr.h.value = ((hdr.h.value ^ m.a.f{n}) + 1) ^ m.b.f{n};"));
    format!(
        "#include <v1model.p4>
@compartment extern bit<8> key(in bit<8> x);
header h_t {{ bit<48> dst; bit<48> src; bit<8> k; bit<64> value; }}
struct headers {{ h_t h; }}
struct half {{ {fields} }}
struct metadata {{ half a; half b; }}
parser P(packet_in p, out headers hdr, inout metadata m, inout standard_metadata_t std) {{
    state start {{ p.extract(hdr.h); transition accept; }}
}}
control V(inout headers hdr, inout metadata m) {{ apply {{ }} }}
control I(inout headers hdr, inout metadata m, inout standard_metadata_t std) {{
    apply {{ {set}
hdr.h.k = key(hdr.h.k);
{used} }}
}}
control E(inout headers hdr, inout metadata m, inout standard_metadata_t std) {{ apply {{ }} }}
control D(packet_out p, in headers hdr) {{ apply {{ p.emit(hdr); }} }}
V1Switch(P(), V(), I(), E(), V(), D()) main;
"
    )
}

#[test]
fn a_call_that_keeps_too_much_is_refused_where_it_is() {
    let compile = |pairs| {
        let options = Options { placement: Placement::Extern, ..Options::default() };
        compile("keeping.p4", &keeping(pairs), &NoIncludes, &options)
    };
    assert!(compile(100).is_ok());
    let refused = compile(2048).unwrap_err().render(false);
    assert!(refused.contains("keeping.p4:13:11"), "{refused}");
    assert!(refused.contains("keeps 32") && refused.contains("help: "), "{refused}");
}
