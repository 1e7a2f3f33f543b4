//! The compartment's log, which is its standard error.

use std::io::{Write as _, stderr};

/// Writes a line. The file has a longest length, at which writing fails.
pub(super) fn log(line: &str) {
    let _ = stderr().write_all(format!("{line}\n").as_bytes());
}
