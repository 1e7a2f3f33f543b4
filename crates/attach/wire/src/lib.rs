//! The wire attachment: an AF_XDP bump in the wire between a VM's interface and any switch.
//!
//! ```text
//!   user VM ── veth or tap ── vm_if │ wire │ switch_if ── veth ── any switch
//!                     egress ──────►│      │◄────── ingress
//! ```
//!
//! Each interface's XDP program redirects every frame to an AF_XDP socket. A loop's thread submits each
//! frame to the mediator and sends the frames that pass from the other interface, without a copy. The
//! switch is unchanged and unaware of the wire.
//!
//! # Fails closed
//!
//! Only the loop connects the two interfaces. When its process ends, the kernel removes sockets and XDP
//! programs, and frames have no way across: from the beginning, [`p4shield_xdp::guard`] has dropped
//! everything that does not pass through AF_XDP, in both directions, and it stays when the process ends. The
//! next process takes over.
//!
//! # Offloads
//!
//! AF_XDP delivers bytes without the kernel's metadata. Partial checksums are found in the bytes and
//! completed ([`p4shield_xdp::checksum`]). The XDP program restores VLAN tags from packet metadata where
//! kernel and driver support it (Linux 6.8; veth does). Merged packets do not occur: attaching XDP to a veth
//! switches its peer's segmentation offload off. A VM on a tap must be started without guest
//! segmentation offload (QEMU: `host_tso4=off,host_tso6=off,host_ufo=off`); longer packets are dropped
//! and counted ([`XdpCounters::oversize`]). SCTP checksums and checksums inside tunnels that a VM ends
//! itself are not completed: such a VM must switch its transmit checksum offload off.
//!
//! # Isolation of tenants
//!
//! Every queue's rings and backlog and every tenant's held packets have their share of the UMEM. A wire
//! for which there is not enough is refused ([`LoopConfig::frames_needed`]), so that no tenant can use
//! up another's frames. The ledger of [`p4shield_afxdp::pool`] can be counted at any time
//! ([`Snapshot::frames`]).

#![forbid(unsafe_code)]

mod config;
mod counters;
mod engine;
mod error;
mod handle;
mod mailbox;
mod supervisor;

pub use config::{BURST, Guard, LoopConfig, SPARE, WireConfig, WireSide};
pub use counters::{
    AttachedStatus, KernelCounters, SideCounters, SideStatus, Snapshot, WireCounters, WireStatus,
};
use engine::Engine;
pub use engine::WirePacket;
pub use error::{Error, Result};
pub use handle::WireLoop;
pub use p4shield_xdp::{XdpCounters, XdpError, XdpMode};

/// Work for a loop's hot thread.
type EngineJob = Box<dyn for<'a, 'p> FnOnce(&'a mut Engine<'p>) + Send>;

/// A wire of a loop. The number of a removed wire is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WireId {
    slot: u32,
    generation: u32,
}

/// Returns nanoseconds of the monotonic clock.
fn now() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}
