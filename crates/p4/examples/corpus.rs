//! Checks every P4 file of a folder and counts what the compiler makes of it.
//!
//! `corpus FOLDER [INCLUDE FOLDER...] [--list]` compiles: with `--list` each file's first error is printed;
//! `--verify` has the verifier look at what was compiled.
//! `--only=PREFIX` takes the files whose names begin so.
//! `--accept` runs the front end alone: what it refuses as wrong is listed, what it cannot translate counts as accepted.
//! `--refuse=OUTPUTS` expects every file to be refused at a line that `OUTPUTS/NAME.p4-stderr` names.
#![allow(clippy::print_stdout, reason = "it is what this example is for")]

use p4shield_bpf::verify::{self, Limits};
use p4shield_bpf::{Object, link};
use p4shield_p4::diagnostics::Plain;
use p4shield_p4::{Compiled, Included, Options, Resolver, check, compile};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

struct Files(Vec<PathBuf>);

impl Resolver for Files {
    fn resolve(&self, path: &str, _: bool, _: &str) -> Option<Included> {
        let found = self.0.iter().map(|f| f.join(path)).find(|p| p.is_file())?;
        Some(Included { name: path.to_owned(), text: std::fs::read_to_string(found).ok()? })
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let list = args.iter().any(|a| a == "--list");
    let accept = args.iter().any(|a| a == "--accept");
    let verify_too = args.iter().any(|a| a == "--verify");
    let outputs = args.iter().find_map(|a| a.strip_prefix("--refuse="));
    let folders: Vec<PathBuf> = args.iter().filter(|a| !a.starts_with("--")).map(PathBuf::from).collect();
    let folder: &Path = folders.first().expect("usage: corpus FOLDER [INCLUDE FOLDER] [--list]");
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).expect("a folder").map(|e| e.expect("an entry").path()).collect();
    let only = args.iter().find_map(|a| a.strip_prefix("--only=")).unwrap_or("");
    let wanted = |p: &PathBuf| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with(only));
    paths.retain(|p| p.extension().is_some_and(|e| e == "p4") && wanted(p));
    paths.sort();
    let (mut outcomes, mut slowest) = (BTreeMap::<String, usize>::new(), (0, String::new()));
    for p in &paths {
        let Ok(text) = std::fs::read_to_string(p) else { continue };
        let name = p.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let start = Instant::now();
        let files = Files(folders.clone());
        let outcome = if accept {
            accepted(&name, &text, &files)
        } else if let Some(outputs) = outputs {
            refused(&name, &text, &files, &Path::new(outputs).join(format!("{name}-stderr")))
        } else {
            compiled(&name, &text, &files, list, verify_too)
        };
        slowest = slowest.max((start.elapsed().as_micros(), name.clone()));
        let key = if accept { format!("{} {outcome}", architecture(&text)) } else { outcome };
        *outcomes.entry(key).or_default() += 1;
    }
    println!("{} files: {outcomes:#?}; slowest {} in {} us", paths.len(), slowest.1, slowest.0);
}

fn compiled(name: &str, text: &str, files: &Files, list: bool, verify_too: bool) -> String {
    let result = compile(name, text, files, &Options::default());
    let e = match result {
        Ok(_) if !verify_too => return "compiled".to_owned(),
        Ok(c) => return verified(name, &c),
        Err(e) => e,
    };
    let plain = e.plain();
    let Some(first) = plain.iter().find(|p| p.error) else { return "?".to_owned() };
    if list {
        println!("{}", line_of(name, first));
    }
    first.code.to_owned()
}

/// What the verifier says; a program that needs a tenant's externs cannot be linked here.
fn verified(name: &str, c: &Compiled) -> String {
    let start = Instant::now();
    let object = Object::parse(&c.object).expect("our own object");
    let Ok(linked) = link(&[object]) else { return "needs externs".to_owned() };
    match verify::verify(linked, &Limits::default()) {
        Ok(_) => {
            if start.elapsed() > SLOW {
                println!("{name}: verified in {:?}, {} instructions", start.elapsed(), c.facts.instructions);
            }
            "verified".to_owned()
        }
        Err(e) => {
            let text = format!("{e}");
            println!("{name}: refused by the verifier: {}", text.lines().next().unwrap_or(""));
            "refused by the verifier".to_owned()
        }
    }
}

/// Verifications that take longer are listed.
const SLOW: std::time::Duration = std::time::Duration::from_secs(5);

fn line_of(name: &str, p: &Plain) -> String {
    format!("{name}: {}: {}:{}:{}: {}", p.code, p.file, p.line, p.column, p.message)
}

/// Whether the compiler says that the program may be right but is not supported.
fn unsupported(p: &Plain) -> bool {
    p.code.starts_with("E08")
}

fn accepted(name: &str, text: &str, files: &Files) -> String {
    let plain = check(name, text, files, &Options::default()).plain();
    match plain.iter().find(|p| p.error && !unsupported(p)) {
        Some(p) => {
            println!("{}", line_of(name, p));
            "refused".to_owned()
        }
        None => "accepted".to_owned(),
    }
}

fn refused(name: &str, text: &str, files: &Files, reference: &Path) -> String {
    let plain = check(name, text, files, &Options::default()).plain();
    let errors: Vec<&Plain> = plain.iter().filter(|p| p.error && !unsupported(p)).collect();
    let expected = std::fs::read_to_string(reference).unwrap_or_default();
    let outcome = match errors.first() {
        None if plain.iter().any(unsupported) => "unsupported",
        None => "accepted",
        Some(_) if errors.iter().any(|p| expected.contains(&format!("{}({})", p.file, p.line))) => "right",
        // Some messages of the reference name no line.
        Some(_) if !expected.contains(".p4(") => "right",
        Some(_) => "other line",
    };
    if outcome != "right" {
        let ours = errors.first().map_or(String::new(), |p| line_of("", p));
        let theirs = expected.lines().find(|l| l.contains("error")).unwrap_or("");
        println!("{outcome}: {name}\n    ours: {ours}\n    p4c: {theirs}");
    }
    outcome.to_owned()
}

/// The architecture that a program includes.
fn architecture(text: &str) -> &'static str {
    let models = ["v1model", "ubpf_model", "ebpf_model", "psa", "pna", "xdp_model", "core"];
    let includes = |m: &&&str| text.lines().any(|l| l.starts_with("#include") && l.contains(**m));
    models.iter().find(includes).copied().unwrap_or("none")
}
