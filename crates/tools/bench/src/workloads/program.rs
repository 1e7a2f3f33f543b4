//! A pair of real programs: a server in a tenant's VM, and the client outside that puts load on it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use p4shield_testbed::{NetNs, process};

use crate::stats::Percentiles;

/// A program and the Debian package that has it.
pub(super) struct Package {
    pub(super) program: &'static str,
    pub(super) package: &'static str,
}

impl Package {
    /// Returns the program's path.
    pub(super) fn path(&self) -> anyhow::Result<PathBuf> {
        let Self { program, package } = self;
        process::find(program).with_context(|| {
            format!("`{program}` is missing; install Debian's package: apt-get install {package}")
        })
    }
}

/// The place of a server.
pub(super) struct Site<'s> {
    pub(super) vm: &'s NetNs,
    pub(super) address: &'s str,
    /// For files of this server alone.
    pub(super) folder: &'s Path,
}

/// The load that each client puts on its server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Its time.
    pub(super) seconds: u16,
    /// Connections at once, where the client takes a number.
    pub(super) connections: u16,
    /// Bytes of the web page.
    pub(super) page: u32,
}

/// The figures that a client reports.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Seen {
    /// In the unit of the program.
    pub(super) throughput: f64,
    /// Response times in microseconds, if the client measures them.
    pub(super) micros: Option<Percentiles>,
    /// Requests without a right answer.
    pub(super) failed: u64,
}

/// A pair of programs.
pub(super) trait Program {
    /// The server and the client.
    fn packages(&self) -> &'static [Package; 2];
    /// The unit of throughput.
    fn unit(&self) -> &'static str;
    /// The TCP port of the server.
    fn port(&self) -> u16;
    /// Prepares a server. Its process is a single one, which stays in the foreground.
    fn server(&self, program: &Path, site: &Site<'_>, load: Load) -> anyhow::Result<Command>;
    /// Prepares a client for the server behind an address.
    fn client(&self, program: &Path, outside: &NetNs, address: &str, load: Load) -> Command;
    /// Reads what a client printed.
    fn read(&self, printed: &str) -> anyhow::Result<Seen>;
}

/// Returns what follows `label` in the first line that begins with it; white space in front does not count.
pub(super) fn after<'t>(printed: &'t str, label: &str) -> anyhow::Result<&'t str> {
    let mut lines = printed.lines();
    let rest = lines.find_map(|line| line.trim_start().strip_prefix(label));
    rest.map(str::trim).with_context(|| format!("no line begins with `{label}`"))
}

/// Reads a number.
pub(super) fn number<N: std::str::FromStr>(text: &str) -> anyhow::Result<N> {
    text.parse().ok().with_context(|| format!("`{text}` is no number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        let error = Package { program: "no-such-program", package: "its-package" }.path().unwrap_err();
        let wanted = "`no-such-program` is missing; install Debian's package: apt-get install its-package";
        assert_eq!(error.to_string(), wanted);
        assert!(Package { program: "ip", package: "iproute2" }.path().is_ok());
    }

    #[test]
    fn a_label_counts_at_the_beginning_of_a_line() {
        assert_eq!(after("x a: 1\n  a:  2 \na: 3", "a:").unwrap(), "2");
        assert_eq!(after("b", "a:").unwrap_err().to_string(), "no line begins with `a:`");
        assert_eq!(number::<u64>("1x").unwrap_err().to_string(), "`1x` is no number");
    }
}
