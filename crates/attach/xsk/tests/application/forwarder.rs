//! The minimal application, compiled by the test and started with the library preloaded.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{ChildStdout, Command, ExitStatus, Stdio};

use p4shield_testbed::{Guarded, NetNs, leftover, process};
use tempfile::TempDir;

use crate::common::library;

/// Path of its source.
const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/application/forward.c");

/// A running forwarder between `s0` and `s1`.
pub(crate) struct Forwarder {
    process: Guarded,
    output: BufReader<ChildStdout>,
    account: BTreeMap<String, String>,
    folder: TempDir,
}

impl Forwarder {
    /// Returns whether this machine can compile and run it.
    pub(crate) fn usable() -> Result<(), String> {
        p4shield_testbed::usable()?;
        if Path::new("/usr/include/xdp/xsk.h").is_file() {
            return Ok(());
        }
        Err("libxdp's headers (package libxdp-dev, a dependency of libdpdk-dev) are not installed".into())
    }

    /// Compiles it, starts it in `ns` and waits until its sockets are bound.
    pub(crate) fn start(ns: &NetNs, arguments: &[&str], config: &Path) -> Self {
        let mut forwarder = Self::spawn(ns, arguments, config);
        let first = forwarder.line();
        assert_eq!(first, "ready", "{}", forwarder.log());
        forwarder
    }

    /// Starts it, expects its failure, and returns its exit status and messages.
    pub(crate) fn fails(ns: &NetNs, arguments: &[&str], config: &Path) -> (ExitStatus, String) {
        let mut forwarder = Self::spawn(ns, arguments, config);
        assert_eq!(forwarder.line(), "", "it must not get ready: {}", forwarder.log());
        (forwarder.process.child().wait().unwrap(), forwarder.log())
    }

    fn spawn(ns: &NetNs, arguments: &[&str], config: &Path) -> Self {
        let folder = leftover::folder("forward").unwrap();
        let program = folder.path().join("forward");
        process::run(Command::new("cc").args(["-O2", SOURCE, "-lxdp", "-o"]).arg(&program)).unwrap();
        let mut command = ns.command(&program);
        command
            .args(arguments)
            .args(["s0", "s1"])
            .env("LD_PRELOAD", library())
            .env("P4SHIELD_CONFIG", config);
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut process = Guarded::spawn(&mut command).unwrap();
        let output = BufReader::new(process.child().stdout.take().unwrap());
        Self { process, output, account: BTreeMap::new(), folder }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    /// Returns what it and the library wrote to standard error.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    /// Ends it, if it still runs, and returns its own account of its frames.
    pub(crate) fn end(&mut self) -> BTreeMap<String, String> {
        if self.account.is_empty() {
            rustix::process::kill_process(self.process.pid(), rustix::process::Signal::TERM).unwrap();
            let line = self.line();
            let pairs = line.split(' ').filter_map(|p| p.split_once('='));
            self.account = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
            let status = self.process.child().wait().unwrap();
            assert!(status.success() && !self.account.is_empty(), "{status}: {line}\n{}", self.log());
        }
        self.account.clone()
    }
}
