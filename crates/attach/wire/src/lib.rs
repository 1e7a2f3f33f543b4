//! The wire attachment: an AF_XDP bump in the wire between a VM's interface and any switch.
//!
//! ```text
//!   user VM ── veth or tap ── vm_if │ wire │ switch_if ── veth ── any switch
//!                     egress ──────►│      │◄────── ingress
//! ```
//!
//! Each interface's XDP program takes every frame to an AF_XDP socket; a loop's thread gives each frame to the
//! mediator and sends what passes out of the other interface, moving the same memory. The switch needs no change
//! and no knowledge.
//!
//! # Fails closed
//!
//! Nothing connects the two interfaces but the loop. When its process dies, the kernel removes sockets and XDP
//! programs, and frames have nowhere to go: [`system::guard`] has dropped all that does not come by AF_XDP from
//! the beginning, in both ways, and stays when the process goes. Whoever starts next takes over.
//!
//! # What offloads leave undone
//!
//! AF_XDP hands over bytes and nothing that the kernel knows beside them. Undone checksums are found in the bytes
//! and completed ([`frame::checksum`]); VLAN tags beside the frame are put back by the XDP program where kernel and
//! driver let it (Linux 6.8; veth does); merged packets cannot come: attaching XDP to a veth switches its peer's
//! segmentation offload off. A VM on a tap must be started without guest segmentation offload (QEMU:
//! `host_tso4=off,host_tso6=off,host_ufo=off`); what comes longer than a frame all the same is dropped and counted
//! ([`XdpCounters::oversize`]). SCTP checksums and those inside tunnels that a VM ends itself are not completed: such
//! a VM switches its transmit checksum offload off.
//!
//! # Who can starve whom
//!
//! Every queue's rings and backlog and every tenant's held packets have their share of the packet memory: a wire
//! for which there is not enough is refused ([`LoopConfig::frames_needed`]), so that no tenant's frames are another's
//! to take. The ledger of [`p4shield_afxdp::pool`] can be counted at any time ([`Snapshot::frames`]).

mod config;
mod counters;
mod engine;
mod error;
pub mod frame;
mod handle;
mod mailbox;
mod supervisor;
pub mod system;

pub use config::{BURST, Guard, LoopConfig, Side, WireConfig};
pub use counters::{
    AttachedStatus, KernelCounters, SideCounters, SideStatus, Snapshot, WireCounters, WireStatus,
};
use engine::Engine;
pub use engine::WirePacket;
pub use error::{Error, Result};
pub use handle::WireLoop;
pub use system::xdp::{XdpCounters, XdpError, XdpMode};

/// Work for a loop's hot thread.
type EngineJob = Box<dyn for<'a, 'p> FnOnce(&'a mut Engine<'p>) + Send>;

/// A wire of a loop. The number of a removed one is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WireId {
    slot: u32,
    generation: u32,
}

/// Nanoseconds of the monotonic clock.
fn now() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Entry for fuzzing: offload code on a frame of arbitrary bytes, and the link monitor on a datagram of them.
///
/// # Panics
/// If a completed checksum is not right, or a frame was changed otherwise.
pub fn fuzz_frame(bytes: &[u8]) {
    assert!(system::link::events(bytes).count() <= bytes.len());
    let mut frame = bytes.to_vec();
    if frame::complete(&mut frame) {
        assert_eq!(frame::checksum::is_right(&frame), Some(true));
        let at = frame::Transport::find(&frame).map_or(0, |t| t.checksum);
        frame[at..at + 2].copy_from_slice(&bytes[at..at + 2]);
    }
    assert_eq!(frame, bytes);
}
