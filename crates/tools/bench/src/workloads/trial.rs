//! The programs of one measurement: a server for each tenant, then all clients at once.
//!
//! All of them share the first core; the switches have the last one.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use p4shield_testbed::process::{describe, last_lines, run};
use p4shield_testbed::{Guarded, leftover};

use super::program::{Load, Program, Seen, Site};
use crate::cores;
use crate::fixture::cloud::Vm;
use crate::topology::{Used, World};

/// Longest time until a server listens on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest time that a client takes beyond that of its load.
const BEYOND: Duration = Duration::from_secs(60);
/// Lines of a program's output in an error.
const LINES: usize = 12;

/// One measurement.
pub(super) struct Trial {
    /// The figures of each tenant's client.
    pub(super) seen: Vec<Seen>,
    /// Before the first client began, and after the last one ended.
    pub(super) begin: Used,
    pub(super) end: Used,
}

impl Trial {
    /// Runs the programs, for each tenant a server and a client.
    pub(super) fn run(
        world: &World,
        program: &(dyn Program + Sync),
        doors: &[Door<'_>],
        load: Load,
    ) -> anyhow::Result<Self> {
        // A thread of its own: its children are bound to its core, and end with it.
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                cores::pin(cores::two()[0]);
                Self::run_here(world, program, doors, load)
            });
            thread.join().map_err(|_| anyhow::anyhow!("the thread of the programs panicked"))?
        })
    }

    fn run_here(
        world: &World,
        program: &dyn Program,
        doors: &[Door<'_>],
        load: Load,
    ) -> anyhow::Result<Self> {
        let [server, client] = program.packages();
        let [server, client] = [server.path()?, client.path()?];
        let folder = leftover::folder("load")?;
        let mut servers = Vec::new();
        for (door, number) in doors.iter().zip(0..) {
            let folder = folder.path().join(format!("server{number}"));
            std::fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
            let site = Site { vm: &door.server.ns, address: &door.server.address, folder: &folder };
            let mut process = Process::start(&mut program.server(&server, &site, load)?, &folder)?;
            process.await_listening(&site, program.port())?;
            servers.push(process);
        }
        let begin = world.used()?;
        let mut clients = Vec::new();
        for (door, number) in doors.iter().zip(0..) {
            let folder = folder.path().join(format!("client{number}"));
            std::fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
            let mut command = program.client(&client, &world.cloud.outside, &door.first.address, load);
            clients.push(Process::start(&mut command, &folder)?);
        }
        let deadline = Instant::now() + Duration::from_secs(load.seconds.into()) + BEYOND;
        let printed = clients.iter_mut().map(|client| client.output(deadline));
        let printed = printed.collect::<anyhow::Result<Vec<_>>>()?;
        let end = world.used()?;
        let seen = clients.iter().zip(&printed).map(|(client, printed)| client.read(program, printed));
        Ok(Self { seen: seen.collect::<Result<_, _>>()?, begin, end })
    }
}

/// The VMs of a tenant between which the load goes: both the same one if there is no other.
pub(super) struct Door<'w> {
    /// Clients use its address.
    pub(super) first: &'w Vm,
    pub(super) server: &'w Vm,
}

/// A running program, whose output goes into files: a pipe would be full at some time.
struct Process {
    guarded: Guarded,
    name: String,
    /// The files of its output and of its errors.
    files: [PathBuf; 2],
}

impl Process {
    fn start(command: &mut Command, folder: &Path) -> anyhow::Result<Self> {
        let files = ["output", "errors"].map(|name| folder.join(name));
        let [output, errors] =
            files.each_ref().map(|f| File::create(f).with_context(|| format!("cannot make {}", f.display())));
        command.stdin(Stdio::null()).stdout(output?).stderr(errors?);
        Ok(Self { guarded: Guarded::spawn(command)?, name: describe(command), files })
    }

    /// Returns the last lines that it printed, for an error.
    fn said(&self) -> String {
        let text = |file: &PathBuf| std::fs::read(file).unwrap_or_default();
        let all = self.files.iter().map(|f| String::from_utf8_lossy(&text(f)).into_owned());
        last_lines(all.collect::<Vec<_>>().concat().trim_end(), LINES)
    }

    /// Waits until it accepts connections.
    fn await_listening(&mut self, site: &Site<'_>, port: u16) -> anyhow::Result<()> {
        let end = Instant::now() + PATIENCE;
        let filter = format!("sport = :{port}");
        let list = || run(site.vm.command("ss").args(["-Hltn", &filter]));
        while list()?.trim().is_empty() {
            if let Some(status) = self.guarded.ended() {
                bail!("`{}` ended before it listened on port {port} ({status}): {}", self.name, self.said());
            }
            let why = || format!("`{}` does not listen on port {port}: {}", self.name, self.said());
            ensure!(Instant::now() < end, "{}", why());
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Waits for its end, and returns what it printed.
    fn output(&mut self, deadline: Instant) -> anyhow::Result<String> {
        let status = loop {
            if let Some(status) = self.guarded.ended() {
                break status;
            }
            let why = || format!("`{}` goes on for {BEYOND:?} beyond its time: {}", self.name, self.said());
            ensure!(Instant::now() < deadline, "{}", why());
            std::thread::sleep(Duration::from_millis(10));
        };
        // iperf3 reports errors with exit code 0, wrk and memcaslap without an output.
        ensure!(status.success(), "`{}` failed ({status}): {}", self.name, self.said());
        let printed = std::fs::read_to_string(&self.files[0]);
        printed.with_context(|| format!("the output of `{}`", self.name))
    }

    fn read(&self, program: &dyn Program, printed: &str) -> anyhow::Result<Seen> {
        let what =
            || format!("cannot read the output of `{}`, which ends with:\n{}\n", self.name, self.said());
        program.read(printed).with_context(what)
    }
}
