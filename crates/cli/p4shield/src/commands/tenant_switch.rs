//! `p4shield tenant-switch`: `p4shield topology apply` starts it, never a user.

use p4shield_console::Exit;
use p4shield_p4tenant::P4TenantError;
use p4shield_tenantswitch::{Limits, Machine, Options, Paths, run};
use std::path::PathBuf;
use std::process::Command;

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
    /// Bytes of its switch's huge pages
    #[arg(long, default_value_t = 0)]
    huge_pages: u64,
    /// Have its switch in this virtual machine, in JSON
    #[arg(long, value_parser = machine)]
    machine: Option<Machine>,
    /// Have a P4 switch, with this socket
    #[arg(long)]
    p4: Option<PathBuf>,
    /// Stay as the process outside of the P4 switch
    #[arg(long)]
    stay: bool,
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
        let Self { name, uid, core, on_host, dpdk, huge_pages, .. } = self;
        let Self { machine, p4, stay, cgroup, run: sockets, state, .. } = self;
        if let Some(socket) = p4 {
            let options = p4shield_p4tenant::Options { uid, core, on_host, cgroup, socket };
            return Ok(run_p4(&options, stay).map(|()| Exit::Done)?);
        }
        let paths = Paths { run: sockets, state };
        let limits = Limits::of(dpdk, huge_pages);
        match run(&Options { name, uid, core, on_host, dpdk, huge_pages, machine, cgroup, paths, limits })? {}
    }
}

/// Runs the compartment of a P4 switch.
fn run_p4(options: &p4shield_p4tenant::Options, stays: bool) -> Result<(), P4TenantError> {
    if stays {
        return p4shield_p4tenant::stay(options);
    }
    let binary = std::env::current_exe().map_err(P4TenantError::Start)?;
    let mut command = Command::new(binary);
    command.args(std::env::args_os().skip(1)).arg("--stay");
    p4shield_p4tenant::start(command)
}

fn machine(text: &str) -> serde_json::Result<Machine> {
    serde_json::from_str(text)
}
