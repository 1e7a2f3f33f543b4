//! Length of lines, files and names, and words that hide who acts.

use crate::tree;
use std::path::{Path, PathBuf};

/// Columns of a line: rustfmt's limit, also where rustfmt leaves a line as it is.
pub(crate) const MAX_COLUMNS: usize = 110;
/// Lines of a source file.
pub(crate) const MAX_LINES: usize = 520;
/// Characters of a test's name.
pub(crate) const MAX_TEST_NAME: usize = 60;
/// Pronouns that stand for a part of the system, which has a name.
const PLACEHOLDERS: [&str; 6] = ["nobody", "nobodys", "somebody", "anybody", "everybody", "whoever"];
/// Sentences of the whole tree that may have such a word.
pub(crate) const MAX_PLACEHOLDERS: usize = 12;

fn sources() -> Vec<PathBuf> {
    let root = tree::root();
    let of = |folder: &str, suffix: &str| tree::files(&root.join(folder), suffix);
    [of("crates", ".rs"), of("fuzz", ".rs"), of("crates", ".c"), of("crates", ".h")].concat()
}

/// Lines that are too long; rows of tables in comments cannot be broken.
pub(crate) fn long_lines() -> Vec<String> {
    let long = |path: &PathBuf| {
        let text = tree::read(path);
        let is_row = |line: &str| line.trim_start().starts_with("//") && line.trim_end().ends_with('|');
        let long = |line: &str| line.chars().count() > MAX_COLUMNS && !is_row(line);
        let lines = text.lines().enumerate().filter(|(_, line)| long(line));
        lines.map(|(n, _)| format!("{}:{}", tree::shown(path), n + 1)).collect::<Vec<_>>()
    };
    sources().iter().flat_map(long).collect()
}

/// Files that are too long.
pub(crate) fn long_files() -> Vec<String> {
    let lines = |path: &PathBuf| (tree::read(path).lines().count(), tree::shown(path));
    let long = sources().iter().map(lines).filter(|(lines, _)| *lines > MAX_LINES).collect::<Vec<_>>();
    long.into_iter().map(|(lines, path)| format!("{path}: {lines} lines")).collect()
}

/// Names of tests, and of other functions, that are too long for a claim.
pub(crate) fn long_names() -> Vec<String> {
    let mut found = Vec::new();
    for path in sources() {
        let text = tree::read(&path);
        let names = text.split("fn ").skip(1).map(identifier);
        let long = names.filter(|name| name.len() > MAX_TEST_NAME);
        found.extend(long.map(|name| format!("{}: {name}", tree::shown(&path))));
    }
    found
}

/// Identifiers with a placeholder in them, wherever they stand.
pub(crate) fn placeholder_identifiers() -> Vec<String> {
    let mut found = Vec::new();
    for path in sources().into_iter().filter(|p| !is_own(p)) {
        for word in words(&tree::read(&path)).filter(|w| w.contains('_')) {
            if word.to_lowercase().split('_').any(|part| PLACEHOLDERS.contains(&part)) {
                found.push(format!("{}: {word}", tree::shown(&path)));
            }
        }
    }
    found
}

/// Lines of code and documents that have a placeholder.
pub(crate) fn placeholders() -> Vec<String> {
    let root = tree::root();
    let documents = tree::files(&root, ".md");
    let mut found = Vec::new();
    for path in sources().into_iter().chain(documents).filter(|p| !is_own(p)) {
        for (n, line) in tree::read(&path).lines().enumerate() {
            if words(line).any(|w| PLACEHOLDERS.contains(&w.to_lowercase().as_str())) {
                found.push(format!("{}:{}: {}", tree::shown(&path), n + 1, line.trim()));
            }
        }
    }
    found
}

/// Parameters of functions that are tuples, such as `(vm, name): (u16, &str)`. The number may only fall.
pub(crate) const MAX_TUPLES: usize = 75;

/// Counts those parameters.
pub(crate) fn tuple_parameters() -> usize {
    let is_tuple = |parameter: &syn::FnArg| match parameter {
        syn::FnArg::Typed(typed) => matches!(*typed.pat, syn::Pat::Tuple(_)),
        syn::FnArg::Receiver(_) => false,
    };
    struct Count<F>(usize, F);
    impl<F: Fn(&syn::FnArg) -> bool> syn::visit::Visit<'_> for Count<F> {
        fn visit_signature(&mut self, signature: &syn::Signature) {
            self.0 += signature.inputs.iter().filter(|parameter| (self.1)(parameter)).count();
        }
    }
    let rust = sources().into_iter().filter(|path| path.extension().is_some_and(|e| e == "rs"));
    rust.map(|path| {
        let mut count = Count(0, is_tuple);
        let parsed = syn::parse_file(&tree::read(&path)).expect("a source file is Rust");
        syn::visit::visit_file(&mut count, &parsed);
        count.0
    })
    .sum()
}

fn is_own(path: &Path) -> bool {
    path.ends_with("rules/style.rs") || path.ends_with("CONTRIBUTING.md")
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|w| !w.is_empty())
}

fn identifier(text: &str) -> &str {
    words(text).next().filter(|w| text.starts_with(w)).unwrap_or_default()
}
