//! DPDK's unmodified `dpdk-testpmd`, controlled through a terminal.

use std::fs::File;
use std::process::{ExitStatus, Stdio};

use rustix::process::Pid;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use tempfile::TempDir;

use super::{Setup, cpus};
use crate::console::Console;
use crate::leftover::folder;
use crate::process::{Guarded, find};
use crate::{Error, NetNs, Result, wait_until};

const PROMPT: &str = "testpmd> ";
/// Time limit of a command on a loaded machine, seconds.
const PATIENCE: u64 = 60;

/// Settings of a [`Testpmd`].
pub type TestpmdSetup = Setup<Options>;

/// Settings of testpmd alone.
#[derive(Debug, Clone)]
pub struct Options {
    lcores: String,
    devices: Vec<String>,
    arguments: Vec<String>,
}

impl Setup<Options> {
    /// Adds a virtual device, for example `net_af_packet0,iface=veth0,qpairs=1`. They are ports 0, 1, ...
    #[must_use]
    pub fn vdev(mut self, arguments: &str) -> Self {
        self.options.devices.push(format!("--vdev={arguments}"));
        self
    }

    /// DPDK's `--lcores`: the first is for the command line, the others forward. Default: the main one on the
    /// machine's first CPU, one other on its last (which may be the same).
    #[must_use]
    pub fn lcores(mut self, lcores: &str) -> Self {
        lcores.clone_into(&mut self.options.lcores);
        self
    }

    /// A further argument of testpmd itself (not of DPDK), for example `--rxq=2`.
    #[must_use]
    pub fn argument(mut self, argument: &str) -> Self {
        self.options.arguments.push(argument.into());
        self
    }

    /// Starts it inside `ns` and waits for its prompt; it does not forward yet.
    ///
    /// # Errors
    /// It does not start; with its output.
    pub fn start(self, ns: &NetNs) -> Result<Testpmd> {
        let dir = folder("testpmd")?;
        let (master, terminal) = terminal()?;
        let copy = |f: &File| f.try_clone().map_err(Error::system("copy a terminal"));
        let Options { lcores, devices, arguments } = &self.options;
        let mut command = ns.command("dpdk-testpmd");
        command.args(self.eal.arguments()).arg(format!("--lcores={lcores}")).args(devices);
        command.args(["--", "-i", "--total-num-mbufs=16384", "--no-lsc-interrupt"]).args(arguments);
        command.stdin(Stdio::from(copy(&terminal)?)).stdout(Stdio::from(copy(&terminal)?)).stderr(terminal);
        self.eal.apply(&mut command, dir.path());
        let child = Guarded::spawn(&mut command)?;
        // The command holds the terminal's other end, which would hide the program's end.
        drop(command);
        let console = Console::of_a_host(copy(&master)?, master);
        console.wait_for(0, PROMPT, PATIENCE)?;
        let mut testpmd = Testpmd { child, console, _dir: dir };
        testpmd.check_ports(devices.len())?;
        Ok(testpmd)
    }
}

/// A running testpmd. It ends on drop.
#[derive(Debug)]
pub struct Testpmd {
    child: Guarded,
    console: Console,
    _dir: TempDir,
}

/// Counters of `show port stats` of one port, since its start or the last `clear port stats`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PortStats {
    /// Packets received.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
}

impl Testpmd {
    /// Returns the defaults: no devices, 256 MiB, one forwarding core.
    #[must_use]
    pub fn setup() -> TestpmdSetup {
        let [first, last] = cpus();
        let lcores = format!("0@{first},1@{last}");
        Setup::new(Options { lcores, devices: Vec::new(), arguments: Vec::new() })
    }

    /// Checks whether this machine can run it.
    ///
    /// # Errors
    /// The reason why not, for a `skipped:` line.
    pub fn usable() -> std::result::Result<(), String> {
        crate::usable()?;
        find("dpdk-testpmd").map(drop).ok_or_else(|| "dpdk-testpmd (package dpdk-dev) is missing".into())
    }

    /// Checks that all devices exist: testpmd starts without an invalid one.
    fn check_ports(&mut self, wanted: usize) -> Result<()> {
        let summary = self.command("show port summary all")?;
        if summary.contains(&format!("Number of available ports: {wanted}")) {
            return Ok(());
        }
        Err(Error::failed(format!("testpmd with {wanted} devices"), self.transcript()))
    }

