//! The interface between a pump and the source of its verdicts.

use super::packet::RelayedPacket;

/// A packet with its verdict.
#[derive(Debug)]
#[must_use = "dropping it loses the application's frame"]
pub struct JudgedPacket {
    /// The packet, which a program may have rewritten.
    pub packet: RelayedPacket,
    /// Whether the packet passes; otherwise its frame returns to the ring that supplied it.
    pub pass: bool,
}

/// Supplies a verdict for each packet, at once or later. The `xsk` attachment implements it over
/// `attach::Lane`.
pub trait VerdictSource {
    /// Submits a packet. Returns at most one packet with a verdict, this one or another.
    fn submit(&mut self, now: u64, packet: RelayedPacket) -> Option<JudgedPacket>;

    /// Passes packets with verdicts to `sink`. Called before and after packets are submitted, and
    /// repeatedly while packets are held.
    fn poll(&mut self, now: u64, sink: impl FnMut(JudgedPacket));

    /// Returns the number of held packets.
    fn held(&self) -> usize;

    /// Passes all packets to `sink`, also those without a verdict, since the socket is about to be closed.
    fn drain(&mut self, sink: impl FnMut(JudgedPacket));
}

/// Passes every packet: the rings are replaced, and nothing is judged.
#[derive(Clone, Copy, Debug, Default)]
pub struct PassAll;

impl VerdictSource for PassAll {
    fn submit(&mut self, _: u64, packet: RelayedPacket) -> Option<JudgedPacket> {
        Some(JudgedPacket { packet, pass: true })
    }

    fn poll(&mut self, _: u64, _: impl FnMut(JudgedPacket)) {}

    fn held(&self) -> usize {
        0
    }

    fn drain(&mut self, _: impl FnMut(JudgedPacket)) {}
}

/// What one call of a pump's `process` did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PumpProgress {
    /// Descriptors moved.
    pub moved: u32,
    /// Frames that wait for a verdict.
    pub held: u32,
    /// Entries of the kernel's transmit rings that the kernel has not taken yet.
    pub unsent: u32,
    /// Frames that the kernel is sending.
    pub sending: u32,
}
