//! The switch side of P4 Shield, shared by all attachments.
//!
//! An attachment receives packets and owns their memory: UMEM frames, mbufs. It passes each packet to
//! a [`Mediator`] with [`submit`](Mediator::submit) and calls [`poll`](Mediator::poll) continuously;
//! it forwards or frees the packets that come out of either. In between the mediator finds the
//! tenant, requests a verdict from the tenant's P4 VM over a channel, and applies the verdict. It
//! never waits: a packet without a verdict at its tenant's deadline is passed or dropped as the
//! tenant configured (`fail`), and the other packets continue.
//!
//! # A packet's way
//!
//! ```text
//!                       ┌─ unowned ───────────────────────────────► passed or dropped, by the port's policy
//!                       ├─ no program ([`VmConfig::skipped`]) ────► passed
//! submit ──► admission ─┤                             ┌────────────────┐
//!                       ├─ source is a VM ─► egress ──┤ held; verdict, ├─ pass, destination is a VM ─┐
//!                       │                    queue    │ or policy at   ├─ pass ──► out               │
//!                       │                             │ the deadline   ├─ drop ──► out               │
//!                       │                             └────────────────┘                             ▼
//!                       └─ destination is a VM ───────────────────► ingress queue, likewise ──► out
//! ```
//!
//! Read the modules in this order, each of which is named after what it does:
//!
//! 1. `submit`: a packet comes in.
//! 2. `admission`: which program judges it (`lookup` finds the VMs, `source_check` checks the source
//!    address).
//! 3. `enqueue`: it enters a `queue`; a `flight` is its record there, with the `deadline`.
//! 4. `request`: its header and metadata go into the channel ([`p4shield_channel::Requester`]);
//!    `wakeup` publishes the request and wakes the P4 VM. The P4 VM answers through
//!    [`p4shield_channel::Responder`].
//! 5. `poll`: answers are taken; `verdict` applies each to its packet, and `rewrite_check` checks rewrites.
//! 6. `release`: decided packets leave the queue.
//!
//! # Promises
//!
//! * **Every packet comes out exactly once**, from `submit` or from `poll`, and is counted where it
//!   goes ([`Counters`]): `in = passed + let through + dropped + held`, per tenant, VM and direction.
//! * **Order.** Packets leave a queue (one tenant, one direction) in the order in which they entered
//!   it, also when some time out, are let through, or the channel fails. Packets of one flow have the
//!   same addresses, hence pass through the same queues and keep their order. Between packets of
//!   different queues no order is promised, and a program that changes addresses makes another flow.
//!   A packet that is dropped at once overtakes no other.
//! * **Bounds.** A tenant holds at most `max_held` packets in each direction. Beyond that its policy
//!   applies: `drop` drops the newest packet, `pass` lets the oldest through, which keeps the order.
//! * **Isolation.** A P4 VM that stops, spins or answers garbage costs its own tenant's packets their
//!   verdicts. The work per packet that it can cause is bounded, and a program cannot turn its packet
//!   into another tenant's.
//! * **Hot path.** No allocation, lock, system call, waiting or logging. Sleeping P4 VMs are woken
//!   from `poll`, and from `submit` for packets that another mediator is about to submit, on average
//!   at most once per interval for each tenant; a busy P4 VM does not sleep.
//!
//! # Limits
//!
//! * No VM has a multicast or broadcast destination address. With [`Stages::Both`] the sender's
//!   egress program judges such a packet, and no ingress program does. On a wire
//!   ([`Stages::IngressOnly`]) every packet is judged.
//! * ARP and IPv6 neighbour discovery are not judged, as far as they are what RFC 826 and 4861 describe
//!   ([`Kind::is_exempt`]); from a VM's port they announce that VM's addresses only
//!   ([`AllowedSources::Only`]). IP in LLC and SNAP, or of a version that contradicts its EtherType, is
//!   dropped.
//! * IP behind more than two VLAN tags is not found, and a tunnel is judged by its outermost header.
//! * A packet of unknown network ([`Network::Unknown`]) whose address VMs of several networks have is
//!   dropped.
//! * Detaching a P4 VM, which happens once for each channel, unmaps memory and writes a log line.
//!
//! # Bursts
//!
//! The packets' cost is the switch's own time, so [`Mediator::submit_burst`] does once per burst what
//! it can: it finds the port, publishes to each P4 VM, stores counters, and decides once for packets
//! with the same addresses. [`Mediator::submit`] does the same for a burst of one.
//!
//! # Placement `inline`
//!
//! For a tenant whose programs run in the switch's process, an [`InlineEngine`] takes the place of
//! the channel: with the same queues, order, deadlines, checks and counters, without a copy or
//! another core. The [`Mediator::poll`] that follows a submission judges its packets.
//!
//! # Time
//!
//! The attachment passes the time as `now`: nanoseconds of a monotonic clock.

#![forbid(unsafe_code)]

mod admission;
mod config;
mod counters;
mod deadline;
mod enqueue;
mod flight;
mod inherit;
mod inline;
mod lookup;
mod mediator;
mod output;
mod p4vm;
mod packet;
mod parse;
mod poll;
mod ports;
mod queue;
mod release;
mod request;
mod rewrite_check;
mod sleep;
mod source_check;
mod submit;
mod tenant;
mod verdict;
mod wakeup;

pub use config::{
    AllowedSources, Config, ConfigError, FailPolicy, Network, PortSpec, Stages, TenantConfig, UnownedPolicy,
    VmConfig, VmRef,
};
pub use counters::{
    Counter, Counters, DirectionCounters, DirectionCounts, TenantCounters, UnownedCounters, VmCounters,
};
pub use inline::{InlineBatch, InlineEngine};
pub use mediator::Mediator;
pub use p4vm::{P4VmChannel, P4VmFault};
pub use packet::{Disposition, Packet, Reason, ReleasedPacket, RewriteRefused};
pub use parse::{Kind, classify};
pub use rewrite_check::RewriteCheck;
