//! `p4shield compile` and `p4shield check`.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::ValueEnum;
use p4shield_bpf::{Object, link};
use p4shield_p4::diagnostics::{Diagnostics, PlainDiagnostic, RelatedLocation};
use p4shield_p4::p4info::{P4Info, p4info};
use p4shield_p4::{Compiled, Options};
use p4shield_stf::conformance::Folders;

use p4shield_console::{Exit, input, output};

/// Compile a P4 program to an eBPF object
///
/// The object is an ordinary ELF file: `llvm-objdump -d` reads it, and `p4shield verify` checks
/// whether a P4 VM accepts it. The architectures ubpf_model, ebpf_model and v1model, core.p4 and
/// p4shield.p4 (in-VM information) are built in.
///
/// Examples:
///
///   p4shield compile guard.p4                 write guard.o
///   p4shield compile guard.p4 --emit asm      the code with its source lines
///   p4shield compile guard.p4 --emit graph | dot -Tsvg > guard.svg
///   p4shield compile guard.p4 -D LIMIT=64 -I include -o out/guard.o
///   p4shield compile router.p4 --p4info router.p4info.txt
///   p4shield compile --show p4shield.p4       the functions that read in-VM information, and others
///
/// The object is also verified, as `p4shield verify` does, unless it calls functions of the tenant's own.
/// A verification of over a second is reported, one of over two seconds and a refusal are warned of, with
/// the action or control that most of the code comes from.
///
/// --json prints one line with object, instructions, longest_path, externs, tables, maps, warnings (in the
/// form of `p4shield check --json`) and verification: accepted, seconds, refusal (or null), or null if the
/// object was not verified; and largest_part: name, place and instructions, or null.
///
/// Exit code 3 if the program has errors; `p4shield explain CODE` explains an error's code.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
#[command(mut_arg("program", |program| program.required(false).required_unless_present("show")))]
pub(crate) struct Compile {
    #[command(flatten)]
    source: Source,
    /// The object to write; default: the source's path with the extension .o
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print a stage instead of writing an object
    #[arg(long, value_enum)]
    emit: Option<Stage>,
    /// Also write P4Runtime's P4Info: protocol buffer text, or binary if the name ends with .bin or .pb
    #[arg(long, value_name = "FILE")]
    p4info: Option<PathBuf>,
    /// Also write a C header that declares the program's own extern functions and their types
    #[arg(long, value_name = "FILE.h")]
    c_header: Option<PathBuf>,
    /// Print a file that programs include and that is built in, and compile nothing
    #[arg(long, value_name = "FILE", exclusive = true, value_parser = built_in)]
    show: Option<&'static str>,
    /// Do not verify the object
    #[arg(long)]
    no_verify: bool,
    /// Print maps, tables, externs, sizes, warnings and the result of the verification as JSON
    #[arg(long)]
    json: bool,
}

/// Check a P4 program for errors and warnings
///
/// Prints each with file, line, column, source line and a hint, and writes nothing.
///
/// Examples:
///
///   p4shield check guard.p4
///   p4shield check --json guard.p4    for editors
///
/// --json prints a list of objects: code, error (false for a warning), message, hint (or null), file,
/// line, column, end_line, end_column (from 1; the end is exclusive), source (the line), and related:
/// further locations, each with file, line, column, end_line, end_column, message.
///
/// Exit code 3 if there is an error.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Check {
    #[command(flatten)]
    source: Source,
    /// Print diagnostics as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct Source {
    /// The program; - for standard input
    #[arg(required = true)]
    program: Option<PathBuf>,
    /// Folder that #include searches after the program's own; may be repeated
    #[arg(short = 'I', long = "include", value_name = "FOLDER")]
    include: Vec<PathBuf>,
    /// Define a macro; may be repeated
    #[arg(short = 'D', long = "define", value_name = "NAME[=TEXT]", value_parser = define)]
    define: Vec<(String, String)>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Stage {
    /// The syntax tree as P4 text
    Ast,
    /// The optimised intermediate representation
    Ir,
    /// The code, with source lines
    Asm,
    /// The flow of parsers and controls, for Graphviz (`dot -Tsvg`)
    Graph,
}

