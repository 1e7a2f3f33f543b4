//! `p4shield test`.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use p4shield_p4::{Options, Placement, Reject};
use p4shield_stf::device::{Device, Engine};
use p4shield_stf::{externs, parse, pcap, runner};

use super::compile::{Source, refuse, report};
use p4shield_console::{Exit, Refused, input, output};

/// Run test scripts against a P4 program
///
/// Compiles, verifies and runs the program on the real engine. Each script (Simple Test Framework:
/// packet, expect, add, ...) starts with fresh tables. With --pcap and --expect, the packets of one
/// capture pass through the program, and the result is compared with the other capture.
///
/// Examples:
///
///   p4shield test guard.p4 guard.stf
///   p4shield test guard.p4 --pcap in.pcap --expect out.pcap
///   p4shield test keyed_mark.p4 mark.stf --functions keyed_mark.c --placement extern
///
/// Exit code 3 if a packet differs from what the script expects.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Test {
    #[command(flatten)]
    source: Source,
    /// Scripts
    scripts: Vec<PathBuf>,
    /// The engine that executes the program; with `both`, their results must agree
    #[arg(long, value_enum, default_value = "both")]
    engine: EngineName,
    /// Verdict on packets that the parser rejects (p4c's tests for uBPF expect `pass`)
    #[arg(long, value_enum, default_value = "drop")]
    reject: RejectName,
    /// Object with the tenant's own functions; may be repeated
    #[arg(long, value_name = "OBJECT")]
    link: Vec<PathBuf>,
    /// C file with the tenant's own functions, compiled with clang; it includes "p4shield_program.h"; may
    /// be repeated
    #[arg(long, value_name = "FILE.c")]
    functions: Vec<PathBuf>,
    /// Where the functions run that the program marks with @compartment
    #[arg(long, value_enum, default_value = "inline")]
    placement: PlacementName,
    /// Capture of the packets to receive
    #[arg(long, value_name = "FILE", requires = "expect", conflicts_with = "scripts")]
    pcap: Option<PathBuf>,
    /// Capture of the packets that must pass
    #[arg(long, value_name = "FILE", requires = "pcap")]
    expect: Option<PathBuf>,
    /// Port on which the packets of --pcap arrive
    #[arg(long, default_value_t = 0)]
    port: u32,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum EngineName {
    /// Machine code
    Jit,
    /// The reference interpreter
    Interpreter,
    /// Both; their results must agree
    Both,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PlacementName {
    /// In the program
    Inline,
    /// In a program of their own: packets wait for its answers
    Extern,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum RejectName {
    /// Drop
    Drop,
    /// Pass unchanged
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
        let placement = match self.placement {
            PlacementName::Inline => Placement::Inline,
            PlacementName::Extern => Placement::Extern,
        };
        let options = Options { reject, placement, ..self.source.options() };
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
            return Ok(print(&name, &r));
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
            if print(&shown, &report) != Exit::Done {
                exit = Exit::Refused;
            }
        }
        Ok(exit)
    }
}

fn capture(path: &Path) -> anyhow::Result<Vec<pcap::CapturedPacket>> {
    Ok(pcap::read(&input::bytes(path)?).map_err(|e| Refused(format!("{}: {e}", path.display())))?)
}

fn print(name: &str, report: &runner::Report) -> Exit {
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
