//! Own programs with their scripts, one for each feature, on both engines.

use std::path::Path;

use p4shield_p4::Reject;
use p4shield_stf::conformance::{self, Folders, Outcome};
use p4shield_stf::device::Engine;

/// Runs the scripts of a folder that pass `wanted`, and panics unless all of them pass.
fn all_pass(folder: &Path, includes: &[&Path], wanted: impl Fn(&conformance::Case) -> bool) -> usize {
    let cases: Vec<_> = conformance::cases(folder).expect("a folder").into_iter().filter(wanted).collect();
    let folders = Folders(includes.iter().map(|p| p.to_path_buf()).collect());
    for case in &cases {
        let outcome = conformance::run(case, &folders, Engine::Both, Reject::Drop);
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
