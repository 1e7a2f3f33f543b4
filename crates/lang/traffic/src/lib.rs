//! The traffic manager of a P4 switch, between the two parts of a divided program and behind the second
//! ([`p4shield_abi::division`]).
//!
//! ```text
//!   run ──requests, block──► Traffic::follow ──► runs from entries ──► Outcome::end
//! ```
//!
//! A caller runs the program for a packet that arrived. Only if that run asks for something, it calls
//! [`Traffic::follow`], which runs the program for every copy and tells an [`Outcome`] what becomes of each.
//! One packet causes at most [`MAX_RUNS`] runs: a program that resubmits or recirculates a packet for ever
//! loses it. Nothing here allocates after [`Traffic::new`], except [`Groups`] and [`Sessions`] when they are
//! set.
//!
//! | module | contents |
//! |---|---|
//! | `groups` | multicast groups |
//! | `sessions` | clone sessions |
//! | `job` | packets that wait for a run |
//! | `follow` | what follows a run |

#![forbid(unsafe_code)]

mod follow;
mod groups;
mod job;
mod sessions;
#[cfg(test)]
mod tests;

pub use follow::{Event, Loss, MAX_RUNS, Outcome, Ready, Run, Traffic};
pub use groups::{Copy, GroupError, Groups, MAX_COPIES};
pub use sessions::{MAX_SESSION, Session, SessionError, Sessions};
