//! Small programs that P4_16 forbids, each refused where the fault is, and others that it allows.
//!
//! `tests/verdicts/wrong.txt` and `right.txt` have one program per section, as parts of `frame.p4`. A
//! heading has the code of the expected error, in `wrong.txt`, and the part that the text belongs to;
//! `--- part` begins another one. The line with the fault ends with `// wrong`.

use p4shield_p4::diagnostics::PlainDiagnostic;
use p4shield_p4::{NoIncludes, Options, check, compile};

const FRAME: &str = include_str!("../verdicts/frame.p4");

/// Places in [`FRAME`], and the names of the parts that replace them.
const PARTS: [(&str, &str); 7] = [
    ("TOP\n", "top"),
    ("PARSER\n", "parser"),
    ("STATE\n", "state"),
    ("STATES\n", "states"),
    ("LOCALS\n", "locals"),
    ("BODY\n", "body"),
    ("DEPARSER\n", "deparser"),
];

/// Returns the heading and the text of each section.
fn sections(file: &str) -> Vec<(&str, &str)> {
    file.split("## ").skip(1).filter_map(|s| s.split_once('\n')).collect()
}

/// Returns the whole program of a section whose text begins with the part `first`.
fn program(first: &str, text: &str) -> String {
    let mut whole = FRAME.to_owned();
    let text = format!("--- {first}\n{text}");
    let parts: Vec<_> = text.split("--- ").filter_map(|p| p.split_once('\n')).collect();
    for (place, name) in PARTS {
        let part = parts.iter().find(|(n, _)| *n == name).map_or("", |(_, text)| text);
        whole = whole.replacen(place, &format!("{}\n", part.trim_end()), 1);
    }
    // Further states are reached from the first one.
    let next = if first == "states" { "transition next; }" } else { "transition accept; }" };
    whole.replacen("transition accept; }", next, usize::from(first == "states"))
}

/// Returns the errors of `check`, otherwise those of a compilation.
fn errors(text: &str) -> Vec<PlainDiagnostic> {
    let options = Options::default();
    let mut found = check("test.p4", text, &NoIncludes, &options);
    if !found.has_errors() {
        found = compile("test.p4", text, &NoIncludes, &options).err().unwrap_or_default();
    }
    found.plain().into_iter().filter(|p| p.error).collect()
}

/// Returns a complaint unless the program is refused with this code where it says, with a hint.
fn misjudged(code: &str, name: &str, text: &str) -> Option<String> {
    let found = errors(text);
    let named = |p: &PlainDiagnostic| p.code == code && p.source.contains("// wrong") && p.hint.is_some();
    let list: Vec<String> =
        found.iter().map(|p| format!("{}:{} {} {}", p.line, p.column, p.code, p.message)).collect();
    (!found.iter().any(named)).then(|| format!("{name}: {list:?}"))
}

#[test]
fn what_the_language_forbids_is_refused_where_it_is() {
    let sections = sections(include_str!("../verdicts/wrong.txt"));
    assert!(sections.len() >= 150, "{} programs", sections.len());
    let wrong = sections.iter().filter_map(|(heading, text)| {
        let (code, rest) = heading.split_once(' ').expect("a code");
        let (part, name) = rest.split_once(": ").expect("a part");
        let text = program(part, text);
        assert_eq!(text.matches("// wrong").count(), 1, "{name}");
        misjudged(code, name, &text)
    });
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_the_language_allows_is_compiled() {
    let sections = sections(include_str!("../verdicts/right.txt"));
    assert!(sections.len() >= 20, "{} programs", sections.len());
    for (heading, text) in sections {
        let (part, name) = heading.split_once(": ").expect("a part");
        let found = errors(&program(part, text));
        assert!(found.is_empty(), "{name}: {found:#?}");
    }
}
