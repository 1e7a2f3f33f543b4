//! Conformance: compiles, verifies and runs each program of a folder that has a test script.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use p4shield_p4::diagnostics::Diagnostics;
use p4shield_p4::{Included, Options, Reject, Resolver, compile};

use crate::device::{Device, Engine};
use crate::externs::{self, ExternError};
use crate::runner;

/// Maximum size of an included file; the compiler's own limit is lower.
const MAX_INCLUDED: u64 = 32 << 20;

/// Include folders, searched after the folder of the program.
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

/// A program with its test script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// File name without extension.
    pub name: String,
    /// Path of the program.
    pub program: PathBuf,
    /// Path of the script.
    pub script: PathBuf,
    /// Path of the C file with the program's own extern functions.
    pub functions: Option<PathBuf>,
    /// Included architecture: `v1model`, `ubpf_model`, `ebpf_model` or `other`.
    pub architecture: &'static str,
}

/// The result of a test case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaseResult {
    /// All packets were as expected.
    Passed,
    /// The folder does not contain the program.
    NoProgram,
    /// The program calls functions of its own, and no C file defines them or no compiler is installed.
    NoFunctions(String),
    /// The compiler does not support a feature of the program.
    NotSupported(String),
    /// The compiler reports an error in the program.
    Refused(String),
    /// The verifier or the engine refuses the compiler's output, which is a bug.
    NotAccepted(String),
    /// The script has a syntax error.
    Script(String),
    /// A packet was not as expected.
    Failed(String),
}

impl CaseResult {
    /// Label of the result.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::NoProgram => "no program",
            Self::NoFunctions(_) => "no functions",
            Self::NotSupported(_) => "not supported",
            Self::Refused(_) => "refused",
            Self::NotAccepted(_) => "not accepted",
            Self::Script(_) => "script",
            Self::Failed(_) => "failed",
        }
    }

    /// Returns the reason in one line; empty if the case passed.
    #[must_use]
    pub fn reason(&self) -> &str {
        match self {
            Self::Passed => "",
            Self::NoProgram => "the program is not in the folder",
            Self::NoFunctions(r)
            | Self::NotSupported(r)
            | Self::Refused(r)
            | Self::NotAccepted(r)
            | Self::Script(r)
            | Self::Failed(r) => r.lines().next().unwrap_or_default(),
        }
    }
}

/// Returns the scripts of a folder, each with the program of the same name. The C file with the functions
/// of a program is next to it under the same name, or in one of the folders `functions` under a name of
/// the same words in any order, as in p4c: `extern-checksum-ebpf.c` for `ebpf_checksum_extern.p4`.
///
/// # Errors
/// If a folder cannot be read.
pub fn cases(folder: &Path, functions: &[PathBuf]) -> std::io::Result<Vec<Case>> {
    let mut sources = vec![folder.to_owned()];
    sources.extend_from_slice(functions);
    let mut c = Vec::new();
    for folder in &sources {
        let found: std::io::Result<Vec<_>> = std::fs::read_dir(folder)?.map(|e| Ok(e?.path())).collect();
        c.extend(found?.into_iter().filter(|p| p.extension().is_some_and(|e| e == "c")));
    }
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
        let functions = c.iter().find(|c| words(c) == words(&program)).cloned();
        cases.push(Case { name, program, script, functions, architecture });
    }
    cases.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(cases)
}

/// Returns the sorted words of a file name without its extension.
fn words(file: &Path) -> Vec<String> {
    let name = file.file_stem().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let mut words: Vec<String> = name.split(['-', '_']).map(str::to_owned).collect();
    words.sort();
    words
}

/// Returns the architecture by the program's includes, or else by p4c's suffix of the file name.
pub(crate) fn architecture(name: &str, text: &str) -> &'static str {
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
pub fn run(case: &Case, folders: &Folders, engine: Engine, reject: Reject) -> CaseResult {
    let Ok(text) = std::fs::read_to_string(&case.program) else { return CaseResult::NoProgram };
    let script = match std::fs::read_to_string(&case.script).map_err(|e| e.to_string()) {
        Ok(script) => match crate::parse::parse(&script) {
            Ok(script) => script,
            Err(e) => return CaseResult::Script(e.to_string()),
        },
        Err(e) => return CaseResult::Script(e),
    };
    let options = Options { reject, ..Options::default() };
    let compiled = match compile(&case.program.display().to_string(), &text, folders, &options) {
        Ok(compiled) => compiled,
        Err(e) => return refusal(&e),
    };
    let mut objects = Vec::new();
    if !compiled.facts.externs.is_empty() {
        let Some(file) = &case.functions else {
            return CaseResult::NoFunctions(format!(
                "no C file defines {}",
                compiled.facts.externs.join(", ")
            ));
        };
        match externs::compile(file, &compiled.c_header) {
            Ok(object) => objects.push(object),
            Err(e @ ExternError::NoCompiler { .. }) => return CaseResult::NoFunctions(e.to_string()),
            Err(e) => return CaseResult::NotAccepted(e.to_string()),
        }
    }
    let mut device = match Device::load(&compiled, &objects, engine) {
        Ok(device) => device,
        Err(e) => return CaseResult::NotAccepted(e.to_string()),
    };
    let report = runner::run(&script, &mut device);
    match report.failures.first() {
        None => CaseResult::Passed,
        Some(_) => {
            let all: Vec<String> = report.failures.iter().map(ToString::to_string).collect();
            CaseResult::Failed(all.join("\n"))
        }
    }
}

/// Converts the compiler's errors: not supported if all of them state that.
pub(crate) fn refusal(errors: &Diagnostics) -> CaseResult {
    let errors: Vec<_> = errors.plain().into_iter().filter(|p| p.error).collect();
    let wrong = errors.iter().find(|p| !p.code.starts_with("E08")).or(errors.first());
    let line = wrong.map(|p| format!("{}: line {}: {}", p.code, p.line, p.message)).unwrap_or_default();
    let all = errors.iter().all(|p| p.code.starts_with("E08"));
    if all { CaseResult::NotSupported(line) } else { CaseResult::Refused(line) }
}
