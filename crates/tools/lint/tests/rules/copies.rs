//! Blocks of code that stand twice.

use crate::tree;
use std::collections::BTreeMap;
use std::path::Path;

/// Lines from which a block counts.
const LINES: usize = 10;

/// The lines of a file that count, with their numbers: without tests, comments, attributes, imports, braces
/// and lists of names.
fn lines(text: &str) -> Vec<(usize, String)> {
    let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let numbered = code.lines().map(str::trim).enumerate();
    let counts = |line: &str| {
        let is_import =
            ["use ", "pub use ", "mod ", "pub mod ", "#include"].iter().any(|p| line.starts_with(p));
        let is_name = line.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | ',' | ':' | '&'));
        let is_comment = ["//", "*", "#["].iter().any(|start| line.starts_with(start));
        line.len() > 3 && !is_comment && !is_import && !is_name
    };
    numbered.filter(|(_, line)| counts(line)).map(|(n, line)| (n + 1, line.to_owned())).collect()
}

/// The first line of each pair of places with the same ten lines; of overlapping blocks only the first.
pub(crate) fn blocks() -> Vec<String> {
    let root = tree::root().join("crates");
    let is_test = |path: &Path| path.iter().any(|part| part == "tests") || path.ends_with("tests.rs");
    let files: Vec<_> = [".rs", ".c", ".h"].iter().flat_map(|ending| tree::files(&root, ending)).collect();
    let mut places: BTreeMap<Vec<String>, (String, usize)> = BTreeMap::new();
    let mut found = BTreeMap::new();
    for path in files.iter().filter(|path| !is_test(path)) {
        let (name, lines) = (tree::shown(path), lines(&tree::read(path)));
        for window in lines.windows(LINES) {
            let block = window.iter().map(|(_, line)| line.clone()).collect();
            let (file, line) = places.entry(block).or_insert_with(|| (name.clone(), window[0].0));
            if *file != name || *line != window[0].0 {
                let pair = (file.clone(), name.clone());
                found.entry(pair).or_insert_with(|| format!("{file}:{line} and {name}:{}", window[0].0));
            }
        }
    }
    found.into_values().collect()
}
