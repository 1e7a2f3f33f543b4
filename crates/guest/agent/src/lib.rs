//! The user VM's side: collectors, the info publisher, the auditor.

#![deny(unsafe_code)]

pub mod audit;
mod auditor;
pub mod collect;
pub mod config;
pub mod control;
pub mod fuzz;
mod interface;
pub mod page;
mod publish;
pub mod tap;

pub use auditor::{AuditError, Event, Standings, Summary, run_audit};
pub use config::{AgentConfig, AuditConfig};
pub use page::PagePlace;
pub use publish::{AgentError, run_agent};
