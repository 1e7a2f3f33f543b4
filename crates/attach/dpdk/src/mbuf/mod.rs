//! Packets of DPDK, as the mediator wants them.
//!
//! An mbuf may be anything: a chain of segments, a clone that others hold, a buffer of somebody else's, and its flags
//! may carry promises ("this checksum is good") and requests ("compute this checksum"). A rewrite touches only memory
//! that nobody else holds, copies the packet if it has to, and leaves no promise or request behind that is not true
//! of the new headers. What cannot be done is refused, and the packet dropped.

mod headers;
mod layout;
mod offload;
mod outer;
mod packet;

pub use layout::RawMbuf;
pub(crate) use outer::{DynField, DynFlag, prepare};
pub use packet::Mbuf;
