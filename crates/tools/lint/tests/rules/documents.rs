//! What documents name: links, paths, tests.

use crate::tree;
use std::path::{Path, PathBuf};

fn documents() -> Vec<PathBuf> {
    tree::files(&tree::root(), ".md")
}

/// Links between documents, and to code, that lead nowhere.
pub(crate) fn broken_links() -> Vec<String> {
    let mut found = Vec::new();
    for path in documents() {
        let text = tree::read(&path);
        let folder = path.parent().expect("a file is in a folder");
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let file = if file.is_empty() { path.clone() } else { folder.join(file) };
            let anchored = anchor.is_empty()
                || file.extension().is_none_or(|e| e != "md")
                || (file.is_file() && anchors(&tree::read(&file)).any(|a| a == anchor));
            if !file.exists() || !anchored {
                found.push(format!("{}: {target}", tree::shown(&path)));
            }
        }
    }
    found
}

/// The anchors that a Markdown renderer gives a document's headings.
fn anchors(text: &str) -> impl Iterator<Item = String> {
    text.lines().filter(|line| line.starts_with('#')).map(|line| {
        let kept = line.trim_start_matches('#').trim().to_lowercase();
        let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    })
}

/// Paths of this repository that documents and comments mention and that do not exist.
pub(crate) fn missing_paths() -> Vec<String> {
    const FOLDERS: [&str; 6] = ["crates/", "docs/", "examples/", "fuzz/", "packaging/", "scripts/"];
    let root = tree::root();
    let code = tree::files(&root.join("crates"), ".rs");
    let mut found = Vec::new();
    for path in documents().into_iter().filter(|p| !p.ends_with("CHANGELOG.md")).chain(code) {
        let text = tree::read(&path);
        let in_code = path.extension().is_some_and(|e| e == "rs");
        for line in text.lines().filter(|line| !in_code || line.trim_start().starts_with("//")) {
            let tokens = line.split(|c: char| !(c.is_alphanumeric() || "_-./{}*,".contains(c)));
            for token in tokens.map(|t| t.trim_end_matches(['.', ','])) {
                let whole = !token.contains(['{', '*', ',']) && !token.contains("NNN");
                let ours =
                    FOLDERS.iter().any(|folder| token.starts_with(folder) && token.len() > folder.len());
                if whole && ours && !root.join(token).exists() {
                    found.push(format!("{}: {token}", tree::shown(&path)));
                }
            }
        }
    }
    found
}

/// Tests that the threat model names and that do not exist. The second value counts its claims.
pub(crate) fn missing_tests(document: &Path) -> (Vec<String>, usize) {
    let (mut found, mut claims) = (Vec::new(), 0);
    let crates = tree::crates();
    let document = tree::read(document);
    for row in document.lines().filter(|l| l.starts_with("| ") && l.contains(" :: ")) {
        let tests = row.trim_end_matches([' ', '|']).rsplit(" | ").next().unwrap_or_default();
        claims += 1;
        for part in tests.split("; ") {
            let (names, tests) = part.split_once(" :: ").unwrap_or_else(|| panic!("no crate in: {part}"));
            for name in names.split(", ").map(str::trim) {
                let Some(c) = crates.iter().find(|c| c.name == name) else {
                    found.push(format!("there is no crate {name}"));
                    continue;
                };
                let text = sources(&c.folder);
                let absent = quoted(tests).filter(|test| !has_test(&text, test));
                found.extend(absent.map(|test| format!("{name} :: {test}")));
            }
        }
    }
    (found, claims)
}

/// Claims of the threat model that do not say for each compartment whether they hold.
pub(crate) fn claims_without_compartments(document: &str) -> Vec<String> {
    const WORDS: [&str; 4] = ["yes", "if", "hw", "-"];
    let rows = document.lines().filter(|l| l.starts_with("| ") && l.contains(" :: "));
    let incomplete = |row: &&str| {
        let cells: Vec<_> = row.trim_matches(['|', ' ']).split(" | ").collect();
        cells.len() != 5 || cells[1..4].iter().any(|cell| !WORDS.contains(cell))
    };
    rows.filter(incomplete).map(|row| row.chars().take(80).collect()).collect()
}

/// Names and texts of all sources of a crate.
fn sources(folder: &Path) -> String {
    tree::files(folder, ".rs").iter().map(|f| format!("{}\n{}", f.display(), tree::read(f))).collect()
}

/// The words between backticks.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Whether `text` defines a function, module, file or named case of this name; one that starts with it, if
/// the name ends with `*`. A mention in a comment does not count.
fn has_test(text: &str, name: &str) -> bool {
    let stem = name.trim_end_matches('*').rsplit("::").next().unwrap_or(name);
    let exact = !name.ends_with('*');
    text.match_indices(stem).any(|(at, _)| {
        let defined = ["fn ", "mod ", "/", "\"", "\"test "].iter().any(|before| text[..at].ends_with(before));
        let after = text[at + stem.len()..].chars().next().unwrap_or(' ');
        defined && (!exact || !(after.is_alphanumeric() || after == '_'))
    })
}

/// Fuzz targets that are not built, and crates that fuzz/Cargo.lock does not know.
pub(crate) fn fuzz_targets() -> Vec<String> {
    let fuzz = tree::root().join("fuzz");
    let manifest = tree::read(&fuzz.join("Cargo.toml"));
    let lock = tree::read(&fuzz.join("Cargo.lock"));
    let name = |path: &PathBuf| path.file_name().and_then(|n| n.to_str()).unwrap_or_default().to_owned();
    let targets = tree::files(&fuzz.join("fuzz_targets"), ".rs");
    let unbuilt = targets.iter().map(name).filter(|n| !manifest.contains(&format!("\"fuzz_targets/{n}\"")));
    let mut found: Vec<_> = unbuilt.map(|n| format!("fuzz/Cargo.toml does not build {n}")).collect();
    for dependency in manifest.lines().filter(|l| l.starts_with("p4shield-")) {
        let name = dependency.split_whitespace().next().unwrap_or_default();
        if !lock.contains(&format!("name = \"{name}\"")) {
            found.push(format!("fuzz/Cargo.lock does not know {name}"));
        }
    }
    found
}

/// Pages below `docs` that neither the index nor the index of their folder links.
pub(crate) fn unlinked_pages() -> Vec<String> {
    let docs = tree::root().join("docs");
    let mut found = Vec::new();
    for path in tree::files(&docs, ".md").into_iter().filter(|path| *path != docs.join("README.md")) {
        let folder = path.parent().expect("a file is in a folder");
        let links = |index: &Path| {
            let below = path.strip_prefix(index).ok().and_then(Path::to_str).expect("the page is below");
            let page = index.join("README.md");
            page != path && page.is_file() && tree::read(&page).contains(&format!("]({below}"))
        };
        if !links(&docs) && !links(folder) {
            found.push(tree::shown(&path));
        }
    }
    found
}

/// Terms that the glossary defines in two rows.
pub(crate) fn terms_defined_twice() -> Vec<String> {
    let page = tree::read(&tree::root().join("docs/glossary.md"));
    let terms = page.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let mut terms: Vec<_> = terms.filter(|term| *term != "term").flat_map(|term| term.split(", ")).collect();
    terms.sort_unstable();
    terms.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0].to_owned()).collect()
}
