//! The binary, as a user or a script runs it.
#![allow(dead_code, reason = "each test file uses its part of it")]

pub(crate) mod deb;
pub(crate) mod unit;

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

/// Returns what bash, with the script of `p4shield completions bash`, offers for the last of these words.
pub(crate) fn completed(words: &[&str]) -> Vec<String> {
    const OFFER: &str = "source /dev/stdin; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); COMP_TYPE=9; \
                         _clap_complete_p4shield \"$1\" \"${COMP_WORDS[COMP_CWORD]}\"; \
                         [ ${#COMPREPLY[@]} = 0 ] || printf '%s\\n' \"${COMPREPLY[@]}\"";
    let folder = Path::new(env!("CARGO_BIN_EXE_p4shield")).parent().unwrap();
    let path = std::env::join_paths(
        std::iter::once(folder.to_owned()).chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    );
    let script = tempfile::tempfile().unwrap();
    std::io::Write::write_all(&mut &script, &p4shield(&["completions", "bash"]).stdout).unwrap();
    std::io::Seek::rewind(&mut &script).unwrap();
    let mut bash = Command::new("bash");
    bash.args(["-c", OFFER, "bash"]).args(words).env("PATH", path.unwrap()).stdin(script);
    let offered = bash.output().unwrap();
    assert!(offered.status.success(), "{}", stderr(&offered));
    stdout(&offered).lines().map(str::to_owned).collect()
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
