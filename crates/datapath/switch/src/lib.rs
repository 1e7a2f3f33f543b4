//! A P4 switch: the program is the data plane.
//!
//! ```text
//!   ports ──receive──► Switch::round ──► program ──► Traffic (copies) ──► Leaving ──send──► ports
//! ```
//!
//! One thread runs a [`Switch`]: it receives a batch of each port in turn, runs the program on every packet,
//! and sends what leaves. The ports are behind [`PacketIo`]; nothing here makes a system call.
//!
//! # Several threads
//!
//! Each has a [`Switch`] with its part of the ports ([`Switch::seat`]): its queues of each device. They
//! share the queues with a rate, and one [`Pipeline`], which a thread locks for one batch; or each has a
//! pipeline of its own, which suits programs that change nothing but counters. Packets of one flow, which a
//! device receives in one queue, keep their order. A thread without a queue of a port to send by hands
//! packets to one that has it. A thread that is alone takes the lock, too, and never waits for it.
//!
//! | module | contents |
//! |---|---|
//! | `io` | the traits of the ports |
//! | `noted` | ports that note the times of each batch |
//! | `numbers` | the numbers of ports, and the thread that sends by each |
//! | `places` | the places of ports |
//! | `share` | how threads share the queues of a port |
//! | `pipeline` | the program with what it needs, for one thread or several, and its lock |
//! | `links` | packets that one thread hands to another, which may sleep |
//! | `ports` | ports that come and go while packets flow |
//! | `program` | a program as a switch runs it, and its twin |
//! | `switch` | the round: receive, run, let the traffic manager follow |
//! | `queue`, `queues` | packets that wait for a port with a rate; those of all ports, and their lock |
//! | `exit` | the way out: send or drop |
//! | `waiting` | the queues: set and served |
//! | `calls` | packets that wait for functions in a compartment, in the order of their flow |
//! | `answers` | such a packet goes on behind its call |
//! | `call_channel` | the way to a compartment over a channel |
//! | `record` | the record of a packet: events of the program, what left, what was dropped |
//! | `recording` | recording starts and ends, with the twin of the program that was compiled for tracing |
//! | `counts` | packets by port, drops by reason |
//! | `fuzz` | any bytes as the life of a switch, for fuzzing |
//!
//! A common packet passes ingress and egress of its program in one run. For a packet that is replicated,
//! cloned, resubmitted or recirculated, crate `p4shield_traffic` runs the program again.

#![forbid(unsafe_code)]

mod answers;
mod call_channel;
mod calls;
mod counts;
mod exit;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod io;
mod kept;
mod links;
mod noted;
mod numbers;
mod pipeline;
mod places;
mod ports;
mod program;
mod queue;
mod queues;
mod record;
mod recording;
mod ring;
mod share;
mod switch;
#[cfg(test)]
mod tests;
mod waiting;

pub use call_channel::CallChannel;
pub use calls::{CallFail, CallPort, CallSettings, MAX_CALLS, NoCompartment, Submitted};
pub use counts::{Counts, DropReason, PortCounts};
pub use io::{BATCH, ExchangePorts, PacketIo, Refused, Unsent};
pub use links::{Bell, Links, MAX_THREADS, link};
pub use noted::{BatchLog, BatchTimes, Noted, TakenBatches, Ticks};
pub use numbers::{MAX_PORT, MAX_PORTS, Way};
pub use pipeline::{Pipeline, PipelineHandle};
pub use places::PortError;
pub use program::{Traits, Twin};
pub use queue::{DEFAULT_DEPTH, MAX_DEPTH, QueueError, QueueLimits};
pub use record::{Record, RecordFilter, Records, Step};
pub use recording::InjectError;
pub use share::Share;
pub use switch::{Seat, Switch};
pub use waiting::QueueState;
