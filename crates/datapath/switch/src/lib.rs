//! A P4 switch: the program is the data plane.
//!
//! ```text
//!   ports ──receive──► Switch::round ──► program ──► unicast, drop, or the copies of a group ──send──► ports
//! ```
//!
//! One thread runs a [`Switch`]: it receives a batch of each port in turn, runs the program on every packet,
//! and sends what leaves. The ports are behind [`PacketIo`]; nothing here makes a system call.
//!
//! | module | contents |
//! |---|---|
//! | `io` | the trait of the ports |
//! | `switch` | the round: receive, run, replicate, send |
//! | `groups` | multicast groups |
//! | `counts` | packets by port, drops by reason |
//!
//! A packet's egress processing runs behind its ingress processing in one piece. A packet for a multicast
//! group is processed from its beginning once for each copy, as `p4shield_bpf` defines it
//! ([`p4shield_bpf::Program::run_copy`]).

#![forbid(unsafe_code)]

mod counts;
mod groups;
mod io;
mod switch;
#[cfg(test)]
mod tests;

pub use counts::{Counts, DropReason, PortCounts};
pub use groups::{Copy, GroupError, Groups, MAX_COPIES};
pub use io::{BATCH, PacketIo};
pub use switch::{MAX_PORT, PortError, Switch, Traits};
