//! DPDK's packets as the mediator's packets.
//!
//! An mbuf may be a chain of segments, share its buffer with other mbufs, or use an external
//! buffer. Its flags carry statements ("this checksum is valid") and requests ("compute this
//! checksum"). A rewrite changes only memory without other owners, copies the packet if necessary,
//! and removes statements and requests that do not hold for the new headers. A rewrite that is
//! impossible is refused, and the mediator drops the packet.

use crate::dpdk::Dpdk;

pub(crate) mod layout;
mod offload;
mod outer;
mod packet;
mod vlan;

pub use layout::RawMbuf;
pub use packet::Mbuf;

/// Registers what hiding tunnels and restoring VLAN tags need. False if DPDK has too few fields or flags
/// left.
pub(crate) fn prepare(dpdk: &Dpdk) -> bool {
    let (hides, restores) = (outer::prepare(dpdk), vlan::prepare(dpdk));
    hides && restores
}
