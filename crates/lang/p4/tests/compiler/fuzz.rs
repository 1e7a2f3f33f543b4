//! The compiler on hostile input: random bytes, and programs with swapped, repeated and omitted
//! tokens. It must terminate, with or without diagnostics.

use p4shield_bpf::verify::{self, Limits};
use p4shield_bpf::{Object, link};
use p4shield_p4::{Compiled, Included, NoIncludes, Options, Resolver, check, compile};

/// A small generator, so that a campaign is the same in every run.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

/// Bytes of source for all campaigns.
fn budget() -> usize {
    p4shield_need::extent(500_000, 5_000_000)
}

fn seeds() -> Vec<String> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../examples");
    let mut out = vec![include_str!("../grammar.p4").to_owned()];
    for dir in ["programs", "externs"] {
        for entry in std::fs::read_dir(format!("{root}/{dir}")).expect("the examples") {
            let path = entry.expect("an entry").path();
            if path.extension().is_some_and(|e| e == "p4") {
                out.push(std::fs::read_to_string(path).expect("text"));
            }
        }
    }
    out
}

/// Splits text into words, numbers, and single other characters.
fn tokens(text: &str) -> Vec<&str> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let word = |c: char| c.is_alphanumeric() || c == '_';
        let len = if word(c) { rest.find(|c| !word(c)).unwrap_or(rest.len()) } else { c.len_utf8() };
        out.push(&rest[..len]);
        rest = &rest[len..];
    }
    out
}

fn mutate(rng: &mut Rng, a: &[&str], b: &[&str]) -> String {
    let mut t: Vec<&str> = a.to_vec();
    for _ in 0..=rng.below(6) {
        let at = rng.below(t.len());
        match rng.below(6) {
            0 => {
                t.remove(at);
            }
            1 => t.insert(at, b[rng.below(b.len())]),
            2 => t[at] = b[rng.below(b.len())],
            3 => {
                let other = rng.below(t.len());
                t.swap(at, other);
            }
            4 => {
                let piece: Vec<&str> =
                    b.iter().skip(rng.below(b.len())).take(rng.below(20)).copied().collect();
                t.splice(at..at, piece);
            }
            _ => t.truncate(at.max(1)),
        }
        if t.is_empty() {
            break;
        }
    }
    t.concat()
}

#[test]
fn random_bytes_terminate() {
    let mut rng = Rng(0x9e37_79b9_7f4a_7c15);
    let alphabet = "(){}[]<>;:,.=+-*/%&|^~!?@#\\\"' \n\t0123456789abcxw_$é";
    let chars: Vec<char> = alphabet.chars().collect();
    let mut left = budget() / 2;
    while left > 0 {
        let len = 1 + rng.below(left.min(400));
        left -= len;
        let text: String = if rng.below(2) == 0 {
            (0..len).map(|_| chars[rng.below(chars.len())]).collect()
        } else {
            let bytes: Vec<u8> = (0..len).map(|_| rng.next() as u8).collect();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let _ = check("fuzz.p4", &text, &NoIncludes, &Options::default());
    }
}

#[test]
fn mutated_programs_terminate() {
    let mut rng = Rng(0x1234_5678_9abc_def1);
    let seeds = seeds();
    let all: Vec<Vec<&str>> = seeds.iter().map(|s| tokens(s)).collect();
    let mut left = budget() / 2;
    let (mut good, mut bad) = (0, 0);
    while left > 0 {
        let (a, b) = (rng.below(all.len()), rng.below(all.len()));
        let text = mutate(&mut rng, &all[a], &all[b]);
        left = left.saturating_sub(text.len().max(1));
        match compile("fuzz.p4", &text, &NoIncludes, &Options::default()) {
            Ok(c) => {
                good += 1;
                if c.facts.externs.is_empty() {
                    accepted(&c, &text);
                }
            }
            Err(e) => {
                assert!(e.has_errors() && !e.render(false).is_empty());
                assert!(!e.plain().iter().any(|p| p.code == "E0999"), "a bug of the compiler: {e}\n{text}");
                bad += 1;
            }
        }
    }
    assert!(good > 0 && bad > 0, "{good} compiled, {bad} did not");
}

/// The verifier must accept every compiled program.
fn accepted(c: &Compiled, text: &str) {
    let linked = link(&[Object::parse(&c.object).expect("our own object")]).expect("one object");
    if let Err(e) = verify::check(&linked, &Limits::default()) {
        panic!("the verifier refuses the compiled object: {e:#?}\n{text}\n{}", c.asm);
    }
}

#[test]
fn every_prefix_of_a_program_terminates() {
    let text = include_str!("../grammar.p4");
    for end in (0..text.len()).filter(|i| text.is_char_boundary(*i)).step_by(7) {
        let _ = check("fuzz.p4", &text[..end], &NoIncludes, &Options::default());
    }
}

/// A file that includes itself twice.
struct Endless;

impl Resolver for Endless {
    fn resolve(&self, _: &str, _: bool, _: &str) -> Option<Included> {
        Some(Included { name: "x.p4".to_owned(), text: "#include \"x.p4\"\n#include \"x.p4\"\n".to_owned() })
    }
}

#[test]
fn exponential_programs_are_refused() {
    let long = |s: &str, n: usize| s.repeat(n);
    let nested_calls: String =
        (1..40).map(|i| format!("action a{i}() {{ a{0}(); a{0}(); }}\n", i - 1)).collect();
    let exponential = format!(
        "#include <ubpf_model.p4>\nstruct h_t {{ }} struct m_t {{ }}\n\
         parser p(packet_in p, out h_t h, inout m_t m, inout standard_metadata s) {{ state start {{ \
         transition accept; }} }}\n\
         control c(inout h_t h, inout m_t m, inout standard_metadata s) {{ action a0() {{ mark_to_drop(); \
         }}\n\
         {nested_calls} apply {{ a39(); }} }}\n\
         control d(packet_out p, in h_t h) {{ apply {{ }} }}\nubpf(p(), c(), d()) main;"
    );
    let doubling = (1..60).map(|i| format!("const bit<8> c{i} = c{0} + c{0};\n", i - 1)).collect::<String>();
    for text in [
        format!("const int a = 1 << 4000; const int b = {}a;", long("a * ", 100)),
        format!("const int a = {}1;", long("f<bit<(", 30)),
        format!("const int a = {};", long("(T)", 3000)),
        format!("header h {{ {} }}", long("bit<8> x; ", 20_000)),
        format!("const bit<8> c0 = 1;\n{doubling}"),
        format!("control c() {{ apply {{ {} }} }}", long("if (true) { } else ", 5000)),
        exponential,
    ] {
        let _ = check("fuzz.p4", &text, &NoIncludes, &Options::default());
    }
    assert!(check("fuzz.p4", "#include \"x.p4\"", &Endless, &Options::default()).has_errors());
}