impl Compile {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        if let Some(text) = self.show {
            output::text(text);
            return Ok(Exit::Done);
        }
        let (name, text) = self.source.read()?;
        let compiled =
            match p4shield_p4::compile(&name, &text, &self.source.folders(), &self.source.options()) {
                Ok(compiled) => compiled,
                Err(errors) => return refuse(&errors),
            };
        report(&compiled.warnings);
        if let Some(stage) = self.emit {
            output::text(match stage {
                Stage::Ast => &compiled.ast,
                Stage::Ir => &compiled.ir,
                Stage::Asm => &compiled.asm,
                Stage::Graph => &compiled.graph,
            });
            return Ok(Exit::Done);
        }
        let info = match &self.p4info {
            None => None,
            // Before anything is written: a program without a P4Info gets no object either.
            Some(path) => match p4info(&name, &text, &self.source.folders(), &self.source.options()) {
                Ok(info) => Some((info, path)),
                Err(errors) => return refuse(&errors),
            },
        };
        let to = self.output.unwrap_or_else(|| self.source.program().with_extension("o"));
        std::fs::write(&to, &compiled.object).with_context(|| format!("cannot write {}", to.display()))?;
        if let Some((info, path)) = &info {
            write_p4info(info, path)?;
        }
        if let Some(path) = &self.c_header {
            std::fs::write(path, &compiled.c_header)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        let verification = if self.no_verify { None } else { Verification::of(&compiled)? };
        if self.json {
            output::json(&facts(&compiled, &to, verification.as_ref()))?;
        } else if let Some(line) = verification.and_then(|v| v.remark(&compiled)) {
            output::note(line);
        }
        Ok(Exit::Done)
    }
}

/// The result of verifying an object.
struct Verification {
    elapsed: Duration,
    refusal: Option<String>,
}

impl Verification {
    /// Verifies the object, if it is complete without other objects.
    fn of(compiled: &Compiled) -> anyhow::Result<Option<Self>> {
        if !compiled.facts.externs.is_empty() {
            return Ok(None);
        }
        let object = Object::parse(&compiled.object).context("cannot read the object")?;
        let linked = link(&[object]).context("cannot link the object")?;
        let started = Instant::now();
        Ok(Some(match super::verify::verify(&linked, false)? {
            Ok(report) => Self { elapsed: report.elapsed, refusal: None },
            Err(refusal) => Self { elapsed: started.elapsed(), refusal: Some(refusal.to_string()) },
        }))
    }

    /// Returns what a reader should know: a refusal, or a verification that takes long.
    fn remark(&self, compiled: &Compiled) -> Option<String> {
        let part = compiled.facts.largest.as_ref().map(|l| {
            let all = compiled.facts.instructions;
            format!("; {} of {all} instructions come from `{}` ({})", l.instructions, l.name, l.place)
        });
        let part = part.unwrap_or_default();
        match &self.refusal {
            Some(why) => Some(format!("warning: a P4 VM refuses this program: {why}{part}")),
            None if self.elapsed > SLOW => Some(format!(
                "warning: the verification takes {:.1?}, and so does each load of the program that no cache \
                 saves{part}",
                self.elapsed
            )),
            None if self.elapsed > NOTABLE => Some(format!("the verification takes {:.1?}", self.elapsed)),
            None => None,
        }
    }
}

/// Verifications that take longer are reported.
const NOTABLE: Duration = Duration::from_secs(1);
/// Verifications that take longer are warned of: one program of p4c's suite exceeds it.
const SLOW: Duration = Duration::from_secs(2);

impl Check {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let (name, text) = self.source.read()?;
        let found = p4shield_p4::check(&name, &text, &self.source.folders(), &self.source.options());
        if self.json {
            output::json(&plain(&found))?;
        } else {
            report(&found);
        }
        Ok(if found.has_errors() { Exit::Refused } else { Exit::Done })
    }
}

impl Source {
    pub(super) fn read(&self) -> anyhow::Result<(String, String)> {
        let text = input::text(self.program(), "P4 source")?;
        Ok((self.program().display().to_string(), text))
    }

    /// Returns the program's path. Without one, clap refuses the command unless it shows a file instead.
    fn program(&self) -> &Path {
        self.program.as_deref().unwrap_or(Path::new("-"))
    }

    pub(super) fn folders(&self) -> Folders {
        Folders(self.include.clone())
    }

    pub(super) fn options(&self) -> Options {
        Options { defines: self.define.clone(), ..Options::default() }
    }
}

/// Returns the text of a file that is built in.
fn built_in(name: &str) -> Result<&'static str, String> {
    let found = p4shield_p4::built_in_files().find(|(file, _)| *file == name);
    found.map(|(_, text)| text).ok_or_else(|| {
        let names: Vec<_> = p4shield_p4::built_in_files().map(|(file, _)| file).collect();
        format!("built in are {}", names.join(", "))
    })
}

