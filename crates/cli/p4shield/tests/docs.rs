//! What the documents name exists.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

fn sources(folder: &Path, text: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, text);
        } else if path.extension().is_some_and(|e| e == "rs") {
            text.push_str(&path.display().to_string());
            text.push('\n');
            text.push_str(&std::fs::read_to_string(&path).unwrap());
        }
    }
}

/// The folder of the crate `p4shield-NAME`, or of the command line for `cli`.
fn folder_of(name: &str) -> PathBuf {
    let crates = root().join("crates");
    let groups = std::fs::read_dir(&crates).unwrap().map(|e| e.unwrap().path()).filter(|p| p.is_dir());
    let folders = groups.flat_map(|group| {
        let inside = std::fs::read_dir(&group).unwrap().map(|e| e.unwrap().path());
        std::iter::once(group).chain(inside).collect::<Vec<_>>()
    });
    let package = if name == "cli" { "p4shield".to_owned() } else { format!("p4shield-{name}") };
    let declaration = format!("name = \"{package}\"");
    folders
        .into_iter()
        .find(|folder| {
            let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
            manifest.lines().any(|line| line == declaration)
        })
        .unwrap_or_else(|| panic!("no crate is called {package}"))
}

/// The Markdown files in `folder` and below it.
fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            pages(&path, found);
        } else if path.extension().is_some_and(|e| e == "md") {
            found.push(path);
        }
    }
}

/// The words between backticks.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Whether `text` has a function, module, file or named case of this name; of one that starts with it, if it ends with `*`.
/// A mention in a comment is none.
fn has_test(text: &str, name: &str) -> bool {
    let stem = name.trim_end_matches('*').rsplit("::").next().unwrap_or(name);
    let exact = !name.ends_with('*');
    text.match_indices(stem).any(|(at, _)| {
        let defined = ["fn ", "mod ", "/", "\"", "\"test "].iter().any(|before| text[..at].ends_with(before));
        let after = text[at + stem.len()..].chars().next().unwrap_or(' ');
        defined && (!exact || !(after.is_alphanumeric() || after == '_'))
    })
}

#[test]
fn every_claim_of_the_threat_model_names_tests_that_exist() {
    let document = std::fs::read_to_string(root().join("docs/explanation/threat-model.md")).unwrap();
    let (mut claims, mut missing) = (0, Vec::new());
    for row in document.lines().filter(|l| l.starts_with("| ") && l.contains(" :: ")) {
        let tests = row.trim_end_matches([' ', '|']).rsplit(" | ").next().unwrap();
        claims += 1;
        for part in tests.split("; ") {
            let (crates, names) = part.split_once(" :: ").unwrap_or_else(|| panic!("no crate in: {part}"));
            for name in crates.split(", ") {
                let mut text = String::new();
                sources(&folder_of(name.trim()), &mut text);
                let absent = quoted(names).filter(|test| !has_test(&text, test));
                missing.extend(absent.map(|test| format!("{} :: {test}", name.trim())));
            }
        }
    }
    assert!(missing.is_empty(), "the threat model names tests that do not exist: {missing:#?}");
    assert!(claims > 30, "only {claims} claims were found; has the document's form changed?");
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut documents = Vec::new();
    for folder in ["docs", "examples", ".github"] {
        pages(&root().join(folder), &mut documents);
    }
    let top = std::fs::read_dir(root()).unwrap().map(|e| e.unwrap().path());
    documents.extend(top.filter(|p| p.extension().is_some_and(|e| e == "md")));
    for path in documents {
        let name = path.display();
        let text = std::fs::read_to_string(&path).unwrap();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = target.split('#').next().unwrap();
            let there = target.contains("://") || path.parent().unwrap().join(target).exists();
            assert!(there, "{name} links to {target}, which does not exist");
        }
    }
}

#[test]
fn the_exit_codes_of_the_audit_are_documented() {
    use p4shield_agent::audit::finding::exit_code as code;
    let text = std::fs::read_to_string(root().join("docs/reference/exit-codes.md")).unwrap();
    for n in [
        code::BYPASSED,
        code::SWAPPED,
        code::INVENTED,
        code::WITHHELD,
        code::LOG_FORGED,
        code::LOG_STOPPED,
        code::RESTARTED,
        code::INFO_REFUSED,
        code::UNPROVEN,
    ] {
        assert!(text.contains(&format!("| {n} |")), "exit code {n} is not in docs/reference/exit-codes.md");
    }
}

#[test]
fn every_fuzz_target_is_built_and_the_lock_file_knows_its_crates() {
    let fuzz = root().join("fuzz");
    let manifest = std::fs::read_to_string(fuzz.join("Cargo.toml")).unwrap();
    let lock = std::fs::read_to_string(fuzz.join("Cargo.lock")).unwrap();
    for target in std::fs::read_dir(fuzz.join("fuzz_targets")).unwrap() {
        let name = target.unwrap().file_name().into_string().unwrap();
        assert!(
            manifest.contains(&format!("\"fuzz_targets/{name}\"")),
            "fuzz/Cargo.toml does not build {name}"
        );
    }
    for dependency in manifest.lines().filter(|l| l.starts_with("p4shield-")) {
        let name = dependency.split_whitespace().next().unwrap();
        assert!(lock.contains(&format!("name = \"{name}\"")), "fuzz/Cargo.lock does not know {name}");
    }
}
