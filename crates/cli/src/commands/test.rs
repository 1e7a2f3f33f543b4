//! `p4shield test` and `p4shield conformance`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::ValueEnum;
use p4shield_p4::{Options, Reject};
use p4shield_stf::conformance::{self, Folders, Outcome};
use p4shield_stf::device::{Device, Engine};
use p4shield_stf::{externs, parse, pcap, runner};

use super::compile::{Source, refuse, report};
use crate::exit::{Exit, Refused};
use crate::{input, output};

/// Run test scripts against a P4 program
///
/// The program is compiled, verified and run on the real engine; each script (Simple Test Framework:
/// packet, expect, add, ...) starts with fresh tables. Or, with --pcap and --expect, the packets of
/// one capture go through the program, and what passes is compared with another.
///
/// Examples:
///
///   p4shield test guard.p4 guard.stf
///   p4shield test guard.p4 --pcap in.pcap --expect out.pcap
///
/// Exit code 3 if anything is not as expected.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Test {
    #[command(flatten)]
    source: Source,
    /// Scripts
    scripts: Vec<PathBuf>,
    /// What executes the program; both have to agree
    #[arg(long, value_enum, default_value = "both")]
    engine: EngineName,
    /// What becomes of packets that the parser rejects (p4c's tests for uBPF want `pass`)
    #[arg(long, value_enum, default_value = "drop")]
    reject: RejectName,
    /// Object with the tenant's own functions; may be repeated
    #[arg(long, value_name = "OBJECT")]
    link: Vec<PathBuf>,
    /// C file with the tenant's own functions, compiled with clang; it includes "p4shield_program.h". May be repeated
    #[arg(long, value_name = "FILE.c")]
    functions: Vec<PathBuf>,
    /// Capture whose packets arrive
    #[arg(long, value_name = "FILE", requires = "expect", conflicts_with = "scripts")]
    pcap: Option<PathBuf>,
    /// Capture of what has to leave
    #[arg(long, value_name = "FILE", requires = "pcap")]
    expect: Option<PathBuf>,
    /// Port on which the packets of --pcap arrive
    #[arg(long, default_value_t = 0)]
    port: u32,
}

