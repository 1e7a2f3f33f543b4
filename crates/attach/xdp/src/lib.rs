//! The parts between a network interface and AF_XDP sockets.
//!
//! - [`program`]: the XDP program that redirects every frame of an interface to the sockets of its queues,
//!   with its VLAN tag put back.
//! - [`offload`]: switches off what an interface does to packets that AF_XDP hands over without.
//! - [`checksum`]: completes the checksums that a sender left to hardware.
//! - [`interfaces`]: the interfaces of a network namespace and their changes.
//! - [`guard`]: keeps the host's own network stack off an interface.
//!
//! Two users have these in common: the `wire` attachment, and the ports of a P4 switch (`p4shield-io`). The
//! `xsk` attachment needs none of them, and a library that is preloaded into a switch stays free of libbpf,
//! so they are not a part of `p4shield-afxdp`.
//!
//! `unsafe` is in `program` (loading and attaching).

pub mod checksum;
pub mod guard;
pub mod interfaces;
pub mod offload;
pub mod program;

pub use interfaces::{Interface, InterfaceEvent, InterfaceMonitor};
pub use program::{MAX_QUEUES, XdpCounters, XdpError, XdpMode, XdpProgram};

/// Bytes of an Ethernet header with two VLAN tags, which an MTU does not include.
pub const FRAME_OVERHEAD: u32 = 14 + 8;

/// Entry for fuzzing: the offload code on a frame, and the interface monitor on a datagram, of arbitrary
/// bytes.
///
/// # Panics
/// If a completed checksum is wrong, or the frame was changed otherwise.
pub fn fuzz_frame(bytes: &[u8]) {
    assert!(interfaces::events(bytes).count() <= bytes.len());
    let mut frame = bytes.to_vec();
    if checksum::complete(&mut frame) {
        assert_eq!(checksum::is_right(&frame), Some(true));
        let field = checksum::find(&frame).map_or(0..0, |found| found.checksum());
        frame[field.clone()].copy_from_slice(&bytes[field]);
    }
    assert_eq!(frame, bytes);
}
