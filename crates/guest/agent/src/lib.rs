//! The user VM's side: collectors, the publisher of in-VM information, and the auditor.
//!
//! | question | module |
//! |---|---|
//! | what a VM knows about itself | [`collect`] |
//! | how the P4 VM reads it: sealed snapshots on the info page | `publish`, [`page`] |
//! | keys by handshake, and their rotation | `handshake`; `publish` and `auditor::keys` change over |
//! | packets as the VM sees them | [`tap`] |
//! | packets against the execution log | `auditor` runs it, [`audit`] compares (`rekey` across a rotation) |
//! | the socket of `p4shield agent status` | [`control`] |
//!
//! Modules with `unsafe`: `page::memory` and `tap::ring`, which map memory that the host or the kernel
//! shares, and `tap::link`, which attaches the tap.

#![deny(unsafe_code)]

pub mod audit;
mod auditor;
pub mod collect;
pub mod config;
pub mod control;
mod error;
pub mod fuzz;
mod handshake;
mod interface;
pub mod page;
mod publish;
mod session_note;
pub mod tap;

pub use auditor::{AuditError, AuditStatus, Event, Summary, run_audit};
pub use config::{AgentConfig, AuditConfig};
pub use error::AgentError;
pub use handshake::HandshakeStatus;
pub use page::PageLocation;
pub use publish::run_agent;
pub use session_note::{SessionNote, SessionNoteError};