    /// Sends a command and returns its output.
    ///
    /// # Errors
    /// testpmd has ended or does not return to its prompt; with its output.
    pub fn command(&mut self, command: &str) -> Result<String> {
        let from = self.console.position();
        self.console.line(command)?;
        Ok(self.console.wait_for(from, PROMPT, PATIENCE)?.0)
    }

    /// Returns the counters of one port.
    ///
    /// # Errors
    /// As [`Testpmd::command`].
    pub fn stats(&mut self, port: u16) -> Result<PortStats> {
        Ok(parse(&self.command(&format!("show port stats {port}"))?))
    }

    /// Returns its output so far.
    #[must_use]
    pub fn transcript(&self) -> String {
        self.console.transcript()
    }

    /// Returns its process id.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.child.pid()
    }

    /// Returns the exit status if the process has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.ended()
    }

    /// Ends it by its command `quit`, which stops and closes every port, and returns the exit status.
    ///
    /// # Errors
    /// [`Error::Timeout`] if it does not end.
    pub fn quit(&mut self) -> Result<ExitStatus> {
        self.console.line("quit")?;
        let mut status = None;
        wait_until("end of testpmd", PATIENCE, || {
            status = self.child.ended();
            status.is_some()
        })?;
        status.ok_or(Error::Timeout { what: "end of testpmd".into(), seconds: PATIENCE })
    }
}

/// Opens a terminal: our end and the program's. Without a terminal testpmd buffers its output.
fn terminal() -> Result<(File, File)> {
    let attempt = || {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        let name = ptsname(&master, Vec::new())?;
        let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC;
        let terminal = rustix::fs::open(&name, flags, rustix::fs::Mode::empty())?;
        Ok((File::from(master), File::from(terminal)))
    };
    attempt().map_err(|e: rustix::io::Errno| Error::system("open a terminal")(e.into()))
}

/// Reads the `NAME: number` pairs of `show port stats`.
fn parse(text: &str) -> PortStats {
    let words: Vec<&str> = text.split_whitespace().collect();
    let value = |name: &str| {
        let at = words.iter().position(|w| *w == name)?;
        words.get(at + 1)?.parse().ok()
    };
    let value = |name| value(name).unwrap_or(0);
    PortStats { rx_packets: value("RX-packets:"), tx_packets: value("TX-packets:") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dpdk::tests::world;
    use crate::process::run;

    #[test]
    fn testpmd_forwards_and_counts() {
        if let Err(why) = Testpmd::usable() {
            p4shield_need::skip("dpdk", why);
            return;
        }
        let [host, a, _b] = world().unwrap();
        let setup = Testpmd::setup()
            .vdev("net_af_packet0,iface=s0,qpairs=1")
            .vdev("net_af_packet1,iface=s1,qpairs=1");
        let mut testpmd = setup.start(&host).unwrap();
        testpmd.command("start").unwrap();
        let ping = || run(a.command("ping").args(["-c1", "-W1", "10.9.2.2"])).is_ok();
        wait_until("a ping through testpmd", 30, ping).unwrap();
        let stats = testpmd.stats(0).unwrap();
        assert!(stats.rx_packets >= 1 && stats.tx_packets >= 1, "{stats:?}");
        let status = testpmd.quit().unwrap();
        assert!(status.success(), "{status}\n{}", testpmd.transcript());
    }

    #[test]
    fn an_invalid_device_is_an_error_with_the_reason() {
        if let Err(why) = Testpmd::usable() {
            p4shield_need::skip("dpdk", why);
            return;
        }
        let host = NetNs::create("host").unwrap();
        let error =
            Testpmd::setup().vdev("net_af_packet0,iface=nosuch").start(&host).unwrap_err().to_string();
        assert!(error.contains("No such device"), "{error}");
    }

    #[test]
    fn counters_are_read_by_name() {
        let text = "RX-packets: 7   RX-missed: 1  RX-bytes:  98\n RX-errors: 2\n RX-nombuf:  3 \n\
                    TX-packets: 4  TX-errors: 5          TX-bytes:  6\n";
        assert_eq!(parse(text), PortStats { rx_packets: 7, tx_packets: 4 });
        assert_eq!(parse("nothing"), PortStats::default());
    }
}
