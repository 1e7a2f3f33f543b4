//! The first process of a switch compartment: enters the sandbox, keeps Open vSwitch running, and executes
//! the host's orders with Open vSwitch's own tools. Nothing of what a switch says is read outside.

mod controllers;
mod daemons;
mod dpdk;
mod enter;
mod join;
mod ovs;
mod seccomp;
mod tools;

use crate::order::{Answer, MAX_ORDER, Order};
use daemons::Daemons;
use dpdk::Datapath;
use p4shield_sandbox::SandboxError;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

pub use enter::{Limits, Paths};
pub use join::{CommandError, Errand, run_command};

/// Longest time for the host to send an order once it has connected.
const PATIENCE: Duration = Duration::from_secs(10);

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
    /// The folder of its cgroup; `None`: that of the process that starts it.
    pub cgroup: Option<PathBuf>,
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
    /// Open vSwitch does not run.
    #[error("{0}")]
    Switch(String),
}

/// Runs a switch compartment, whose socket for orders is standard input: bound, and not listening yet. Must
/// be called while the process has one thread; continues in another process.
///
/// # Errors
/// [`InsideError`]; otherwise it does not return.
pub fn run(options: &Options) -> Result<std::convert::Infallible, InsideError> {
    let orders = enter::enter(options)?;
    // An operator's commands may leave processes behind.
    let reaper = std::thread::Builder::new().spawn(|| p4shield_sandbox::reap_orphans());
    reaper.map_err(|e| InsideError::Switch(format!("cannot start a thread: {e}")))?;
    let daemons =
        Daemons::start(Datapath { dpdk: options.dpdk, core: options.core }).map_err(InsideError::Switch)?;
    // From now on the host's connection succeeds.
    rustix::net::listen(&orders, 8).map_err(|e| InsideError::Orders(e.into()))?;
    let listener = UnixListener::from(orders);
    loop {
        let (client, _) = listener.accept().map_err(InsideError::Orders)?;
        // A client that fails costs itself.
        let _ = serve(&client, &daemons);
    }
}

/// Answers the orders of a client.
fn serve(client: &UnixStream, daemons: &Daemons) -> io::Result<()> {
    client.set_read_timeout(Some(PATIENCE))?;
    client.set_write_timeout(Some(PATIENCE))?;
    let mut lines = BufReader::new(client);
    loop {
        let mut line = String::new();
        if lines.by_ref().take(MAX_ORDER).read_line(&mut line)? == 0 {
            return Ok(());
        }
        let done = match serde_json::from_str(&line) {
            Ok(Order::Configure(settings)) => daemons.configure(settings),
            Ok(Order::Controllers(controllers)) => daemons.listen(&controllers),
            Ok(Order::Announce) => daemons.announce(),
            Ok(Order::Stop) => daemons.stop(),
            Ok(Order::Report) => daemons.health(),
            Err(e) => Err(format!("the order cannot be parsed: {e}")),
        };
        let mut answer = serde_json::to_vec(&Answer { error: done.err(), restarts: daemons.restarts() })?;
        answer.push(b'\n');
        (&*client).write_all(&answer)?;
    }
}
