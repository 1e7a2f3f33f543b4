//! The binary, as a user or a script runs it.
#![allow(dead_code, reason = "each test file uses its part of it")]

use std::path::Path;
use std::process::{Command, Output};

/// Runs the binary, with a cache of the tests' own and without the environment's log settings.
pub(crate) fn p4shield(arguments: &[&str]) -> Output {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR"));
    Command::new(env!("CARGO_BIN_EXE_p4shield"))
        .args(arguments)
        .env("XDG_CACHE_HOME", home)
        .env_remove("P4SHIELD_LOG")
        .output()
        .unwrap()
}

pub(crate) fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns the path of a file in `examples`.
pub(crate) fn example(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples").join(name).display().to_string()
}
