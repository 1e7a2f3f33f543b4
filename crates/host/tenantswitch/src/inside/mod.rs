//! The first process of a switch compartment: enters the sandbox, keeps Open vSwitch running, and executes
//! the host's orders with Open vSwitch's own tools. Nothing of what a switch says is read outside.

mod buffers;
mod command;
mod controllers;
mod daemons;
mod dpdk;
mod enter;
mod guest;
mod join;
mod lines;
mod log;
mod machine;
mod ovs;
mod seccomp;
mod tools;

use crate::obeying::{execute, serve};
use buffers::Buffers;
use daemons::Daemons;
use dpdk::Datapath;
use enter::Entered;
use p4shield_sandbox::SandboxError;
use std::convert::Infallible;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

pub use enter::{Limits, Paths, join_cgroup, use_core};
pub use guest::{GuestLine, open_port, prepare_network};
pub use join::{CommandError, Errand, run_command};
pub use lines::MachineSetup;
pub use machine::{Machine, MachinePort};

/// How a compartment is entered.
#[derive(Clone, Debug)]
pub struct Options {
    /// Its name, which the switch sees as the host's.
    pub name: String,
    /// Its user, which no other process has.
    pub uid: u32,
    /// Its core.
    pub core: u32,
    /// True if it has the host's network and not one of its own: at the baseline.
    pub on_host: bool,
    /// True if its switch forwards with DPDK.
    pub dpdk: bool,
    /// Bytes of its switch's huge pages; 0: none.
    pub huge_pages: u64,
    /// The folder of its cgroup; `None`: that of the process that starts it.
    pub cgroup: Option<PathBuf>,
    /// Its virtual machine; `None`: its switch is in the sandbox itself.
    pub machine: Option<Machine>,
    /// Its folders.
    pub paths: Paths,
    /// Its limits.
    pub limits: Limits,
}

/// Reason why a compartment ends.
#[derive(Debug, thiserror::Error)]
pub enum InsideError {
    /// The sandbox cannot be entered.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The host's socket is not standard input, or fails.
    #[error("cannot take orders at standard input")]
    Orders(#[source] io::Error),
    /// There is no thread for it.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
    /// Open vSwitch does not run.
    #[error("{0}")]
    Switch(String),
}

/// Runs a switch compartment, whose socket for orders is standard input: bound, and not listening yet. Must
/// be called while the process has one thread; continues in another process.
///
/// # Errors
/// [`InsideError`]; otherwise it does not return.
pub fn run(options: &Options) -> Result<Infallible, InsideError> {
    let Entered { orders, machine, buffers } = enter::enter(options)?;
    // An operator's commands may leave processes behind.
    let reaper = std::thread::Builder::new().spawn(|| p4shield_sandbox::reap_orphans());
    reaper.map_err(InsideError::Thread)?;
    let mut switch = match machine {
        Some(machine) => Switch::Inside(machine.start()?),
        None => Switch::Here(start(options, buffers)?),
    };
    // From now on the host's connection succeeds.
    rustix::net::listen(&orders, 8).map_err(|e| InsideError::Orders(e.into()))?;
    let listener = UnixListener::from(orders);
    loop {
        if let Switch::Inside(machine) = &mut switch {
            machine.wait_for(listener.as_fd())?;
        }
        let (client, _) = listener.accept().map_err(InsideError::Orders)?;
        match serve(&client, |order| switch.answer(order)) {
            // A client that fails costs itself.
            Ok(()) | Err(ServeError::Client) => {}
            Err(ServeError::Machine(e)) => return Err(e),
        }
    }
}

fn start(options: &Options, buffers: Option<Buffers>) -> Result<Daemons, InsideError> {
    let datapath = Datapath { dpdk: options.dpdk, huge_pages: options.huge_pages, core: options.core };
    Daemons::start(datapath, buffers).map_err(InsideError::Switch)
}

/// Where Open vSwitch runs.
enum Switch {
    /// Beside this process.
    Here(Daemons),
    /// In a virtual machine.
    Inside(machine::Running),
}

/// Reason why a client is not served further.
enum ServeError {
    /// It is gone, or breaks the protocol.
    Client,
    /// The switch's machine cannot be used further.
    Machine(InsideError),
}

impl From<io::Error> for ServeError {
    fn from(_: io::Error) -> Self {
        Self::Client
    }
}

impl Switch {
    fn answer(&mut self, order: &[u8]) -> Result<Vec<u8>, ServeError> {
        match self {
            Self::Here(daemons) => {
                let mut line = serde_json::to_vec(&execute(order, daemons)).map_err(io::Error::from)?;
                line.push(b'\n');
                Ok(line)
            }
            Self::Inside(machine) => machine.execute(order).map_err(ServeError::Machine),
        }
    }
}
