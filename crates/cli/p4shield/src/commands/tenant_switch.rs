//! `p4shield tenant-switch`: `p4shield topology apply` starts it, never a user.

use p4shield_console::Exit;
use p4shield_tenantswitch::{Limits, Machine, Options, Paths, run};
use std::path::PathBuf;

/// A switch compartment. `p4shield topology apply` starts it, with the socket for orders as standard input.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Its name
    #[arg(long)]
    name: String,
    /// User to change to
    #[arg(long)]
    uid: u32,
    /// Its core
    #[arg(long)]
    core: u32,
    /// Leave it in the host's network
    #[arg(long)]
    on_host: bool,
    /// Have its switch forward with DPDK
    #[arg(long)]
    dpdk: bool,
    /// Have its switch in this virtual machine, in JSON
    #[arg(long, value_parser = machine)]
    machine: Option<Machine>,
    /// Folder of its cgroup
    #[arg(long)]
    cgroup: Option<PathBuf>,
    /// Folder of Open vSwitch's sockets
    #[arg(long)]
    run: PathBuf,
    /// Folder of Open vSwitch's database
    #[arg(long)]
    state: PathBuf,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let Self { name, uid, core, on_host, dpdk, machine, cgroup, run: sockets, state } = self;
        let paths = Paths { run: sockets, state };
        let limits = Limits::of(dpdk);
        match run(&Options { name, uid, core, on_host, dpdk, machine, cgroup, paths, limits })? {}
    }
}

fn machine(text: &str) -> serde_json::Result<Machine> {
    serde_json::from_str(text)
}
