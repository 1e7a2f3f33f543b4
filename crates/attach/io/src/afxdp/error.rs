//! Reasons why interfaces cannot be ports, or no longer are.

use p4shield_xdp::XdpError;
use rustix::io::Errno;

/// Reason why an interface cannot be a port, or no longer is one.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An interface does not exist.
    #[error("there is no interface {interface} in this network namespace (`ip link` lists those that exist)")]
    Missing {
        /// Its name.
        interface: String,
    },
    /// An interface is two ports.
    #[error("{interface} is given for two ports; name each interface once")]
    Twice {
        /// Its name.
        interface: String,
    },
    /// An interface is down.
    #[error("{interface} is down; bring it up first: ip link set {interface} up")]
    Down {
        /// Its name.
        interface: String,
    },
    /// An interface belongs to a bridge, Open vSwitch or a bond.
    #[error(
        "{interface} is a port of {master} already; remove it there first: ip link set {interface} nomaster"
    )]
    Enslaved {
        /// Its name.
        interface: String,
        /// The bridge, Open vSwitch datapath or bond.
        master: String,
    },
    /// An interface's MTU is too large for a frame.
    #[error(
        "{interface}: MTU {mtu} is too large, a frame holds {longest}; ip link set {interface} mtu {longest}"
    )]
    Mtu {
        /// Its name.
        interface: String,
        /// Its MTU.
        mtu: u32,
        /// The largest MTU that fits.
        longest: u32,
    },
    /// The UMEM has too few frames.
    #[error(
        "{interface}: its UMEM has {have} frames, and the rings of its queues need {need}; configure as many \
         frames, or shorter rings"
    )]
    Memory {
        /// The interface with too many queues.
        interface: String,
        /// Frames of the UMEM.
        have: u64,
        /// Frames needed.
        need: u64,
    },
    /// The UMEM could not be created.
    #[error("cannot create the memory of {interface}'s packets")]
    Umem {
        /// The interface.
        interface: String,
        /// The cause.
        #[source]
        source: p4shield_afxdp::Error,
    },
    /// The XDP program could not be attached.
    #[error(transparent)]
    Xdp(#[from] XdpError),
    /// A socket could not be created.
    #[error("cannot open an AF_XDP socket on {interface}{}", remedy(source))]
    Socket {
        /// The interface.
        interface: String,
        /// The cause.
        #[source]
        source: p4shield_afxdp::Error,
    },
    /// The process that opens ports for this one did not open it, or it cannot be taken.
    #[error("{why}")]
    Handed {
        /// The reason, which names the interface.
        why: String,
    },
    /// A system call failed.
    #[error("cannot {what}")]
    System {
        /// The step that failed.
        what: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
}

impl Error {
    pub(super) fn system(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::System { what, source }
    }

    pub(super) fn socket(interface: &str) -> impl FnOnce(p4shield_afxdp::Error) -> Self {
        let interface = interface.to_owned();
        move |source| Self::Socket { interface, source }
    }
}

/// Returns what to do about an error of a socket, if that is known.
fn remedy(error: &p4shield_afxdp::Error) -> &'static str {
    match error.errno().map(Errno::from_raw_os_error) {
        Some(Errno::BUSY) => ": another socket has a queue of it; end the program that opened it",
        Some(Errno::PERM) => ": CAP_NET_RAW is needed; run as root",
        Some(Errno::NOBUFS) => {
            ": it may not lock so much memory; raise the limit (ulimit -l) or shorten the rings"
        }
        Some(Errno::NETDOWN) => ": it is down; bring it up first (ip link set X up)",
        _ => "",
    }
}
