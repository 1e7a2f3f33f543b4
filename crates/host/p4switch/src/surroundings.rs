//! The surroundings of the switch: the machine's interfaces, or a process that opens them for it.

use crate::line::Seen;
use crate::opener::{Opener, OutsideWatch};
use p4shield_compartment::first_of;
use p4shield_io::afxdp::{AfxdpConfig, AfxdpPorts, Error, InterfacePort, PortPart, Watch};
use p4shield_io::ports::{self, OpenPorts, Ports, PortsConfig};
use p4shield_runtime::sandbox::SandboxError;
use p4shield_runtime::sandbox::seccomp::{self, Filter};
use p4shield_switch::Share;
use rustix::fd::BorrowedFd;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// The first of the users of compartments, one for each possible number of a process outside.
const FIRST_UID: u32 = 0x6fc0_0000;
/// The most processes of a machine.
const MAX_PID: u32 = 1 << 22;

/// Returns a user of this process's own for its compartment.
pub(crate) fn compartment_user() -> u32 {
    let uid = first_of(FIRST_UID, MAX_PID);
    if uid == FIRST_UID { uid + std::process::id() % MAX_PID } else { uid }
}

/// Where the switch runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// In the process that the operator started.
    #[default]
    Inline,
    /// The whole of it in a compartment.
    Pipeline,
    /// In the process that the operator started, and marked functions in a compartment.
    Extern,
}

impl Placement {
    /// Returns its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inline => "inline",
            Self::Pipeline => "pipeline",
            Self::Extern => "extern",
        }
    }
}

/// Opens interfaces.
#[derive(Clone, Debug)]
pub(crate) enum Interfaces {
    Here,
    /// In a virtual machine, which gets none while it runs.
    InMachine,
    Outside(Arc<Opener>),
}

impl Interfaces {
    /// Opens an interface as a port of the packet threads.
    pub(crate) fn open(&self, interface: &str, share: Share) -> Result<Vec<PortPart>, Error> {
        match self {
            // The names of interfaces are no part of what this takes from the configuration.
            Self::Here | Self::InMachine => {
                let config = AfxdpConfig::new(std::iter::empty::<String>());
                InterfacePort::open_for(&config, interface, share)
            }
            Self::Outside(opener) => opener.open(interface, share),
        }
    }

    /// Returns what an operator has to know of an interface that cannot be opened as this port.
    pub(crate) fn remedy(&self, number: u16, interface: &str) -> String {
        match self {
            Self::Here | Self::Outside(_) => String::new(),
            Self::InMachine => format!(
                "; a switch in a virtual machine has the interfaces with which it started: stop it, and give \
                 it --port {number}={interface}"
            ),
        }
    }

    /// Opens the ports with which the switch starts.
    pub(crate) fn open_all(&self, config: &PortsConfig, threads: usize) -> Result<OpenPorts, ports::Error> {
        let Self::Outside(opener) = self else { return Ports::open(config, threads) };
        Ports::open_by(config, threads, |names| {
            AfxdpPorts::handed(&names, threads, |name, share| opener.open(name, share))
        })
    }
}

/// Watches interfaces.
#[derive(Debug)]
pub(crate) enum Watching {
    Here(Watch),
    Outside(OutsideWatch),
}

impl Watching {
    /// Looks which interfaces are there, at least these.
    pub(crate) fn look(&mut self, interfaces: Vec<String>) -> Result<(), Error> {
        match self {
            Self::Here(watch) => watch.look(),
            Self::Outside(watch) => watch.look(interfaces),
        }
    }

    /// Sleeps until an interface changes or `bell` is readable, at most for `longest`.
    pub(crate) fn wait(&self, longest: Duration, bell: BorrowedFd<'_>) -> Result<(), Error> {
        match self {
            Self::Here(watch) => watch.wait(longest, bell),
            Self::Outside(watch) => watch.wait(longest, bell),
        }
    }

    pub(crate) fn find(&self, name: &str) -> Option<Seen> {
        match self {
            Self::Here(watch) => Seen::find(watch, name),
            Self::Outside(watch) => watch.find(name),
        }
    }
}

/// The system calls that a packet thread gives up once it forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Restriction {
    None,
    /// Any system call but those of a packet thread.
    Filter,
}

impl Restriction {
    /// Applies to the calling thread.
    pub(crate) fn apply(self) -> Result<(), SandboxError> {
        if self == Self::Filter { seccomp::apply(Filter::Packets) } else { Ok(()) }
    }
}
