//! The forwarder between two hosts.

use std::path::PathBuf;

use anyhow::bail;
use p4shield_testbed::{NetNs, Testpmd};

use super::Forwarder;
use crate::cores;
use crate::fixture::hosts::{Hosts, INTERFACE, PORTS};
use crate::fixture::product::{Product, Program};

/// A table of prefixes with room for many more.
pub(super) const ROUTES: Program = Program {
    source: include_str!("routes.p4"),
    table: "routes",
    entries: "hdr.ipv4.destination,action,port\n10.9.6.1/32,forward,0\n10.9.6.2/32,forward,1\n",
    function: None,
};

/// Memory of testpmd.
const TESTPMD_MEGABYTES: u32 = 512;

/// The process that forwards. It ends on drop.
enum Process {
    Testpmd { _process: Box<Testpmd> },
    P4shield(Product),
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
            Forwarder::P4shield => Process::P4shield(Product::start(&hosts.middle, program, &["inline"])?),
            Forwarder::Pipeline => Process::P4shield(Product::start(&hosts.middle, program, &["pipeline"])?),
        };
        Ok(Self { process, hosts })
    }

    /// Returns the socket of P4 Shield's switch.
    ///
    /// # Errors
    /// The forwarder is another one.
    pub(super) fn socket(&self) -> anyhow::Result<PathBuf> {
        match &self.process {
            Process::P4shield(switch) => Ok(switch.socket()),
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

/// Starts a testpmd in `ns` that sends 64-byte packets as fast as it can, on the first core alone.
pub(super) fn generator(ns: &NetNs) -> anyhow::Result<Testpmd> {
    let core = cores::two()[0];
    let setup = Testpmd::setup().megabytes(TESTPMD_MEGABYTES).lcores(&format!("0@{core},1@{core}"));
    let mut testpmd =
        setup.vdev(&format!("net_af_xdp0,iface={INTERFACE}")).argument("--forward-mode=txonly").start(ns)?;
    testpmd.command("start")?;
    Ok(testpmd)
}
