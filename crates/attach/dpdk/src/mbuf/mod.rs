//! DPDK's packets as the mediator handles them.
//!
//! An mbuf may be a chain of segments, a clone that others hold or an external buffer, and its
//! flags may carry promises ("this checksum is good") and requests ("compute this checksum"). A
//! rewrite changes only memory that no other mbuf shares, copies the packet if it must, and leaves
//! no promise or request behind that does not hold for the new headers. What cannot be done is
//! refused, and the packet dropped.

mod layout;
mod offload;
mod outer;
mod packet;

pub use layout::RawMbuf;
pub(crate) use outer::{DynField, DynFlag, prepare};
pub use packet::Mbuf;
