//! A P4 switch: the program is the data plane.
//!
//! ```text
//!   ports ──receive──► Switch::round ──► program ──► Traffic (copies) ──► Leaving ──send──► ports
//! ```
//!
//! One thread runs a [`Switch`]: it receives a batch of each port in turn, runs the program on every packet,
//! and sends what leaves. The ports are behind [`PacketIo`]; nothing here makes a system call.
//!
//! | module | contents |
//! |---|---|
//! | `io` | the traits of the ports |
//! | `places` | the places of ports, and their numbers |
//! | `ports` | ports that come and go while packets flow |
//! | `switch` | the round: receive, run, let the traffic manager follow |
//! | `queue` | packets that wait for a port with a rate |
//! | `exit` | the way out: send or drop |
//! | `waiting` | the queues: set and served |
//! | `record` | the record of a packet: events of the program, what left, what was dropped |
//! | `recording` | recording starts and ends, with the twin of the program that was compiled for tracing |
//! | `counts` | packets by port, drops by reason |
//! | `fuzz` | any bytes as the life of a switch, for fuzzing |
//!
//! A common packet passes ingress and egress of its program in one run. For a packet that is replicated,
//! cloned, resubmitted or recirculated, crate `p4shield_traffic` runs the program again.

#![forbid(unsafe_code)]

mod counts;
mod exit;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod io;
mod places;
mod ports;
mod queue;
mod record;
mod recording;
mod switch;
#[cfg(test)]
mod tests;
mod waiting;

pub use counts::{Counts, DropReason, PortCounts};
pub use io::{BATCH, ExchangePorts, PacketIo, Refused, Unsent};
pub use places::{MAX_PORT, MAX_PORTS, PortError};
pub use queue::{DEFAULT_DEPTH, MAX_DEPTH, QueueError, QueueLimits};
pub use record::{Record, RecordFilter, Records, Step};
pub use recording::InjectError;
pub use switch::{Switch, Traits, Twin};
pub use waiting::QueueState;
