//! The switch side of P4 Shield, shared by all attachments.
//!
//! An attachment receives packets and owns their memory, whatever that is: UMEM frames, mbufs. It gives each
//! packet to a [`Mediator`] with [`submit`](Mediator::submit) and calls [`poll`](Mediator::poll) all the time; what
//! comes out of either is to be passed on or freed. In between the mediator finds the tenant, asks the tenant's
//! P4 VM over a channel, and applies the verdict. It never waits: a packet that is not judged by its tenant's
//! deadline is passed or dropped as the tenant said (`fail`), and the others go on.
//!
//! # A packet's way
//!
//! ```text
//!                      ┌─ of nobody ──────────────────────────────────────────────► passed or dropped (`others`)
//!                      ├─ of VMs that want nobody asked ([`VmConfig::skipped`]) ───► passed
//!  submit ──► classify ┤                                       ┌────────────────┐
//!                      ├─ source is a VM ──► egress queue of ──┤ asked, held    ├─ pass, destination is a VM ─┐
//!                      │                     the sender's      │ answered, or   ├─ pass ──► out               │
//!                      │                     tenant            │ policy         ├─ drop ──► out               │
//!                      │                                       └────────────────┘                             ▼
//!                      └─ destination is a VM ─────────────────────────────────► ingress queue of the receiver's
//!                                                                                tenant, likewise ──► out
//! ```
//!
//! # Promises
//!
//! * **Every packet comes out exactly once**, from `submit` or from `poll`, and is counted where it went
//!   ([`Counters`]): `in = passed + let through + dropped + held`, per tenant, VM and direction.
//! * **Order.** Packets leave a queue (one tenant, one direction) in the order in which they entered it, also when
//!   some of them time out, are let through unjudged, or the channel fails. Packets of one flow have the same
//!   addresses, hence go through the same queues, hence keep their order. Between packets of different queues no
//!   order is promised, and a program that changes addresses makes another flow. A packet that is dropped at once
//!   overtakes nobody.
//! * **Bounds.** A tenant holds at most `max_held` packets a direction. Beyond that its policy applies: `drop` drops
//!   the newest, `pass` lets the oldest through (and so keeps the order).
//! * **Isolation.** A P4 VM that stops, spins or answers garbage costs its tenant's packets their verdicts. The
//!   work per packet that it can cause is bounded, and a program cannot turn its packet into another tenant's.
//! * **Hot path.** No allocation, no lock, no system call, no waiting, no log. P4 VMs that sleep are woken from `poll`, and
//!   from `submit` for packets that another mediator is about to ask about, each on average at most once an interval for each
//!   tenant; a busy P4 VM does not sleep.
//!
//! # Limits
//!
//! * A packet to a multicast or broadcast address has no receiver that could be looked up: with [`Stages::Both`] the
//!   sender's egress is asked and nobody's ingress. On a wire ([`Stages::IngressOnly`]) every IP packet is judged.
//! * ARP and IPv6 neighbour discovery are not judged, and their contents are not checked against [`AllowedSources`].
//! * IP behind more than two VLAN tags, or inside a tunnel, is looked at no deeper than its outermost header.
//! * A packet whose network nobody tells ([`Network::Unknown`]) and whose address VMs of several networks have is dropped.
//! * Detaching a P4 VM, which happens once for each channel, unmaps memory and writes a log line.
//!
//! # Bursts
//!
//! What a packet costs is the switch's own time, so all that can be done once for a burst is: [`Mediator::submit_burst`]
//! looks at the port, publishes to each P4 VM, and stores counters once, and decides once for packets with the same
//! addresses. [`Mediator::submit`] does the same for a burst of one.
//!
//! # Without a P4 VM
//!
//! A tenant whose programs run in the switch's process (placement `inline`) is judged by [`InlineEngine`] instead of over a
//! channel: the same queues, order, deadlines, rules and counters, no copy and no other core. The packets are judged in
//! the [`Mediator::poll`] that follows their submission.
//!
//! Time is whatever the attachment passes as `now`: nanoseconds of a monotonic clock.

#![forbid(unsafe_code)]

mod admit;
mod asking;
mod config;
mod counters;
pub mod extensions;
mod flow;
mod inline;
mod lookup;
mod mediator;
mod packet;
mod parse;
mod ports;
mod queue;
mod rules;
mod tenant;

pub use config::{
    AllowedSources, Config, ConfigError, FailPolicy, Network, PortSpec, Stages, TenantConfig, UnownedPolicy,
    VmConfig, VmRef,
};
pub use counters::{
    Counter, Counters, DirectionCounters, DirectionCounts, TenantCounters, UnownedCounters, VmCounters,
};
pub use inline::{InlineBatch, InlineEngine};
pub use mediator::Mediator;
pub use packet::{Disposition, Packet, Reason, ReleasedPacket, RewriteRefused};
pub use parse::{Kind, classify};
pub use tenant::{P4VmChannel, P4VmFault};
