//! Versions of QEMU.

use crate::process::end;
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::time::Duration;

/// Time limit of `--version` and of other questions to a program, which need milliseconds.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);
/// Bytes of its output that are read.
const MAX_OUTPUT: u64 = 4096;

/// A release of QEMU. Ordered by age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QemuVersion {
    /// The first number, which changes each year.
    pub major: u16,
    /// The second number: 0, 1 or 2.
    pub minor: u16,
    /// The third number: corrections, or 50 and more for a version between releases.
    pub micro: u16,
}

impl QemuVersion {
    /// Returns a version by its numbers.
    #[must_use]
    pub const fn new(major: u16, minor: u16, micro: u16) -> Self {
        Self { major, minor, micro }
    }

    /// Asks a program of QEMU for its version.
    ///
    /// # Errors
    /// The program does not run, does not end in time, or is not QEMU.
    pub fn of(program: &Path) -> Result<Self, VersionError> {
        let failed = |source| VersionError::Run { program: program.to_owned(), source };
        let mut command = Command::new(program);
        command.arg("--version").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(failed)?;
        let output = child.stdout.take();
        let status = end(child, LIMIT);
        if !status.is_some_and(|status| status.success()) {
            return Err(VersionError::Failed { program: program.to_owned() });
        }
        let mut text = Vec::new();
        if let Some(output) = output {
            output.take(MAX_OUTPUT).read_to_end(&mut text).map_err(failed)?;
        }
        Ok(String::from_utf8_lossy(&text).parse()?)
    }
}

impl fmt::Display for QemuVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.micro)
    }
}

/// A text without a version of QEMU.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` has no version of QEMU such as 9.1.0; is the program QEMU?")]
pub struct NoVersion(pub String);

/// Reason why the version of a program is unknown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VersionError {
    /// The program cannot be run.
    #[error(
        "cannot run {}; install the package qemu-system-x86, or set `qemu` to its path",
        program.display()
    )]
    Run {
        /// The program.
        program: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The program failed or did not end in time.
    #[error("`{} --version` failed; set `qemu` to the path of QEMU's program", program.display())]
    Failed {
        /// The program.
        program: PathBuf,
    },
    /// The program does not list its devices.
    #[error("`{} -device help` failed; set `qemu` to the path of QEMU's program", program.display())]
    Devices {
        /// The program.
        program: PathBuf,
    },
    /// The program is not QEMU.
    #[error(transparent)]
    Output(#[from] NoVersion),
}

impl FromStr for QemuVersion {
    type Err = NoVersion;

    /// Reads a version: `9.1.0`, or the first line that `qemu-system-x86_64 --version` prints.
    fn from_str(text: &str) -> Result<Self, NoVersion> {
        let line = text.lines().next().unwrap_or_default().trim();
        let refused = || NoVersion(line.chars().take(80).collect());
        let after = line.split_once("version ").map_or(line, |(_, rest)| rest);
        let is_number = |c: char| c.is_ascii_digit() || c == '.';
        let numbers = after.split(|c| !is_number(c)).next().unwrap_or_default();
        let mut parts = numbers.split('.').map(str::parse::<u16>);
        let mut next = || parts.next().and_then(Result::ok);
        let (major, minor) = (next().ok_or_else(refused)?, next().ok_or_else(refused)?);
        Ok(Self { major, minor, micro: next().unwrap_or(0) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_what_qemu_prints() {
        let debian = "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)\nCopyright (c) 2003";
        for (text, version) in [
            (debian, QemuVersion::new(7, 2, 22)),
            ("QEMU emulator version 10.1.0 (Debian 1:10.1.0+ds-5ubuntu2)", QemuVersion::new(10, 1, 0)),
            ("QEMU emulator version 9.2.50 (v9.2.0-1-gabc)", QemuVersion::new(9, 2, 50)),
            ("10.1", QemuVersion::new(10, 1, 0)),
        ] {
            assert_eq!(text.parse(), Ok(version), "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused_with_a_short_quotation() {
        for text in ["", "QEMU", "version x", "99999999.1", "9", "\u{0}9.1", &"x".repeat(10_000)] {
            let refused = text.parse::<QemuVersion>().unwrap_err();
            assert!(refused.to_string().len() < 200, "{refused}");
        }
    }

    #[test]
    fn programs_that_are_not_qemu_are_refused() {
        let refused = |program: &str| QemuVersion::of(Path::new(program)).unwrap_err();
        assert!(matches!(refused("/nonexistent/qemu"), VersionError::Run { .. }));
        assert!(matches!(refused("false"), VersionError::Failed { .. }));
        assert!(matches!(refused("echo"), VersionError::Output(_)));
    }

    #[test]
    fn later_releases_are_greater() {
        assert!(QemuVersion::new(10, 0, 0) > QemuVersion::new(9, 2, 50));
        assert!(QemuVersion::new(9, 1, 1) > QemuVersion::new(9, 1, 0));
    }
}
