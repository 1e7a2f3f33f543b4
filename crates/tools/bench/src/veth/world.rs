//! The forwarder between two hosts.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, bail};
use p4shield_p4switch::api::{self, Format};
use p4shield_testbed::{Guarded, NetNs, Testpmd, leftover, process, wait_until};
use tempfile::TempDir;

use super::Forwarder;
use crate::cores;
use crate::fixture::hosts::{Hosts, INTERFACE, PORTS};

/// The program of TEE Time at P4: one exact table, one entry for each port.
pub(super) const TEE: Program = Program {
    source: include_str!("../fixture/tee.p4"),
    table: "by_port",
    entries: "std.ingress_port,action,port\n0,forward,1\n1,forward,0\n",
};
/// A table of prefixes with room for many more.
pub(super) const ROUTES: Program = Program {
    source: include_str!("routes.p4"),
    table: "routes",
    entries: "hdr.ipv4.destination,action,port\n10.9.6.1/32,forward,0\n10.9.6.2/32,forward,1\n",
};

/// Seconds in which a forwarder must start.
const PATIENCE: u64 = 60;
/// Memory of testpmd.
const TESTPMD_MEGABYTES: u32 = 512;

/// A program for P4 Shield's switch, and its first entries as CSV.
#[derive(Clone, Copy, Debug)]
pub(super) struct Program {
    source: &'static str,
    pub(super) table: &'static str,
    entries: &'static str,
}

impl Program {
    pub(super) fn format(&self) -> Format {
        Format::Csv { table: self.table.to_owned() }
    }
}

/// The process that forwards. It ends on drop.
enum Process {
    Testpmd { _process: Box<Testpmd> },
    P4shield { _process: Guarded, _folder: TempDir, socket: PathBuf },
}

/// The hosts and the forwarder. Fields are dropped in order: the forwarder before its ports.
pub(super) struct World {
    process: Process,
    pub(super) hosts: Hosts,
}

impl World {
    /// Makes the hosts, and starts the forwarder with its defaults.
    pub(super) fn start(forwarder: Forwarder, program: &Program) -> anyhow::Result<Self> {
        let hosts = Hosts::make()?;
        let process = match forwarder {
            Forwarder::Testpmd => testpmd(&hosts.middle)?,
            Forwarder::P4shield => p4shield(&hosts.middle, program, "inline")?,
            Forwarder::Pipeline => p4shield(&hosts.middle, program, "pipeline")?,
        };
        Ok(Self { process, hosts })
    }

    /// Returns the socket of P4 Shield's switch.
    ///
    /// # Errors
    /// The forwarder is another one.
    pub(super) fn socket(&self) -> anyhow::Result<&Path> {
        match &self.process {
            Process::P4shield { socket, .. } => Ok(socket),
            Process::Testpmd { .. } => bail!("testpmd has no socket"),
        }
    }
}

fn testpmd(host: &NetNs) -> anyhow::Result<Process> {
    let mut setup = Testpmd::setup().megabytes(TESTPMD_MEGABYTES);
    for (n, port) in PORTS.iter().enumerate() {
        setup = setup.vdev(&format!("net_af_xdp{n},iface={port}"));
    }
    let mut testpmd = setup.start(host)?;
    testpmd.command("start")?;
    Ok(Process::Testpmd { _process: Box::new(testpmd) })
}

fn p4shield(host: &NetNs, program: &Program, placement: &str) -> anyhow::Result<Process> {
    let folder = leftover::folder("veth")?;
    let source = folder.path().join("program.p4");
    std::fs::write(&source, program.source)?;
    let socket = folder.path().join("switch.sock");
    let mut command = host.command(process::product()?);
    command.args(["switch", "run"]).arg(&source).arg("--socket").arg(&socket);
    command.args(["--placement", placement]);
    for (n, port) in PORTS.iter().enumerate() {
        command.args(["--port", &format!("{n}={port}")]);
    }
    let log = folder.path().join("switch.log");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&log)?);
    let mut process = Guarded::spawn(&mut command)?;
    let answers = || api::status(&socket).is_ok() || process.ended().is_some();
    wait_until("the answer of p4shield switch run", PATIENCE, answers)?;
    let load = api::load(&socket, program.format(), program.entries.to_owned(), false);
    load.with_context(|| process::last_lines(&std::fs::read_to_string(&log).unwrap_or_default(), 5))?;
    Ok(Process::P4shield { _process: process, _folder: folder, socket })
}

/// Starts a testpmd in `ns` that sends 64-byte packets as fast as it can, on the first core alone.
pub(super) fn generator(ns: &NetNs) -> anyhow::Result<Testpmd> {
    let core = cores::two()[0];
    let setup = Testpmd::setup().megabytes(TESTPMD_MEGABYTES).lcores(&format!("0@{core},1@{core}"));
    let mut testpmd =
        setup.vdev(&format!("net_af_xdp0,iface={INTERFACE}")).argument("--forward-mode=txonly").start(ns)?;
    testpmd.command("start")?;
    Ok(testpmd)
}
