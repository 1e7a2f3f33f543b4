//! The compartment `vm`: a tenant's P4 VM in a virtual machine; and the machine of a P4 switch
//! ([`SwitchMachine`]).
//!
//! ```text
//!   host daemon ──messages with resources───► session ─► carrier ──frames──► p4vm's init ─► runtime
//!   mediators ◄──doorbells──► rings ◄────────────── a byte each ────────────► doorbells
//!   channels, pages ═══════════════ QEMU: a device for each region ═════════ mapped by the runtime
//! ```
//!
//! The process stands where a P4 VM in a process stands: the daemon starts, addresses, adopts and ends it
//! in the same way. It starts QEMU (`launch`), plugs the memory of channels and pages as a device each
//! (`regions`), carries control messages over a serial line (`carrier`, `guest`) and rings over another
//! one (`p4shield_line`). It never reads a packet, and passes information, logs and verdicts on in the
//! regions without access to them.
//!
//! Neither side trusts the other: the guest's frames are bounded, each wait has a limit, and QEMU is
//! confined like a P4 VM in a process. Decision 038 has the reasons.
#![forbid(unsafe_code)]

mod carrier;
mod command;
mod console;
mod error;
mod guest;
mod last_signal;
mod launch;
mod log_copy;
mod nic;
mod prove;
mod qmp;
mod regions;
mod session;
mod switch;
mod trial;
mod vhost;

pub use command::Machine;
pub use error::VmmError;
pub use log_copy::copy_lines;
pub use nic::{NetworkDevice, Nic};
pub use prove::{Ground, Proof, Verdict, prove};
pub use qmp::QmpError;
pub use regions::MAX_REGIONS;
pub use switch::SwitchMachine;
pub use vhost::VhostNic;

use carrier::Carrier;
use guest::Guest;
use p4shield_control::{Socket, receive_request};
use p4shield_line::Rings;
use qmp::Qmp;
use session::Session;
use std::os::fd::OwnedFd;
use std::process::Child;
use std::time::{Duration, Instant};

/// Time for the guest to power off after the P4 VM has ended.
const POWER_OFF: Duration = Duration::from_millis(500);

/// The options of `p4shield vmm`.
#[derive(Clone, Debug)]
pub struct Options {
    /// User of QEMU and, once it runs, of this process, if started as root.
    pub uid: u32,
    /// The virtual machine.
    pub machine: Machine,
    /// True if the guest maps regions with write combining.
    pub write_combining: bool,
}

/// Runs a P4 VM in a virtual machine until a daemon sends `Stop`, or the daemon closes the connection and
/// no other adopts the P4 VM in time. `control` is the control socket. Must be called while the process
/// has one thread.
///
/// # Errors
/// The virtual machine does not start or ends, or the control socket fails.
pub fn run(control: OwnedFd, options: &Options) -> Result<(), VmmError> {
    let mut socket = Socket::new(launch::control_socket(control)?);
    // By then the daemon has moved the process into its cgroup.
    socket.wait(None)?;
    let launched = launch::launch(&options.machine, options.uid)?;
    launch::drop_privileges(options.uid)?;
    let mut child = launched.child;
    let end = (|| {
        console::pass_on(launched.console).map_err(VmmError::Thread)?;
        let (envelope, resources) = receive_request(&mut socket)?;
        let qemu = Qmp::connect(launched.qmp)?;
        let rings = Rings::start(launched.rings.into()).map_err(VmmError::Thread)?;
        let carrier = Carrier::new(Guest::boot(launched.messages)?, qemu, rings, options.write_combining);
        let mut session = Session::new(socket, carrier);
        if session.hello(&envelope, resources)? {
            session.serve()?;
        }
        Ok(())
    })();
    let status = finish(&mut child, POWER_OFF);
    match end {
        Err(VmmError::Ended(_) | VmmError::Qemu(QmpError::Ended)) => Err(VmmError::Ended(status)),
        other => other,
    }
}

/// Waits until QEMU has ended, and kills it if the guest does not power off in time. Returns how it ended.
fn finish(child: &mut Child, grace: Duration) -> String {
    let end = Instant::now() + grace;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.to_string(),
            Ok(None) if Instant::now() < end => std::thread::sleep(Duration::from_millis(10)),
            _ => break,
        }
    }
    if let Err(error) = child.kill() {
        // Of another user, if this process has no CAP_KILL. The kernel ends it with this process.
        return format!("it does not end by itself, and cannot be killed: {error}");
    }
    child.wait().map_or_else(|e| e.to_string(), |status| status.to_string())
}
