//! The errors of the wire attachment.

use p4shield_xdp::XdpError;

/// An error of the wire attachment.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The UMEM or a socket could not be created.
    #[error(transparent)]
    Xsk(#[from] p4shield_afxdp::Error),
    /// The tenants are invalid.
    #[error("the tenants of the wire loop are invalid")]
    Tenants(#[from] p4shield_mediator::ConfigError),
    /// The XDP program could not be attached.
    #[error(transparent)]
    Xdp(#[from] XdpError),
    /// The interface could not be closed to the host's own stack.
    #[error(
        "cannot close {interface} to the host's own network stack (this needs CONFIG_NET_SCH_INGRESS and \
         CONFIG_NET_CLS_BPF; guard = off works without them)"
    )]
    Guard {
        /// The interface.
        interface: String,
        /// The cause.
        #[source]
        source: libbpf_rs::Error,
    },
    /// A wire is invalid.
    #[error("wire {wire}: {why}")]
    Wire {
        /// The wire.
        wire: String,
        /// The cause.
        why: String,
    },
    /// An interface's MTU is too large for a frame.
    #[error(
        "{interface}: MTU {mtu} is too large, UMEM frames hold {longest}; set the MTU to {longest} or less, \
         or use larger frames (frame_size = 4096 allows an MTU of 3498)"
    )]
    Mtu {
        /// Which interface.
        interface: String,
        /// The interface's MTU.
        mtu: u32,
        /// The largest MTU that fits.
        longest: u32,
    },
    /// The UMEM has too few frames for another interface.
    #[error(
        "{interface}: the UMEM has {have} frames, but {need} are needed so that no tenant can take \
         another's; configure more frames or shorter rings"
    )]
    Memory {
        /// Which interface.
        interface: String,
        /// Frames of the UMEM.
        have: u64,
        /// Frames needed.
        need: u64,
    },
    /// Tenants may hold more packets than the running loop's UMEM has room for.
    #[error(
        "the UMEM has {have} frames, and {need} are needed so that no tenant can take another's; restart the \
         daemon, which allocates them, or lower max_held"
    )]
    TenantMemory {
        /// Frames of the UMEM.
        have: u64,
        /// Frames needed.
        need: u64,
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
    /// The loop's thread has ended.
    #[error("the wire loop has ended")]
    Gone,
}

impl Error {
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::System { what, source }
    }
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
