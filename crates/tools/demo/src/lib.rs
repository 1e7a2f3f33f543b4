//! The demonstration: a P4 program in a P4 VM guards a live VM's TCP memory, and the cloud attacks it.
//!
//! Everything is real: namespaces for client, cloud host and user VM, a switch between them, the product's
//! own processes, sockets that fill the kernel's TCP memory. [`run`] executes the script, prints it second by
//! second, checks each claim by observation and writes an HTML report.

mod attack;
mod auditor;
mod claim;
mod report;
mod scene;
mod script;
mod timeline;
mod traffic;

pub use script::{DemoResult, Options, run};
