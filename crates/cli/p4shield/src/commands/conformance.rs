//! `p4shield conformance`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context;
use p4shield_p4::Reject;
use p4shield_stf::census::{self, Entry};
use p4shield_stf::conformance::{self, CaseResult, Folders};

use super::test::EngineName;
use p4shield_console::{Exit, Refused, output};

/// Run every test script of a folder and print a table
///
/// Runs each script with the program of the same name. --programs also compiles and verifies every
/// program of the folder and prints the times. docs/reference/conformance.md consists of such tables.
///
/// Example: p4shield conformance --corpus p4c/testdata/p4_16_samples --at-least 90
///
/// Exit code 3 if fewer pass.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Conformance {
    /// Folder of programs and scripts, such as p4c's testdata/p4_16_samples; may be repeated
    #[arg(long, required = true, value_name = "FOLDER")]
    corpus: Vec<PathBuf>,
    /// Folder that #include searches after the program's own; may be repeated
    #[arg(short = 'I', long = "include", value_name = "FOLDER")]
    include: Vec<PathBuf>,
    /// Folder of C with functions that programs call, such as p4c's testdata/extern_modules; may be repeated
    #[arg(long, value_name = "FOLDER")]
    functions: Vec<PathBuf>,
    /// The engine that executes the programs
    #[arg(long, value_enum, default_value = "both")]
    engine: EngineName,
    /// Fail unless at least this percentage of each architecture's scripts passes
    #[arg(long, value_name = "PERCENT")]
    at_least: Option<usize>,
    /// Also compile and verify every program of the folders
    #[arg(long)]
    programs: bool,
}

impl Conformance {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let mut results = Vec::new();
        for folder in &self.corpus {
            let cases = conformance::cases(folder, &self.functions)
                .with_context(|| format!("cannot read the folder {}", folder.display()))?;
            for case in cases.into_iter().filter(|c| c.architecture != "other") {
                // p4c's tests for uBPF expect that rejected packets pass.
                let reject = if case.architecture == "ubpf_model" { Reject::Pass } else { Reject::Drop };
                let folders = Folders(self.include.clone());
                let outcome = conformance::run(&case, &folders, self.engine.into(), reject);
                results.push((case.architecture, case.name, outcome));
            }
        }
        if results.is_empty() {
            let why = "no folder has a script (FILE.stf) for a program of a known architecture";
            return Err(Refused(why.into()).into());
        }
        let rows = table(&results);
        if self.programs {
            self.census()?;
        }
        let enough = rows.iter().all(|(_, passed, all)| passed * 100 >= all * self.at_least.unwrap_or(0));
        Ok(if enough { Exit::Done } else { Exit::Refused })
    }

    fn census(&self) -> anyhow::Result<()> {
        let folders = Folders(self.include.clone());
        let mut entries = Vec::new();
        for folder in &self.corpus {
            let programs = census::programs(folder)
                .with_context(|| format!("cannot read the folder {}", folder.display()))?;
            entries.extend(programs.iter().filter_map(|p| census::measure(p, &folders)));
        }
        programs(&entries);
        Ok(())
    }
}

/// Prints how many programs compile and verify, the other programs with reasons, and the times.
fn programs(entries: &[Entry]) {
    let mut counts: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
    for e in entries {
        *counts.entry(e.architecture).or_default().entry(e.result.as_str()).or_default() += 1;
    }
    output::line("\n| architecture | programs | results |\n|---|---|---|");
    for (architecture, outcomes) in &counts {
        let words: Vec<String> = outcomes.iter().map(|(word, n)| format!("{n} {word}")).collect();
        let all: usize = outcomes.values().sum();
        output::line(format_args!("| {architecture} | {all} | {} |", words.join(", ")));
    }
    output::line("\n| step | median | largest | of |\n|---|---|---|---|");
    let compiling = census::median_and_maximum(entries.iter().map(|e| (e.compiling, e.name.as_str())));
    let verifying =
        census::median_and_maximum(entries.iter().filter_map(|e| Some((e.verifying?, e.name.as_str()))));
    for (step, times) in [("compile", compiling), ("verify", verifying)] {
        if let Some((median, largest, whose)) = times {
            output::line(format_args!("| {step} | {median:.1?} | {largest:.1?} | {whose} |"));
        }
    }
    output::line("\n| architecture | program | outcome | reason |\n|---|---|---|---|");
    for e in entries.iter().filter(|e| e.result != CaseResult::Passed) {
        let reason = e.result.reason().replace('|', "\\|");
        output::line(format_args!("| {} | {} | {} | {reason} |", e.architecture, e.name, e.result.as_str()));
    }
}

/// Prints the table in Markdown. Returns architecture, passed scripts and all scripts.
fn table(results: &[(&'static str, String, CaseResult)]) -> Vec<(&'static str, usize, usize)> {
    let mut counts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (architecture, _, outcome) in results {
        let (passed, all) = counts.entry(architecture).or_default();
        *all += 1;
        *passed += usize::from(*outcome == CaseResult::Passed);
    }
    output::line("| architecture | scripts | passed |\n|---|---|---|");
    for (architecture, (passed, all)) in &counts {
        output::line(format_args!("| {architecture} | {all} | {passed} |"));
    }
    if results.iter().any(|(_, _, o)| *o != CaseResult::Passed) {
        output::line(
            "\nScripts that do not pass:\n\n| architecture | test | outcome | reason |\n|---|---|---|---|",
        );
    }
    for (architecture, name, outcome) in results.iter().filter(|(_, _, o)| *o != CaseResult::Passed) {
        let reason = outcome.reason().replace('|', "\\|");
        output::line(format_args!("| {architecture} | {name} | {} | {reason} |", outcome.as_str()));
    }
    counts.into_iter().map(|(a, (passed, all))| (a, passed, all)).collect()
}
