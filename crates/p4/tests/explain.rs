//! Every explanation's example makes its mistake, and its mend does not.

use p4shield_p4::diagnostics::Code;
use p4shield_p4::{NoIncludes, Options, check, compile};

/// The codes that checking a file gives, or compiling it if it has no mistake so far.
fn codes(text: &str, whole: bool) -> Vec<&'static str> {
    let options = Options::default();
    let found = check("example.p4", text, &NoIncludes, &options);
    let found = if whole && !found.has_errors() {
        compile("example.p4", text, &NoIncludes, &options).err().unwrap_or(found)
    } else {
        found
    };
    found.plain().iter().map(|p| p.code).collect()
}

#[test]
fn examples_make_their_mistake_and_mends_do_not() {
    let mut wrong = Vec::new();
    for code in Code::ALL {
        let e = code.explain();
        // Only a whole program lacks a main.
        let whole = *code == Code::BadMain;
        assert!(!e.why.is_empty(), "{code}");
        if !e.mistake.is_empty() && !codes(e.mistake, whole).contains(&code.as_str()) {
            wrong.push(format!("{code}: the mistake gives {:?}", codes(e.mistake, whole)));
        }
        let mended = codes(e.mended, whole);
        if !e.mended.is_empty() && mended.iter().any(|c| *c == code.as_str() || c.starts_with('E')) {
            wrong.push(format!("{code}: the mend gives {mended:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn codes_are_found_by_name() {
    assert_eq!(Code::named("e0401"), Some(Code::TypeMismatch));
    assert_eq!(Code::named("E9999"), None);
}
