//! Input files that a user names: read whole, up to a bound.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::Context;

use crate::exit::Refused;

/// The most bytes of a file: more than a capture for a test has, fewer than `/dev/zero`.
const MAX_BYTES: u64 = 64 << 20;

/// Reads a file, or standard input if its name is `-`.
///
/// # Errors
/// The file cannot be read or is too long.
pub fn bytes(path: &Path) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = if path.as_os_str() == "-" {
        std::io::stdin().lock().take(MAX_BYTES + 1).read_to_end(&mut bytes)
    } else {
        File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes))
    };
    read.with_context(|| format!("cannot read {}", path.display()))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(Refused(format!("{} has more than {} MiB", path.display(), MAX_BYTES >> 20)).into());
    }
    Ok(bytes)
}

/// Reads a text file that holds `what`, such as `P4 source`.
///
/// # Errors
/// As [`bytes`], or the file is not UTF-8.
pub fn text(path: &Path, what: &str) -> anyhow::Result<String> {
    Ok(String::from_utf8(bytes(path)?).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        Refused(format!("{}: byte {at} is not UTF-8; {what} must be text", path.display()))
    })?)
}
