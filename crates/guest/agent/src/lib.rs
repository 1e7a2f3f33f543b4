//! The user VM's side: collectors, the publisher of in-VM information, and the auditor.
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
