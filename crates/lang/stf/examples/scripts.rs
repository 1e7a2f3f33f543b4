//! Runs every test script of a folder:
//! `scripts FOLDER [INCLUDE FOLDER...] [--functions=FOLDER...] [--only=TEXT] [--full] [--jit]`.
#![allow(clippy::print_stdout, reason = "the example prints a report")]

use std::collections::BTreeMap;
use std::path::PathBuf;

use p4shield_p4::Reject;
use p4shield_stf::conformance::{self, CaseResult, Folders};
use p4shield_stf::device::Engine;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let only = args.iter().find_map(|a| a.strip_prefix("--only=")).unwrap_or("");
    let full = args.iter().any(|a| a == "--full");
    let engine = if args.iter().any(|a| a == "--jit") { Engine::Jit } else { Engine::Both };
    let folders: Vec<PathBuf> = args.iter().filter(|a| !a.starts_with("--")).map(PathBuf::from).collect();
    let functions = args.iter().filter_map(|a| a.strip_prefix("--functions=")).map(PathBuf::from);
    let functions: Vec<PathBuf> = functions.collect();
    let folder = folders.first().expect("usage: scripts FOLDER [INCLUDE FOLDER...]");
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for case in conformance::cases(folder, &functions).expect("a folder") {
        if case.architecture == "other" || !case.name.contains(only) {
            continue;
        }
        // p4c's tests for uBPF expect that rejected packets pass.
        let reject = if case.architecture == "ubpf_model" { Reject::Pass } else { Reject::Drop };
        let result = conformance::run(&case, &Folders(folders[1..].to_vec()), engine, reject);
        *counts.entry((case.architecture, result.as_str())).or_default() += 1;
        match &result {
            CaseResult::Passed => {}
            CaseResult::Failed(all) if full => println!("{} {}:\n{all}", case.architecture, case.name),
            o => println!("{} {} {}: {}", case.architecture, o.as_str(), case.name, o.reason()),
        }
    }
    println!("{counts:#?}");
}