/// Run every test script of a folder and print a table
///
/// Each script runs with the program of the same name. docs/conformance.md is made of such tables.
///
/// Example: p4shield conformance --corpus p4c/testdata/p4_16_samples --at-least 90
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Conformance {
    /// Folder of programs and scripts, such as p4c's testdata/p4_16_samples; may be repeated
    #[arg(long, required = true, value_name = "FOLDER")]
    corpus: Vec<PathBuf>,
    /// Where #include looks after the program's own folder; may be repeated
    #[arg(short = 'I', long = "include", value_name = "FOLDER")]
    include: Vec<PathBuf>,
    /// Folder of C with functions that programs call, such as p4c's testdata/extern_modules; may be repeated
    #[arg(long, value_name = "FOLDER")]
    functions: Vec<PathBuf>,
    /// What executes the programs
    #[arg(long, value_enum, default_value = "both")]
    engine: EngineName,
    /// Fail unless at least so many percent of the scripts for each architecture pass
    #[arg(long, value_name = "PERCENT")]
    at_least: Option<usize>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum EngineName {
    /// Machine code
    Jit,
    /// The reference interpreter
    Interpreter,
    /// Both, which have to agree
    Both,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum RejectName {
    /// They are dropped
    Drop,
    /// They pass unchanged
    Pass,
}

impl From<EngineName> for Engine {
    fn from(name: EngineName) -> Self {
        match name {
            EngineName::Jit => Self::Jit,
            EngineName::Interpreter => Self::Interpreter,
            EngineName::Both => Self::Both,
        }
    }
}

impl Test {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let (name, text) = self.source.read()?;
        let reject = match self.reject {
            RejectName::Drop => Reject::Drop,
            RejectName::Pass => Reject::Pass,
        };
        let options = Options { reject, ..self.source.options() };
        let compiled = match p4shield_p4::compile(&name, &text, &self.source.folders(), &options) {
            Ok(compiled) => compiled,
            Err(errors) => return refuse(&errors),
        };
        report(&compiled.warnings);
        let mut objects = self.link.iter().map(|p| input::bytes(p)).collect::<anyhow::Result<Vec<_>>>()?;
        for file in &self.functions {
            objects.push(externs::compile(file, &compiled.c_header).map_err(|e| Refused(e.to_string()))?);
        }
        let load =
            || Device::load(&compiled, &objects, self.engine.into()).map_err(|e| Refused(e.to_string()));
        if let (Some(arriving), Some(expected)) = (&self.pcap, &self.expect) {
            let (arriving, expected) = (capture(arriving)?, capture(expected)?);
            let r = runner::run_capture(&arriving, &expected, self.port, &mut load()?);
            return Ok(tell(&name, &r));
        }
        if self.scripts.is_empty() {
            return Err(Refused("name a script, or captures with --pcap and --expect".into()).into());
        }
        let mut exit = Exit::Done;
        for path in &self.scripts {
            let shown = path.display().to_string();
            let text = input::text(path, "a script")?;
            let script = parse::parse(&text).map_err(|e| Refused(format!("{shown}: {e}")))?;
            let report = runner::run(&script, &mut load()?);
            if tell(&shown, &report) != Exit::Done {
                exit = Exit::Refused;
            }
        }
        Ok(exit)
    }
}

fn capture(path: &Path) -> anyhow::Result<Vec<pcap::Captured>> {
    Ok(pcap::read(&input::bytes(path)?).map_err(|e| Refused(format!("{}: {e}", path.display())))?)
}

fn tell(name: &str, report: &runner::Report) -> Exit {
    for (line, what) in &report.shown {
        output::line(format_args!("{name}:{line}: {what}"));
    }
    for f in &report.failures {
        output::line(format_args!("{name}: {f}"));
    }
    let (packets, expected) = (report.packets, report.expected);
    if report.passed() {
        output::line(format_args!("{name}: passed ({packets} packets, {expected} expected)"));
        return Exit::Done;
    }
    let n = report.failures.len();
    output::line(format_args!("{name}: FAILED: {n} of {packets} packets and commands are not as expected"));
    Exit::Refused
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
            let why = "no script (FILE.stf) in the folders is of a program for a known architecture";
            return Err(Refused(why.into()).into());
        }
        let rows = table(&results);
        let enough = rows.iter().all(|(_, passed, all)| passed * 100 >= all * self.at_least.unwrap_or(0));
        Ok(if enough { Exit::Done } else { Exit::Refused })
    }
}

/// Prints the table in Markdown; returns passed and all by architecture.
fn table(results: &[(&'static str, String, Outcome)]) -> Vec<(&'static str, usize, usize)> {
    let mut counts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (architecture, _, outcome) in results {
        let (passed, all) = counts.entry(architecture).or_default();
        *all += 1;
        *passed += usize::from(*outcome == Outcome::Passed);
    }
    output::line("| architecture | scripts | passed |\n|---|---|---|");
    for (architecture, (passed, all)) in &counts {
        output::line(format_args!("| {architecture} | {all} | {passed} |"));
    }
    if results.iter().any(|(_, _, o)| *o != Outcome::Passed) {
        output::line(
            "\nWhat does not pass, and why:\n\n| architecture | test | outcome | reason |\n|---|---|---|---|",
        );
    }
    for (architecture, name, outcome) in results.iter().filter(|(_, _, o)| *o != Outcome::Passed) {
        let reason = outcome.reason().replace('|', "\\|");
        output::line(format_args!("| {architecture} | {name} | {} | {reason} |", outcome.as_str()));
    }
    counts.into_iter().map(|(a, (passed, all))| (a, passed, all)).collect()
}
