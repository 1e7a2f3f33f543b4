//! The switch in a virtual machine.

use crate::inside::proving;
use crate::line::Setup;
use crate::run::{Place, SwitchError, forward, listen_on};
use crate::surroundings::{Interfaces, Placement, Restriction, Watching};
use p4shield_io::afxdp::Watch;
use p4shield_io::ports;
use p4shield_runtime::Verifier;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

/// The things that a switch has in its machine.
pub struct Guest {
    /// The socket for commands.
    pub socket: PathBuf,
    /// Verifies programs.
    pub verifier: Verifier,
    /// Where the relay asks for metrics, and the host's address of them.
    pub metrics: Option<(SocketAddr, TcpListener)>,
}

/// Forwards packets in a virtual machine until `stop` is set. Calls `ready` once the ports are open and the
/// socket answers.
///
/// # Errors
/// [`SwitchError`]: the switch did not start.
pub fn run_in_guest(
    setup: Setup,
    guest: Guest,
    stop: &AtomicBool,
    ready: impl FnOnce(),
) -> Result<(), SwitchError> {
    let (forwarding, loaded) = setup.forwarding(proving(guest.verifier))?;
    let place = Place {
        entrance: listen_on(&guest.socket)?,
        metrics: guest.metrics,
        interfaces: Interfaces::InMachine,
        watching: Watching::Here(Watch::open().map_err(ports::Error::from)?),
        placement: Placement::Pipeline,
        restriction: Restriction::None,
    };
    forward(forwarding, place, loaded, stop, ready)
}
