//! A folder of programs with test scripts, each compiled, verified and run.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use p4shield_p4::{Included, Options, Reject, Resolver, compile};

use crate::device::{Device, Engine};
use crate::runner;

/// More bytes of a file than the compiler takes.
const MAX_INCLUDED: u64 = 32 << 20;

/// Includes are looked for beside the program, then in these folders.
#[derive(Clone, Debug, Default)]
pub struct Folders(pub Vec<PathBuf>);

impl Resolver for Folders {
    fn resolve(&self, path: &str, system: bool, from: &str) -> Option<Included> {
        let own = Path::new(from).parent().filter(|_| !system);
        let folders = own.into_iter().chain(self.0.iter().map(PathBuf::as_path));
        folders.map(|f| f.join(path)).find_map(|path| {
            let mut text = String::new();
            File::open(&path).ok()?.take(MAX_INCLUDED).read_to_string(&mut text).ok()?;
            Some(Included { name: path.display().to_string(), text })
        })
    }
}

/// A program with its script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// The file's name without ending.
    pub name: String,
    /// The program.
    pub program: PathBuf,
    /// The script.
    pub script: PathBuf,
    /// What the program includes: `v1model`, `ubpf_model`, `ebpf_model`, or `other`.
    pub architecture: &'static str,
}

/// What became of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Everything was as expected.
    Passed,
    /// The program is not in the folder.
    NoProgram,
    /// The compiler does not support something.
    NotSupported(String),
    /// The compiler refuses the program as wrong.
    Refused(String),
    /// The verifier or the engine refuses what the compiler made: a bug.
    NotAccepted(String),
    /// The script is not understood.
    Script(String),
    /// Packets are not as expected.
    Failed(String),
}

impl Outcome {
    /// A word for it.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::NoProgram => "no program",
            Self::NotSupported(_) => "not supported",
            Self::Refused(_) => "refused",
            Self::NotAccepted(_) => "not accepted",
            Self::Script(_) => "script",
            Self::Failed(_) => "failed",
        }
    }

    /// Why, in one line; empty if it passed.
    #[must_use]
    pub fn reason(&self) -> &str {
        match self {
            Self::Passed => "",
            Self::NoProgram => "the program is not in the folder",
            Self::NotSupported(r)
            | Self::Refused(r)
            | Self::NotAccepted(r)
            | Self::Script(r)
            | Self::Failed(r) => r.lines().next().unwrap_or_default(),
        }
    }
}

/// The scripts of a folder, each with the program of the same name.
///
/// # Errors
/// If the folder cannot be read.
pub fn cases(folder: &Path) -> std::io::Result<Vec<Case>> {
    let mut cases = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let script = entry?.path();
        if script.extension().is_none_or(|e| e != "stf") {
            continue;
        }
        let program = script.with_extension("p4");
        let name = script.file_stem().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let text = std::fs::read_to_string(&program).unwrap_or_default();
        let architecture = architecture(&name, &text);
        cases.push(Case { name, program, script, architecture });
    }
    cases.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(cases)
}

/// By what the program includes; one that is missing by the ending that p4c gives its name.
fn architecture(name: &str, text: &str) -> &'static str {
    let models = ["v1model", "ubpf_model", "ebpf_model"];
    let includes =
        |m: &&&str| text.lines().any(|l| l.trim_start().starts_with("#include") && l.contains(**m));
    let by_name = || match () {
        () if name.ends_with("_ubpf") => "ubpf_model",
        () if name.ends_with("_ebpf") => "ebpf_model",
        () => "other",
    };
    models.iter().find(includes).copied().unwrap_or_else(by_name)
}

/// Compiles, verifies and runs a case.
#[must_use]
pub fn run(case: &Case, folders: &Folders, engine: Engine, reject: Reject) -> Outcome {
    let Ok(text) = std::fs::read_to_string(&case.program) else { return Outcome::NoProgram };
    let script = match std::fs::read_to_string(&case.script).map_err(|e| e.to_string()) {
        Ok(script) => match crate::parse::parse(&script) {
            Ok(script) => script,
            Err(e) => return Outcome::Script(e.to_string()),
        },
        Err(e) => return Outcome::Script(e),
    };
    let options = Options { reject, ..Options::default() };
    let compiled = match compile(&case.program.display().to_string(), &text, folders, &options) {
        Ok(compiled) => compiled,
        Err(e) => {
            let errors: Vec<_> = e.plain().into_iter().filter(|p| p.error).collect();
            let wrong = errors.iter().find(|p| !p.code.starts_with("E08")).or(errors.first());
            let line =
                wrong.map(|p| format!("{}: line {}: {}", p.code, p.line, p.message)).unwrap_or_default();
            let all = errors.iter().all(|p| p.code.starts_with("E08"));
            return if all { Outcome::NotSupported(line) } else { Outcome::Refused(line) };
        }
    };
    let mut device = match Device::load(&compiled, &[], engine) {
        Ok(device) => device,
        Err(e) => return Outcome::NotAccepted(e.to_string()),
    };
    let report = runner::run(&script, &mut device);
    match report.failures.first() {
        None => Outcome::Passed,
        Some(_) => {
            let all: Vec<String> = report.failures.iter().map(ToString::to_string).collect();
            Outcome::Failed(all.join("\n"))
        }
    }
}
