//! The census: compiles and verifies every program of a folder, and measures the time.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use p4shield_bpf::verify::{Limits, verify};
use p4shield_bpf::{Object, link};
use p4shield_p4::{Compiled, Options, compile};

use crate::conformance::{CaseResult, Folders, architecture, refusal};

/// The result for one program.
#[derive(Clone, Debug)]
pub struct Entry {
    /// File name without extension.
    pub name: String,
    /// Included architecture: `v1model`, `ubpf_model` or `ebpf_model`.
    pub architecture: &'static str,
    /// [`CaseResult::Passed`] if the verifier accepts the compiled program. A program with extern functions
    /// of its own is not linked, and is [`CaseResult::NoFunctions`].
    pub result: CaseResult,
    /// Time from source to object, also for a program that is refused.
    pub compiling: Duration,
    /// Time from object to the verifier's result, if the verifier ran.
    pub verifying: Option<Duration>,
}

/// Returns the P4 files of a folder, sorted.
///
/// # Errors
/// If the folder cannot be read.
pub fn programs(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let found: std::io::Result<Vec<_>> = std::fs::read_dir(folder)?.map(|e| Ok(e?.path())).collect();
    let mut programs = found?;
    programs.retain(|p| p.extension().is_some_and(|e| e == "p4"));
    programs.sort();
    Ok(programs)
}

/// Compiles and verifies one program. Returns `None` if its architecture is not supported or the file
/// cannot be read.
#[must_use]
pub fn measure(program: &Path, folders: &Folders) -> Option<Entry> {
    let text = std::fs::read_to_string(program).ok()?;
    let name = program.file_stem()?.to_string_lossy().into_owned();
    let architecture = architecture(&name, &text);
    if architecture == "other" {
        return None;
    }
    let start = Instant::now();
    let compiled = compile(&program.display().to_string(), &text, folders, &Options::default());
    let compiling = start.elapsed();
    let (result, verifying) = match compiled {
        Ok(compiled) => verified(&compiled),
        Err(errors) => (refusal(&errors), None),
    };
    Some(Entry { name, architecture, result, compiling, verifying })
}

fn verified(compiled: &Compiled) -> (CaseResult, Option<Duration>) {
    if !compiled.facts.externs.is_empty() {
        return (CaseResult::NoFunctions(format!("it calls {}", compiled.facts.externs.join(", "))), None);
    }
    let start = Instant::now();
    let refused = |e: &dyn std::fmt::Display| CaseResult::NotAccepted(e.to_string());
    let result = match Object::parse(&compiled.object).map(|object| link(&[object])) {
        Err(e) => refused(&e),
        Ok(Err(e)) => refused(&e),
        Ok(Ok(linked)) => match verify(linked, &Limits::default()) {
            Ok(_) => CaseResult::Passed,
            Err(e) => refused(&e),
        },
    };
    (result, Some(start.elapsed()))
}

/// Returns the median and the maximum of some times, and the name that belongs to the maximum.
#[must_use]
pub fn median_and_maximum<'a>(
    times: impl Iterator<Item = (Duration, &'a str)>,
) -> Option<(Duration, Duration, &'a str)> {
    let mut times: Vec<_> = times.collect();
    times.sort();
    let (largest, whose) = *times.last()?;
    Some((times[times.len() / 2].0, largest, whose))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_are_all_accepted() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
        let folders = Folders::default();
        let entries: Vec<_> =
            programs(&folder).expect("a folder").iter().filter_map(|p| measure(p, &folders)).collect();
        assert!(entries.len() > 8);
        for e in &entries {
            assert!(
                matches!(e.result, CaseResult::Passed | CaseResult::NoFunctions(_)),
                "{}: {:?}",
                e.name,
                e.result
            );
        }
    }

    #[test]
    fn wrong_programs_differ_from_unsupported_ones() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            let file = folder.path().join(name);
            std::fs::write(&file, text).expect("a file");
            measure(&file, &Folders::default())
        };
        let wrong =
            write("wrong.p4", "#include <core.p4>\n#include <v1model.p4>\nbit<8> x = ;").expect("an entry");
        assert!(matches!(wrong.result, CaseResult::Refused(_)), "{:?}", wrong.result);
        assert!(wrong.verifying.is_none());
        assert!(write("foreign.p4", "#include <psa.p4>\n").is_none());
    }

    #[test]
    fn the_median_and_the_maximum_are_returned() {
        let ms = Duration::from_millis;
        let times = [(ms(5), "a"), (ms(1), "b"), (ms(9), "c")];
        assert_eq!(median_and_maximum(times.into_iter()), Some((ms(5), ms(9), "c")));
        assert_eq!(median_and_maximum(std::iter::empty()), None);
    }
}
