//! An explanation of each diagnostic code, with a wrong and a fixed example: `p4shield explain E0401`.
//!
//! `explanations.md` contains the texts. The examples are whole files. A test compiles each and expects
//! the code for the wrong example only.

use crate::diagnostics::Code;

const TEXT: &str = include_str!("explanations.md");

/// The explanation of a diagnostic code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explanation {
    /// The rule behind the code, or the suspicion behind a warning.
    pub why: &'static str,
    /// A program with the mistake.
    pub mistake: String,
    /// The same program, fixed. Both are empty for a compiler bug, which has no example.
    pub fixed: String,
}

impl Code {
    /// Returns the explanation of the code.
    #[must_use]
    pub fn explain(self) -> Explanation {
        let (why, blocks) = section(self.as_str());
        let mut examples = blocks.map(|(kind, text)| example(kind, text));
        let (mistake, fixed) = (examples.next().unwrap_or_default(), examples.next().unwrap_or_default());
        Explanation { why, mistake, fixed }
    }

    /// Finds a code by name, such as `E0401`, in upper or lower case.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|c| c.as_str().eq_ignore_ascii_case(name))
    }
}

/// Returns the text under a heading of the explanations, and the kinds and texts of its blocks.
fn section(heading: &str) -> (&'static str, impl Iterator<Item = (&'static str, &'static str)>) {
    let body = TEXT.split("\n# ").find_map(|s| s.strip_prefix(heading)).unwrap_or_default();
    let mut parts = body.split("```");
    let text = parts.next().unwrap_or_default().trim();
    (text, parts.step_by(2).filter_map(|block| block.split_once('\n')))
}

/// Returns the whole file of an example.
fn example(kind: &str, text: &str) -> String {
    match section(kind).1.next() {
        Some((_, template)) => template.replace("EXAMPLE", &text.trim_end().replace('\n', "\n    ")),
        None => text.to_owned(),
    }
}
