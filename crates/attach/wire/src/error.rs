//! What can go wrong.

use crate::system::xdp::XdpError;

/// An error of the wire attachment.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The packet memory or a socket could not be had.
    #[error(transparent)]
    Xsk(#[from] p4shield_afxdp::Error),
    /// The tenants make no sense.
    #[error("the tenants of the wire loop make no sense")]
    Tenants(#[from] p4shield_mediator::ConfigError),
    /// The XDP program could not be attached.
    #[error(transparent)]
    Xdp(#[from] XdpError),
    /// The interface could not be closed to the host's own stack.
    #[error(
        "cannot keep the host's own network stack off {interface} (needs CONFIG_NET_SCH_INGRESS and CONFIG_NET_CLS_BPF; \
         guard = off does without)"
    )]
    Guard {
        /// Which interface.
        interface: String,
        /// Why.
        #[source]
        source: libbpf_rs::Error,
    },
    /// A wire that cannot be.
    #[error("wire {wire}: {why}")]
    Wire {
        /// Which one.
        wire: String,
        /// Why.
        why: String,
    },
    /// An interface whose frames do not fit.
    #[error(
        "{interface}: MTU {mtu} is too long, frames of packet memory hold {longest}; set it to {longest} or less, or \
         make frames longer (frame_size = 4096 holds an MTU of 3498)"
    )]
    Mtu {
        /// Which interface.
        interface: String,
        /// What it is.
        mtu: u32,
        /// What it may be.
        longest: u32,
    },
    /// There is not enough packet memory for one more.
    #[error(
        "{interface}: packet memory has {have} frames, {need} are needed so that nobody can take another's; give \
         it more frames, or shorter rings"
    )]
    Memory {
        /// Which interface.
        interface: String,
        /// Frames there are.
        have: u64,
        /// Frames needed.
        need: u64,
    },
    /// A call to the system failed.
    #[error("cannot {what}")]
    System {
        /// What was attempted.
        what: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The thread has ended.
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
