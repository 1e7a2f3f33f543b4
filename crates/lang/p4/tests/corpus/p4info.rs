//! P4Info compared with the reference compiler's, field by field; the order of objects within a
//! message does not count.

use super::{Files, programs, testdata};
use p4shield_p4::Options;
use p4shield_p4::p4info::p4info;
use std::collections::BTreeSet;
use std::path::Path;

/// A text-format message.
#[derive(Default)]
struct Text {
    scalars: Vec<String>,
    messages: Vec<(String, Text)>,
}

impl Text {
    fn parse(lines: &mut std::str::Lines<'_>) -> Self {
        let mut m = Self::default();
        while let Some(line) = lines.next().map(str::trim) {
            match line.strip_suffix('{') {
                _ if line == "}" => break,
                Some(name) => m.messages.push((name.trim().to_owned(), Self::parse(lines))),
                None if line.is_empty() || line.starts_with('#') => {}
                None => m.scalars.push(line.to_owned()),
            }
        }
        m
    }

    /// Returns the message on one line. The order of fields with different names does not matter,
    /// nor that in lists of ids and `top` messages.
    fn line(&self, top: bool) -> String {
        let mut scalars = self.scalars.clone();
        scalars.sort();
        let mut messages: Vec<(String, String)> =
            self.messages.iter().map(|(n, m)| (n.clone(), m.line(false))).collect();
        if top {
            messages.sort();
        } else {
            messages.sort_by(|a, b| a.0.cmp(&b.0));
        }
        let messages: Vec<String> = messages.into_iter().map(|(n, m)| format!("{n} {{ {m} }}")).collect();
        scalars.into_iter().chain(messages).collect::<Vec<_>>().join(" ")
    }

    /// Returns the objects, one line each. A missing and an empty list of types are equal.
    fn objects(&self) -> BTreeSet<String> {
        let counted = self.messages.iter().filter(|(n, m)| n != "type_info" || !m.messages.is_empty());
        counted.map(|(n, m)| format!("{n} {{ {} }}", m.line(n == "type_info"))).collect()
    }
}

/// Whether a program is for an unsupported architecture.
fn is_foreign(expected: &str) -> bool {
    expected.contains("arch: \"psa\"")
}

/// Returns the differences between our P4Info of a program and the expected one.
fn differences(name: &str, text: &str, files: &Files, expected: &str) -> Vec<String> {
    let ours = match p4info(name, text, files, &Options::default()) {
        Ok(info) => info.to_text(),
        Err(e) => return vec![format!("refused: {}", e.plain().first().map_or("", |p| &p.message))],
    };
    let (ours, theirs) =
        (Text::parse(&mut ours.lines()).objects(), Text::parse(&mut expected.lines()).objects());
    let ours_only = ours.difference(&theirs).map(|o| format!("ours:   {o}"));
    ours_only.chain(theirs.difference(&ours).map(|o| format!("theirs: {o}"))).collect()
}

fn expected(root: &Path, name: &str) -> Option<String> {
    std::fs::read_to_string(root.join("p4_16_samples_outputs").join(format!("{name}.p4info.txtpb"))).ok()
}

/// Programs whose P4Info differs, and the reasons.
const DIFFERENT: [(&str, &str); 4] = [
    ("elimActRun1.p4", "its own package: p4c reports the architecture of its command line"),
    ("issue5035.p4", "its own package: p4c reports the architecture of its command line"),
    ("issue2735-bmv2.p4", "p4c omits a register whose type is a typedef"),
    ("issue3091.p4", "refused: a match kind as an argument"),
];
/// Minimum number of compared programs, so that a folder with other contents is noticed.
const COMPARED: usize = 480;

#[test]
fn p4info_matches_the_reference() {
    let Some(root) = testdata() else { return };
    let (all, files) = programs(&root, "p4_16_samples");
    let (mut compared, mut different) = (0, Vec::new());
    for (name, text) in &all {
        let Some(expected) = expected(&root, name).filter(|e| !is_foreign(e)) else { continue };
        compared += 1;
        let found = differences(name, text, &files, &expected);
        if !found.is_empty() {
            println!("{name}\n  {}", found.join("\n  "));
            different.push(name.as_str());
        }
    }
    println!("{} of {compared} are equal", compared - different.len());
    let unexplained: Vec<_> =
        different.iter().filter(|d| !DIFFERENT.iter().any(|(name, _)| name == *d)).collect();
    assert!(unexplained.is_empty(), "these differ: {unexplained:?}");
    assert!(compared >= COMPARED, "only {compared} programs with a P4Info were found");
}
