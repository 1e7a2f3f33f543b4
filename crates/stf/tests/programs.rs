//! Own programs with their scripts, one for each feature, on both engines.

use std::path::Path;

use p4shield_p4::Reject;
use p4shield_stf::conformance::{self, Folders, Outcome};
use p4shield_stf::device::Engine;

/// Runs the scripts of a folder that pass `wanted`, and panics unless all of them pass.
fn all_pass(folder: &Path, includes: &[&Path], wanted: impl Fn(&conformance::Case) -> bool) -> usize {
    let cases: Vec<_> =
        conformance::cases(folder, &[]).expect("a folder").into_iter().filter(wanted).collect();
    let folders = Folders(includes.iter().map(|p| p.to_path_buf()).collect());
    for case in &cases {
        let outcome = conformance::run(case, &folders, Engine::Both, Reject::Drop);
        if let Outcome::NoFunctions(why) = &outcome
            && case.functions.is_some()
        {
            println!("skipped: {}: {why}", case.name);
            continue;
        }
        if let Outcome::Failed(why) = &outcome {
            panic!("{}: {why}", case.name);
        }
        assert_eq!(outcome, Outcome::Passed, "{}", case.name);
    }
    cases.len()
}

#[test]
fn every_own_program_behaves_as_its_script_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let n = all_pass(&folder, &[], |_| true);
    assert!(n >= 7, "only {n} scripts were found");
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
    // In percent of the programs that are there; docs/conformance.md lists the rest.
    for (architecture, least) in [("ubpf_model", 80), ("ebpf_model", 85), ("v1model", 82)] {
        let mut outcomes = Vec::new();
        for case in conformance::cases(&samples, &functions).expect("the samples") {
            if case.architecture == architecture {
                let reject = if architecture == "ubpf_model" { Reject::Pass } else { Reject::Drop };
                outcomes.push((conformance::run(&case, &includes, Engine::Jit, reject), case.name));
            }
        }
        outcomes.retain(|(o, _)| !matches!(o, Outcome::NoProgram | Outcome::NoFunctions(_)));
        let passed = outcomes.iter().filter(|(o, _)| *o == Outcome::Passed).count();
        assert!(passed * 100 >= outcomes.len() * least, "{architecture}: {passed} of {outcomes:#?}");
    }
}
