//! Our own programs with their scripts, one per feature, on both engines.

use std::path::Path;

use p4shield_p4::Reject;
use p4shield_stf::conformance::{self, CaseResult, Folders};
use p4shield_stf::device::Engine;

/// Runs the scripts of a folder, which all have to pass. Returns their number, and skipped cases.
fn all_pass(folder: &Path, includes: &[&Path]) -> (usize, Vec<String>) {
    let folders = Folders(includes.iter().map(|p| p.to_path_buf()).collect());
    let (mut passed, mut skipped, mut failed) = (0, Vec::new(), Vec::new());
    for case in conformance::cases(folder, &[]).expect("a folder") {
        match conformance::run(&case, &folders, Engine::Both, Reject::Drop) {
            CaseResult::Passed => passed += 1,
            CaseResult::NoFunctions(why) if case.functions.is_some() => {
                skipped.push(format!("{}: {why}", case.name))
            }
            CaseResult::Failed(why) => failed.push(format!("{}: {why}", case.name)),
            other => failed.push(format!("{}: {other:?}", case.name)),
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    (passed, skipped)
}

#[test]
fn our_programs_behave_as_their_scripts_expect() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let (passed, skipped) = all_pass(&folder, &[]);
    skipped.iter().for_each(|why| p4shield_need::skip("clang", why));
    assert!(passed >= 8, "only {passed} scripts were found");
}

/// p4c's own tests, if `P4C_TESTDATA` names their folder: the required share passes per architecture.
#[test]
fn the_tests_of_p4c_pass() {
    let Ok(testdata) = std::env::var("P4C_TESTDATA") else {
        p4shield_need::skip("p4c-testdata", "set P4C_TESTDATA to p4c's testdata folder");
        return;
    };
    let samples = Path::new(&testdata).join("p4_16_samples");
    let includes = Folders(vec![Path::new(&testdata).join("../p4include")]);
    // C files with extern functions: p4c's own, and ours for functions that p4c has in C++.
    let theirs = Path::new(&testdata).join("extern_modules");
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/externs");
    let functions: Vec<_> = [theirs, ours].into_iter().filter(|f| f.is_dir()).collect();
    // In percent of the existing programs; docs/reference/conformance.md lists the others.
    for (architecture, least) in [("ubpf_model", 100), ("ebpf_model", 100), ("v1model", 95)] {
        let mut results = Vec::new();
        for case in conformance::cases(&samples, &functions).expect("the samples") {
            if case.architecture == architecture {
                let reject = if architecture == "ubpf_model" { Reject::Pass } else { Reject::Drop };
                results.push((conformance::run(&case, &includes, Engine::Jit, reject), case.name));
            }
        }
        results.retain(|(o, _)| !matches!(o, CaseResult::NoProgram | CaseResult::NoFunctions(_)));
        let passed = results.iter().filter(|(o, _)| *o == CaseResult::Passed).count();
        println!("{architecture}: {passed} of {}", results.len());
        results
            .iter()
            .filter(|(o, _)| *o != CaseResult::Passed)
            .for_each(|(o, name)| println!("{name}: {o:?}"));
        assert!(passed * 100 >= results.len() * least, "{architecture}: {passed} of {results:#?}");
    }
}
