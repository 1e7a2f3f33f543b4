//! The P4 VM: a process that judges a tenant's packets with the tenant's programs, and has no other ability.
//!
//! ```text
//!   host daemon ──control (messages)──► control thread ──commands──► worker thread ◄──channel──► mediator
//!                                        │  link, compile             │  programs     ◄── info page
//!                                        ▼                            ▼               ──► log page
//!                                       zygote: verify              digests, totals
//! ```
//!
//! The process has three parts, each restricted to the system calls that it needs ([`sandbox::seccomp`]): the
//! control thread executes the host's requests ([`p4shield_control`]), the worker thread judges packets
//! ([`worker`]), and a zygote forks a child for each verification. [`p4vm::run`] starts them after
//! [`sandbox::enter`] has given up everything else.
//!
//! Guarantees: a P4 VM receives the packets of its own tenant only; a program that misbehaves affects its own
//! tenant only; programs are replaced between two batches, without loss of a packet; programs of one P4 VM
//! share no memory; the hot path makes no system call, takes no lock and allocates nothing.
//!
//! A packet's way continues in [`worker`].

mod bundle_check;
mod bundles;
mod control_session;
pub mod evidence;
mod handshakes;
pub mod inline;
pub mod p4vm;
mod program;
mod program_reader;
mod read_memory;
mod request_handler;
pub mod sandbox;
mod schedule;
mod tenant_settings;
mod vm_handshake;
mod vm_keys;
pub mod worker;

pub use program::{Prover, Verifier};
