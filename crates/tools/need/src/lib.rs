//! What a test does when the machine lacks what it needs, and how much a campaign does.
//!
//! By default a test that cannot run ends, and the reason is printed and recorded, so that `make test` can
//! list it. With `P4SHIELD_REQUIRE=all`, as in CI, it fails instead, unless `P4SHIELD_LACKS` names the need.
//!
//! A campaign plays random inputs or schedules, or repeats kills and changes. `P4SHIELD_EFFORT` sets the
//! extent of all campaigns: `quick`, the default, or `full`, as `make soak` runs them.

#![forbid(unsafe_code)]

use std::fmt::Display;
use std::fs::File;
use std::io::Write;

/// `all`: a test that cannot run fails.
const REQUIRE: &str = "P4SHIELD_REQUIRE";
/// The needs, separated by commas, that the machine lacks nevertheless.
const LACKS: &str = "P4SHIELD_LACKS";
/// The file that gets a line for each test that did not run.
const SKIPPED: &str = "P4SHIELD_SKIPPED";
/// How much campaigns do.
const EFFORT: &str = "P4SHIELD_EFFORT";

/// Returns the extent of a campaign: `quick`, which takes seconds, or `full` with `P4SHIELD_EFFORT=full`.
///
/// # Panics
///
/// The variable is neither `quick` nor `full`.
pub fn extent<T>(quick: T, full: T) -> T {
    match std::env::var(EFFORT).as_deref() {
        Err(_) | Ok("quick") => quick,
        Ok("full") => full,
        Ok(other) => panic!("{EFFORT} is `quick` or `full`, not `{other}`"),
    }
}

/// SplitMix64: a different script each time, the same scripts each run.
struct Random(u64);

impl Random {
    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
}

/// Plays random scripts of at most `longest` bytes each to `target`, `budget` bytes in all; the same ones for
/// the same seed.
pub fn campaign(seed: u64, longest: usize, budget: usize, target: impl Fn(&[u8])) {
    let mut random = Random(seed);
    let mut spent = 0;
    while spent < budget {
        let len = (random.next() % longest as u64) as usize + 1;
        let script: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| random.next().to_le_bytes()).collect();
        target(&script[..len]);
        spent += len;
    }
}

/// Reports that the calling test does not run, because the machine lacks `need`: a short name such as `qemu`.
/// The caller returns.
///
/// # Panics
///
/// Every need is required, and the machine is not declared to lack this one.
#[allow(clippy::print_stdout, reason = "a skipped test says so")]
pub fn skip(need: &str, why: impl Display) {
    let variable = |name| std::env::var(name).unwrap_or_default();
    let is_required = variable(REQUIRE) == "all" && !variable(LACKS).split(',').any(|lack| lack == need);
    assert!(!is_required, "{REQUIRE}=all, but the machine lacks `{need}`: {why}");
    println!("skipped: {why}");
    record(&variable(SKIPPED), need, &why.to_string());
}

/// Appends a line to a file, if it has a name. Several processes may do so at once.
fn record(file: &str, need: &str, why: &str) {
    if file.is_empty() {
        return;
    }
    let thread = std::thread::current();
    let line = format!("{} ({need}): {}\n", thread.name().unwrap_or("a test"), why.replace('\n', " "));
    let written =
        File::options().append(true).create(true).open(file).map(|mut f| f.write_all(line.as_bytes()));
    assert!(matches!(written, Ok(Ok(()))), "{SKIPPED}={file} cannot be written: {written:?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(variables: &[(&str, &str)]) -> (bool, String) {
        run_test("tests::lacks_a_gadget", variables)
    }

    /// Another process, since variables of this one are other tests', too. Returns whether the test passed,
    /// and its output.
    fn run_test(name: &str, variables: &[(&str, &str)]) -> (bool, String) {
        let mut command = std::process::Command::new(std::env::current_exe().expect("this binary"));
        command.args(["--exact", name, "--include-ignored", "--nocapture", "--test-threads=1"]);
        [REQUIRE, LACKS, SKIPPED, EFFORT].into_iter().for_each(|v| {
            command.env_remove(v);
        });
        let out =
            command.env("LACKS_A_GADGET", "1").envs(variables.iter().copied()).output().expect("it runs");
        let text = [out.stdout, out.stderr].concat();
        (out.status.success(), String::from_utf8_lossy(&text).into_owned())
    }

    #[test]
    fn lacks_a_gadget() {
        if std::env::var_os("LACKS_A_GADGET").is_some() {
            skip("gadget", "there is no gadget");
        }
    }

    #[test]
    fn a_test_that_cannot_run_says_so() {
        let file = std::env::temp_dir().join(format!("p4shield-need-{}", std::process::id()));
        let (passed, said) = run(&[(SKIPPED, file.to_str().expect("a name"))]);
        let lines = std::fs::read_to_string(&file).expect("a record");
        std::fs::remove_file(&file).expect("removed");
        assert!(passed && said.contains("skipped: there is no gadget"), "{said}");
        assert_eq!(lines, "tests::lacks_a_gadget (gadget): there is no gadget\n");
    }

    #[test]
    fn plays_a_campaign() {
        if std::env::var_os("LACKS_A_GADGET").is_some() {
            println!("{} rounds", extent(2, 300));
        }
    }

    #[test]
    fn campaigns_are_quick_or_full() {
        let said = |effort: &[(&str, &str)]| run_test("tests::plays_a_campaign", effort);
        assert!(said(&[]).1.contains("2 rounds") && said(&[(EFFORT, "quick")]).1.contains("2 rounds"));
        assert!(said(&[(EFFORT, "full")]).1.contains("300 rounds"));
        let (passed, output) = said(&[(EFFORT, "fast")]);
        assert!(!passed && output.contains("is `quick` or `full`, not `fast`"), "{output}");
    }

    #[test]
    fn a_required_test_that_cannot_run_fails() {
        assert!(!run(&[(REQUIRE, "all")]).0);
        assert!(!run(&[(REQUIRE, "all"), (LACKS, "widget")]).0);
        assert!(run(&[(REQUIRE, "all"), (LACKS, "widget,gadget")]).0);
        assert!(!run(&[(SKIPPED, "/no/such/folder/file")]).0, "a record that cannot be kept");
    }
}
