//! The reference compiler's programs, if its `testdata` folder is available (`P4C_TESTDATA`, with
//! `../p4include` beside it): this compiler accepts the programs that p4c accepts, refuses those
//! that p4c refuses, at a line that p4c names, and terminates on every prefix of every file.
//! Without the folder, the project's own programs cover the same features.

#![allow(clippy::print_stdout, reason = "a skipped test prints the reason")]

mod cuts;
mod p4info;

use p4shield_p4::{Included, Options, Resolver, check};
use std::path::{Path, PathBuf};

struct Files(Vec<PathBuf>);

impl Resolver for Files {
    fn resolve(&self, path: &str, _: bool, _: &str) -> Option<Included> {
        let found = self.0.iter().map(|f| f.join(path)).find(|p| p.is_file())?;
        Some(Included { name: path.to_owned(), text: std::fs::read_to_string(found).ok()? })
    }
}

/// Returns the folder of programs, or prints why the test is skipped.
fn testdata() -> Option<PathBuf> {
    let found = std::env::var_os("P4C_TESTDATA").map(PathBuf::from).filter(|p| p.is_dir());
    if found.is_none() {
        p4shield_need::skip("p4c-testdata", "P4C_TESTDATA names no folder");
    }
    found
}

/// Returns name and text of every program of a folder, and a resolver for their includes.
fn programs(root: &Path, folder: &str) -> (Vec<(String, String)>, Files) {
    let folder = root.join(folder);
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(&folder).expect("the folder").map(|e| e.expect("an entry").path()).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "p4"));
    paths.sort();
    let read = |p: &PathBuf| {
        let name = p.file_name()?.to_string_lossy().into_owned();
        Some((name, std::fs::read_to_string(p).ok()?))
    };
    let includes = root.parent().unwrap_or(root).join("p4include");
    (paths.iter().filter_map(read).collect(), Files(vec![folder, includes]))
}

/// Returns the errors of a program: the file and line of each location, and whether the program is
/// invalid rather than not supported.
fn mistakes(name: &str, text: &str, files: &Files) -> Vec<(Vec<(String, u32)>, bool)> {
    let plain = check(name, text, files, &Options::default()).plain();
    let errors = plain.into_iter().filter(|p| p.error);
    let places = |p: p4shield_p4::diagnostics::PlainDiagnostic| {
        let related = p.related.into_iter().map(|r| (r.file, r.line));
        (std::iter::once((p.file, p.line)).chain(related).collect(), !p.code.starts_with("E08"))
    };
    errors.map(places).collect()
}

/// The reference compiler's errors for an invalid program, without warnings.
struct Reference {
    text: String,
    /// Whether the program is valid P4 that only its target does not support.
    target_only: bool,
}

impl Reference {
    fn new(output: &str) -> Self {
        let mut text = String::new();
        let mut warning = false;
        for line in output.lines() {
            let begins =
                line.contains(" error: ") || line.contains(" warning: ") || line.contains("syntax error");
            if begins {
                warning = line.contains(" warning: ");
            }
            if !warning {
                text.push_str(line);
                text.push('\n');
            }
        }
        let kinds = ["--Werror=unsupported", "--Werror=overlimit", "--Werror=target-error"];
        let target_only =
            text.lines().filter(|l| l.contains(" error: ")).all(|l| kinds.iter().any(|k| l.contains(k)));
        Self { text, target_only }
    }

    /// Whether one of its errors names a location. Line numbers of a built-in model differ from
    /// those of the reference's own.
    fn names(&self, (file, line): &(String, u32)) -> bool {
        match file.strip_prefix('<').and_then(|f| f.strip_suffix('>')) {
            Some(model) => self.text.contains(&format!("{model}(")),
            None => self.text.contains(&format!("{file}({line})")),
        }
    }

    /// Whether the errors agree with the reference's, at a line that it names, if it names any.
    fn agrees(&self, errors: &[(Vec<(String, u32)>, bool)]) -> bool {
        let counts = |wrong: bool| wrong || self.target_only;
        let mut errors = errors.iter().filter(|(_, wrong)| counts(*wrong)).peekable();
        let unplaced = !self.text.contains(".p4(");
        errors.peek().is_some()
            && (unplaced || errors.any(|(places, _)| places.iter().any(|p| self.names(p))))
    }
}

fn at_least(percent: usize, good: usize, all: usize, bad: &[String]) {
    println!("{good} of {all}; the others: {}", bad.join(" "));
    assert!(good * 100 >= all * percent, "{good} of {all} are right, {percent} % are needed: {bad:?}");
}

#[test]
fn what_the_reference_accepts_is_accepted() {
    let Some(root) = testdata() else { return };
    let (all, files) = programs(&root, "p4_16_samples");
    let wrong = |(n, t): &(String, String)| mistakes(n, t, &files).iter().any(|(_, wrong)| *wrong);
    let bad: Vec<String> = all.iter().filter(|p| wrong(p)).map(|(n, _)| n.clone()).collect();
    at_least(99, all.len() - bad.len(), all.len(), &bad);
}

#[test]
fn what_the_reference_refuses_is_refused_where_it_says() {
    let Some(root) = testdata() else { return };
    let (all, files) = programs(&root, "p4_16_errors");
    let right = |(name, text): &(String, String)| {
        let output = root.join("p4_16_errors_outputs").join(format!("{name}-stderr"));
        let expected = Reference::new(&std::fs::read_to_string(output).unwrap_or_default());
        expected.agrees(&mistakes(name, text, &files))
    };
    let bad: Vec<String> = all.iter().filter(|p| !right(p)).map(|(n, _)| n.clone()).collect();
    at_least(REFUSED, all.len() - bad.len(), all.len(), &bad);
}

/// Percentage of invalid programs that must be refused at the right line.
const REFUSED: usize = 97;
