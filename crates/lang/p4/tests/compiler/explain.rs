//! The wrong example of every explanation has its code, and the fixed example does not.

use p4shield_p4::diagnostics::{Code, Diagnostics};
use p4shield_p4::{NoIncludes, Options, check, compile};

/// Returns the diagnostics of a file; of a whole program after its compilation.
fn found(text: &str) -> Diagnostics {
    let options = Options::default();
    let found = check("example.p4", text, &NoIncludes, &options);
    if found.has_errors() || !text.contains(" main;") {
        return found;
    }
    match compile("example.p4", text, &NoIncludes, &options) {
        Ok(made) => made.warnings,
        Err(errors) => errors,
    }
}

fn codes(found: &Diagnostics) -> Vec<&'static str> {
    found.plain().iter().map(|p| p.code).collect()
}

#[test]
fn wrong_examples_have_their_code_and_fixed_ones_do_not() {
    let mut wrong = Vec::new();
    // A compiler bug has no example.
    for code in Code::ALL.iter().filter(|c| **c != Code::Internal) {
        let e = code.explain();
        assert!(!e.why.is_empty(), "{code}");
        let mut made = codes(&found(&e.mistake));
        if *code == Code::BadMain {
            // Only a compilation requires `main`.
            let refused = compile("example.p4", &e.mistake, &NoIncludes, &Options::default());
            made = codes(&refused.expect_err("a program without a main"));
        }
        if !made.contains(&code.as_str()) {
            wrong.push(format!("{code}: the wrong example gives {made:?}"));
        }
        let fixed = found(&e.fixed);
        if e.fixed.is_empty() || fixed.has_errors() || codes(&fixed).contains(&code.as_str()) {
            wrong.push(format!("{code}: the fixed example gives {fixed}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// No code falls through to the explanation of another.
#[test]
fn every_code_has_its_own_explanation() {
    let mut seen = std::collections::HashSet::new();
    for code in Code::ALL {
        assert!(seen.insert(code.explain().why), "{code} is explained as another");
    }
}

#[test]
fn codes_are_found_by_name() {
    assert_eq!(Code::named("e0401"), Some(Code::TypeMismatch));
    assert_eq!(Code::named("E9999"), None);
}
