//! The process that `p4shield topology apply` starts, and the one that stays.
//!
//! The first one starts the second, waits until it takes orders, and ends. If it or `apply` is killed
//! meanwhile, the second one ends, too, so that no unfinished switch is left.

use crate::program::{self, NAME};
use crate::switch::{P4Switch, first_ports};
use p4shield_p4::diagnostics::Diagnostics;
use p4shield_p4switch::{Launch, Setup, SwitchError, run_in_compartment};
use p4shield_sandbox::{SandboxError, close_all_but};
use p4shield_tenantswitch::{InsideError, join_cgroup, obey, use_core};
use p4shield_text::chain;
use rustix::net::SocketAddrUnix;
use rustix::process::{Signal, set_parent_process_death_signal};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Packet threads. The switch's compartment has one core.
const THREADS: usize = 1;
/// Time between two looks whether the switch takes orders.
const LOOK: Duration = Duration::from_millis(5);

/// How a compartment is entered.
#[derive(Clone, Debug)]
pub struct Options {
    /// Its user, which no other process has.
    pub uid: u32,
    /// Its core.
    pub core: u32,
    /// True if its ports are interfaces of the host's network: at the baseline.
    pub on_host: bool,
    /// The folder of its cgroup; `None`: that of the process that starts it.
    pub cgroup: Option<PathBuf>,
    /// The switch's socket.
    pub socket: PathBuf,
}

/// Reason why a compartment ends.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum P4TenantError {
    /// The host's socket is not standard input, or fails.
    #[error("cannot take orders at standard input")]
    Orders(#[source] io::Error),
    /// The process that stays does not start.
    #[error("cannot start the process that stays")]
    Start(#[source] io::Error),
    /// It has ended, and has said why.
    #[error("the P4 switch does not start")]
    Ended,
    /// A process cannot be prepared.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// As for Open vSwitch.
    #[error(transparent)]
    Inside(#[from] InsideError),
    /// The program does not compile.
    #[error("{NAME} does not compile: {0}")]
    Program(Diagnostics),
    /// The switch does not run.
    #[error(transparent)]
    Switch(#[from] SwitchError),
}

/// Starts `stays`, this command for [`stay`], and waits until it takes orders at standard input.
///
/// # Errors
/// It does not start; its own message is on standard error.
pub fn start(mut stays: Command) -> Result<(), P4TenantError> {
    end_with_parent(true)?;
    let address = rustix::net::getsockname(rustix::stdio::stdin());
    let address = address.and_then(SocketAddrUnix::try_from).map_err(|e| P4TenantError::Orders(e.into()))?;
    let path = address.path_bytes().map(|bytes| Path::new(std::ffi::OsStr::from_bytes(bytes)).to_owned());
    let path = path.ok_or_else(|| P4TenantError::Orders(io::ErrorKind::AddrNotAvailable.into()))?;
    let mut child = stays.spawn().map_err(P4TenantError::Start)?;
    while UnixStream::connect(&path).is_err() {
        if child.try_wait().map_err(P4TenantError::Start)?.is_some() {
            return Err(P4TenantError::Ended);
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// Runs the switch, and executes the orders that come at standard input: a socket that is bound, and not
/// listening yet. Called while the process has one thread.
///
/// # Errors
/// [`P4TenantError`]. It returns when the switch has ended by an order.
pub fn stay(options: &Options) -> Result<(), P4TenantError> {
    end_with_parent(true)?;
    // Signals of the terminal are for `apply`.
    let _ = rustix::process::setsid();
    close_all_but(&[0])?;
    let orders = io::stdin().as_fd().try_clone_to_owned().map_err(P4TenantError::Orders)?;
    join_cgroup(options.cgroup.as_deref())?;
    use_core(options.core);
    let object = program::object().map_err(P4TenantError::Program)?;
    let setup = Setup {
        ports: first_ports(),
        threads: THREADS,
        entries: Vec::new(),
        metrics: None,
        program: NAME.to_owned(),
        objects: vec![hex::encode(object)],
        traced: Err("the switch has the program as an object".to_owned()),
    };
    let launch = Launch {
        binary: std::env::current_exe().map_err(P4TenantError::Start)?,
        socket: options.socket.clone(),
        allow_missing: Vec::new(),
        uid: Some(options.uid),
        own_network: !options.on_host,
    };
    let stop = Arc::new(AtomicBool::new(false));
    let switch = P4Switch::new(options.socket.clone(), Arc::clone(&stop));
    let ready = move || {
        if let Err(error) = take_orders(orders, switch) {
            tracing::error!(event = "orders_failed", error = chain(&error), "the switch takes no orders");
        }
    };
    Ok(run_in_compartment(&setup, &launch, &stop, ready)?)
}

/// Takes orders in a thread. From now on the host's connection succeeds, and this process stays.
fn take_orders(orders: OwnedFd, switch: P4Switch) -> Result<(), P4TenantError> {
    end_with_parent(false)?;
    rustix::net::listen(&orders, 8).map_err(|e| P4TenantError::Orders(e.into()))?;
    let listener = UnixListener::from(orders);
    let serve = move || {
        for client in listener.incoming().flatten() {
            // A client that fails costs itself.
            let _ = obey(&client, &switch);
        }
    };
    std::thread::Builder::new().spawn(serve).map(drop).map_err(P4TenantError::Start)
}

/// Has the kernel end this process with the one that started it, or not any more.
fn end_with_parent(ends: bool) -> Result<(), P4TenantError> {
    set_parent_process_death_signal(ends.then_some(Signal::KILL)).map_err(|e| P4TenantError::Start(e.into()))
}
