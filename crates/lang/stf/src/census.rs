//! Every program of a folder, compiled and verified: how many are, and how long it takes.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use p4shield_bpf::verify::{Limits, verify};
use p4shield_bpf::{Object, link};
use p4shield_p4::{Compiled, Options, compile};

use crate::conformance::{Folders, Outcome, architecture, refusal};

/// What became of one program.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The file's name without ending.
    pub name: String,
    /// What the program includes: `v1model`, `ubpf_model`, or `ebpf_model`.
    pub architecture: &'static str,
    /// [`Outcome::Passed`] if the verifier accepts what was compiled. A program that calls functions of its own is not
    /// linked, and so is [`Outcome::NoFunctions`].
    pub outcome: Outcome,
    /// From source to object, also of a program that is refused.
    pub compiling: Duration,
    /// From object to the verifier's word, if it was asked.
    pub verifying: Option<Duration>,
}

/// The programs of a folder that are written for an architecture of ours.
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

/// Compiles and verifies one program; none if it is for no architecture of ours, or cannot be read.
#[must_use]
pub fn take(program: &Path, folders: &Folders) -> Option<Entry> {
    let text = std::fs::read_to_string(program).ok()?;
    let name = program.file_stem()?.to_string_lossy().into_owned();
    let architecture = architecture(&name, &text);
    if architecture == "other" {
        return None;
    }
    let start = Instant::now();
    let compiled = compile(&program.display().to_string(), &text, folders, &Options::default());
    let compiling = start.elapsed();
    let (outcome, verifying) = match compiled {
        Ok(compiled) => verified(&compiled),
        Err(errors) => (refusal(&errors), None),
    };
    Some(Entry { name, architecture, outcome, compiling, verifying })
}

fn verified(compiled: &Compiled) -> (Outcome, Option<Duration>) {
    if !compiled.facts.externs.is_empty() {
        return (Outcome::NoFunctions(format!("it calls {}", compiled.facts.externs.join(", "))), None);
    }
    let start = Instant::now();
    let refused = |e: &dyn std::fmt::Display| Outcome::NotAccepted(e.to_string());
    let outcome = match Object::parse(&compiled.object).map(|object| link(&[object])) {
        Err(e) => refused(&e),
        Ok(Err(e)) => refused(&e),
        Ok(Ok(linked)) => match verify(linked, &Limits::default()) {
            Ok(_) => Outcome::Passed,
            Err(e) => refused(&e),
        },
    };
    (outcome, Some(start.elapsed()))
}

/// Median and largest of some times, and whose the largest is; none if there are none.
#[must_use]
pub fn spread<'a>(times: impl Iterator<Item = (Duration, &'a str)>) -> Option<(Duration, Duration, &'a str)> {
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
            programs(&folder).expect("a folder").iter().filter_map(|p| take(p, &folders)).collect();
        assert!(entries.len() > 8);
        for e in &entries {
            assert!(
                matches!(e.outcome, Outcome::Passed | Outcome::NoFunctions(_)),
                "{}: {:?}",
                e.name,
                e.outcome
            );
        }
    }

    #[test]
    fn a_wrong_program_is_told_from_one_that_is_not_supported() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            let file = folder.path().join(name);
            std::fs::write(&file, text).expect("a file");
            take(&file, &Folders::default())
        };
        let wrong =
            write("wrong.p4", "#include <core.p4>\n#include <v1model.p4>\nbit<8> x = ;").expect("an entry");
        assert!(matches!(wrong.outcome, Outcome::Refused(_)), "{:?}", wrong.outcome);
        assert!(wrong.verifying.is_none());
        assert!(write("foreign.p4", "#include <psa.p4>\n").is_none());
    }

    #[test]
    fn the_middle_and_the_end_of_times() {
        let ms = Duration::from_millis;
        let times = [(ms(5), "a"), (ms(1), "b"), (ms(9), "c")];
        assert_eq!(spread(times.into_iter()), Some((ms(5), ms(9), "c")));
        assert_eq!(spread(std::iter::empty()), None);
    }
}
