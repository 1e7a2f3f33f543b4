//! The P4 VM: a process that judges a tenant's packets with the tenant's programs, and can do nothing else.
//!
//! ```text
//!   host daemon ──control (messages, descriptors)──► control thread ──orders──► worker thread ◄──channel──► mediator
//!                                                     │  link, compile           │  programs        info page ──►
//!                                                     ▼                          ▼                  ──► log page
//!                                                    zygote: verify            digests, tallies
//! ```
//!
//! Three parts of one process group, each with the system calls that it needs and no other ([`sandbox::seccomp`]):
//! the control thread obeys the host ([`p4shield_control`]), the worker thread judges ([`worker`]), and a zygote forks a child
//! for each verification. [`p4vm::run`] puts them together, after [`sandbox::enter`] took everything else away.
//!
//! What is promised: packets of one tenant are judged here and nobody else's are ever seen; a program that
//! misbehaves harms its tenant alone; programs are replaced between two batches, without losing a packet; programs of
//! one P4 VM do not share memory; the hot path makes no system call, takes no lock and allocates nothing.

mod desk;
pub mod inline;
pub mod p4vm;
mod program;
pub mod sandbox;
mod schedule;
mod session;
pub mod worker;
