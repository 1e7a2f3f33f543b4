//! Own programs with their scripts, one for each feature, on both engines.

use std::path::Path;

use p4shield_p4::Reject;
use p4shield_stf::conformance::{self, Folders, Outcome};
use p4shield_stf::device::Engine;

/// Runs the scripts of a folder and panics unless all pass; returns how many did, and what could not be tried.
fn all_pass(folder: &Path, includes: &[&Path]) -> (usize, Vec<String>) {
    let folders = Folders(includes.iter().map(|p| p.to_path_buf()).collect());
    let (mut passed, mut skipped) = (0, Vec::new());
    for case in conformance::cases(folder, &[]).expect("a folder") {
        match conformance::run(&case, &folders, Engine::Both, Reject::Drop) {
            Outcome::Passed => passed += 1,
            Outcome::NoFunctions(why) if case.functions.is_some() => {
                skipped.push(format!("{}: {why}", case.name))
            }
            Outcome::Failed(why) => panic!("{}: {why}", case.name),
            other => panic!("{}: {other:?}", case.name),
        }
    }
    (passed, skipped)
}

#[test]
fn every_own_program_behaves_as_its_script_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let (passed, skipped) = all_pass(&folder, &[]);
    skipped.iter().for_each(|why| println!("skipped: {why}"));
    assert!(passed >= 8, "only {passed} scripts were found");
}

/// p4c's own tests, if `P4C_TESTDATA` names their folder: how many of each architecture have to pass.
#[test]
fn the_reference_compilers_tests_pass() {
    let Ok(testdata) = std::env::var("P4C_TESTDATA") else {
        println!("skipped: P4C_TESTDATA names no folder of p4c's testdata");
        return;
    };
    let samples = Path::new(&testdata).join("p4_16_samples");
    let includes = Folders(vec![Path::new(&testdata).join("../p4include")]);
    // C with the functions that programs call: p4c's own, where it is there, and ours for what p4c has in C++.
    let theirs = Path::new(&testdata).join("extern_modules");
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/externs");
    let functions: Vec<_> = [theirs, ours].into_iter().filter(|f| f.is_dir()).collect();
    // In percent of the programs that are there; docs/reference/conformance.md lists the rest.
    for (architecture, least) in [("ubpf_model", 100), ("ebpf_model", 100), ("v1model", 95)] {
        let mut outcomes = Vec::new();
        for case in conformance::cases(&samples, &functions).expect("the samples") {
            if case.architecture == architecture {
                let reject = if architecture == "ubpf_model" { Reject::Pass } else { Reject::Drop };
                outcomes.push((conformance::run(&case, &includes, Engine::Jit, reject), case.name));
            }
        }
        outcomes.retain(|(o, _)| !matches!(o, Outcome::NoProgram | Outcome::NoFunctions(_)));
        let passed = outcomes.iter().filter(|(o, _)| *o == Outcome::Passed).count();
        println!("{architecture}: {passed} of {}", outcomes.len());
        outcomes
            .iter()
            .filter(|(o, _)| *o != Outcome::Passed)
            .for_each(|(o, name)| println!("{name}: {o:?}"));
        assert!(passed * 100 >= outcomes.len() * least, "{architecture}: {passed} of {outcomes:#?}");
    }
}