fn write_p4info(info: &P4Info, path: &Path) -> anyhow::Result<()> {
    let binary = path.extension().is_some_and(|e| e == "bin" || e == "pb");
    let bytes = if binary { info.to_bytes() } else { info.to_text().into_bytes() };
    std::fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

fn define(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').unwrap_or((text, "1"));
    if name.is_empty() { Err("a macro needs a name".into()) } else { Ok((name.into(), value.into())) }
}

/// Diagnostics for scripts and editors.
fn plain(found: &Diagnostics) -> Vec<serde_json::Value> {
    let location = |r: &RelatedLocation| {
        serde_json::json!({
            "file": r.file, "line": r.line, "column": r.column,
            "end_line": r.end_line, "end_column": r.end_column,
            "message": r.message,
        })
    };
    let one = |d: &PlainDiagnostic| {
        serde_json::json!({
            "code": d.code, "error": d.error, "message": d.message, "hint": d.hint,
            "file": d.file, "line": d.line, "column": d.column,
            "end_line": d.end_line, "end_column": d.end_column,
            "source": d.source, "related": d.related.iter().map(location).collect::<Vec<_>>(),
        })
    };
    found.plain().iter().map(one).collect()
}

pub(super) fn report(found: &Diagnostics) {
    if !found.is_empty() {
        output::diagnostics(&found.render(output::coloured(&std::io::stderr())));
    }
}

pub(super) fn refuse(errors: &Diagnostics) -> anyhow::Result<Exit> {
    report(errors);
    Ok(Exit::Refused)
}

fn facts(compiled: &Compiled, to: &Path, verification: Option<&Verification>) -> serde_json::Value {
    let f = &compiled.facts;
    let verified = |v: &Verification| {
        serde_json::json!({
            "accepted": v.refusal.is_none(), "seconds": v.elapsed.as_secs_f64(), "refusal": v.refusal,
        })
    };
    serde_json::json!({
        "object": to,
        "instructions": f.instructions,
        "longest_path": f.longest_path,
        "externs": f.externs,
        "tables": f.tables.iter().map(|t| t.name.as_str()).collect::<Vec<_>>(),
        "maps": f.maps.iter().map(|m| serde_json::json!({
            "name": m.name,
            "key_bytes": m.definition.key_size,
            "value_bytes": m.definition.value_size,
            "max_entries": m.definition.max_entries,
            "initial_entries": m.initial_entries,
        })).collect::<Vec<_>>(),
        "warnings": plain(&compiled.warnings),
        "largest_part": f.largest.as_ref().map(|l| {
            serde_json::json!({ "name": l.name, "place": l.place, "instructions": l.instructions })
        }),
        "verification": verification.map(verified),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use p4shield_p4::{Facts, LargestPart};

    fn remark(elapsed: f64, refusal: Option<&str>) -> Option<String> {
        let largest = LargestPart { name: "a".into(), place: "p.p4:7".into(), instructions: 90 };
        let facts = Facts { instructions: 100, largest: Some(largest), ..Facts::default() };
        let source = "#include <ebpf_model.p4>\nstruct h_t { }\n\
            parser P(packet_in p, out h_t h) { state start { transition accept; } }\n\
            control C(inout h_t h, out bool a) { apply { a = true; } }\nebpfFilter(P(), C()) main;";
        let compiled = p4shield_p4::compile("p.p4", source, &Folders(Vec::new()), &Options::default());
        let compiled = Compiled { facts, ..compiled.expect("compiles") };
        let elapsed = Duration::from_secs_f64(elapsed);
        Verification { elapsed, refusal: refusal.map(Into::into) }.remark(&compiled)
    }

    #[test]
    fn slow_verifications_are_warned_of_with_the_largest_part() {
        assert_eq!(remark(0.9, None), None);
        assert_eq!(remark(1.2, None).as_deref(), Some("the verification takes 1.2s"));
        let slow = remark(2.5, None).unwrap_or_default();
        assert!(slow.starts_with("warning: the verification takes 2.5s"), "{slow}");
        assert!(slow.ends_with("90 of 100 instructions come from `a` (p.p4:7)"), "{slow}");
        let refused = remark(0.1, Some("too long")).unwrap_or_default();
        assert!(refused.starts_with("warning: a P4 VM refuses this program: too long"), "{refused}");
    }
}
