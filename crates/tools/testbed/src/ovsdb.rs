//! A private Open vSwitch database, and the tools that use it.
//!
//! Database, sockets and logs are in one temporary folder, so any number of Open vSwitches run side by side
//! and none of them touches the machine's own.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::leftover::folder;
use crate::process::{Guarded, find, last_lines, run};
use crate::{Error, NetNs, Result, listens, wait_until};

/// Time limit of `ovs-vsctl` and `ovs-appctl` in seconds: long enough for a loaded machine, and a hung switch
/// does not hang a test.
const PATIENCE: &str = "--timeout=30";

/// Name of a switch's bridge.
pub(crate) const BRIDGE: &str = "br0";
/// The file of `ovs-vswitchd`'s standard error.
const LAST_WORDS: &str = "vswitchd.err";

/// A running `ovsdb-server` with an initialised, empty switch configuration. Removed on drop.
#[derive(Debug)]
pub struct Database {
    _server: Guarded,
    dir: TempDir,
}

impl Database {
    /// Starts a database inside `ns`.
    ///
    /// # Errors
    /// The package openvswitch-switch is missing, or a part of it fails.
    pub fn start(ns: &NetNs) -> Result<Self> {
        let dir = folder("ovs")?;
        let at = |name: &str| dir.path().join(name).display().to_string();
        run(Command::new("ovsdb-tool").args(["create", &at("conf.db"), &schema()]))?;
        let program = find("ovsdb-server").unwrap_or_else(|| PathBuf::from("ovsdb-server"));
        let mut c = ns.command(program);
        quiet(&mut c, dir.path());
        c.arg(at("conf.db")).arg(format!("--remote=punix:{}", at("db.sock")));
        c.args(["--no-chdir", &format!("--unixctl={}", at("ovsdb.ctl"))]);
        let database = Self { _server: Guarded::spawn(&mut c)?, dir };
        wait_until("start of ovsdb-server", 30, || listens(&database.socket()))?;
        database.vsctl(&["--no-wait", "init"])?;
        Ok(database)
    }

    /// Returns the folder of the switch's files.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the socket for OVSDB clients.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("db.sock")
    }

    /// Returns the socket in OVS's notation: `unix:PATH`.
    #[must_use]
    pub fn remote(&self) -> String {
        format!("unix:{}", self.socket().display())
    }

    /// Runs `ovs-vsctl` on this database and returns what it printed.
    ///
    /// # Errors
    /// The command fails.
    pub fn vsctl(&self, words: &[&str]) -> Result<String> {
        run(Command::new("ovs-vsctl").arg(format!("--db={}", self.remote())).arg(PATIENCE).args(words))
    }

    /// Prepares `ovs-vswitchd` at `program` to run inside `ns` on this database: it logs to [`Database::log`]
    /// and is controlled through [`Database::appctl`].
    #[must_use]
    pub fn vswitchd(&self, ns: &NetNs, program: &Path) -> Command {
        let at = |name: &str| self.dir.path().join(name).display().to_string();
        let mut c = ns.command(program);
        quiet(&mut c, self.dir.path());
        // Its own log goes to a file; output of a preloaded library or of a dying process goes to another.
        c.args([&self.remote(), "--disable-system", "--no-chdir", "-vconsole:off"]);
        if let Ok(file) = File::create(at(LAST_WORDS)) {
            c.stderr(file);
        }
        c.args([format!("--log-file={}", at("vswitchd.log")), format!("--unixctl={}", at("vswitchd.ctl"))]);
        c
    }

    /// Runs `ovs-appctl` on the `ovs-vswitchd` of this database and returns what it printed.
    ///
    /// # Errors
    /// The command fails.
    pub fn appctl(&self, words: &[&str]) -> Result<String> {
        let target = self.dir.path().join("vswitchd.ctl");
        run(Command::new("ovs-appctl").arg("-t").arg(target).arg(PATIENCE).args(words))
    }

    /// Runs `ovs-ofctl COMMAND BRIDGE WORDS`.
    ///
    /// # Errors
    /// The command fails.
    pub fn ofctl(&self, command: &str, words: &[&str]) -> Result<String> {
        self.ofctl_of(BRIDGE, command, words)
    }

    /// Runs `ovs-ofctl COMMAND` for another bridge.
    ///
    /// # Errors
    /// The command fails.
    pub fn ofctl_of(&self, bridge: &str, command: &str, words: &[&str]) -> Result<String> {
        let management = format!("unix:{}", self.dir.path().join(format!("{bridge}.mgmt")).display());
        run(Command::new("ovs-ofctl").arg(PATIENCE).args([command, &management]).args(words))
    }

    /// Returns the log of `ovs-vswitchd` so far, then its standard error, to which a preloaded library
    /// writes.
    #[must_use]
    pub fn log(&self) -> String {
        self.read("vswitchd.log") + &self.said()
    }

    /// Returns the standard error of `ovs-vswitchd` so far, to which a preloaded library writes.
    #[must_use]
    pub fn said(&self) -> String {
        self.read(LAST_WORDS)
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.path().join(name)).unwrap_or_default()
    }

    /// Adds the end of the switch's log to an error.
    #[must_use]
    pub fn explain(&self, error: &Error) -> Error {
        let end = last_lines(&self.log(), 30);
        Error::failed("ovs-vswitchd", format!("{error}\n--- its log ends:\n{end}"))
    }
}

/// Directs an Open vSwitch program's files to `dir`, and discards its output (it logs to a file).
fn quiet(command: &mut Command, dir: &Path) {
    command.env("OVS_RUNDIR", dir).env("OVS_LOGDIR", dir).env("OVS_DBDIR", dir);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
}

fn schema() -> String {
    let places = ["/usr/share/openvswitch", "/usr/local/share/openvswitch"];
    let found = places.iter().map(|p| PathBuf::from(p).join("vswitch.ovsschema")).find(|p| p.is_file());
    found.unwrap_or_else(|| PathBuf::from(places[0]).join("vswitch.ovsschema")).display().to_string()
}
