//! The demonstration: a P4 program in a P4 VM guards a live VM's TCP memory, and the cloud attacks it.
//!
//! Everything is real: the product's own processes, a switch, sockets that fill the kernel's TCP memory. In
//! [`run`], client, cloud host and user VM are network namespaces, joined by a switch and a wire. In
//! [`guests::run`], client and user VM are virtual machines at vhost-user ports of Open vSwitch over DPDK.
//! Both execute a script, print it second by second, check each claim by observation and write an HTML
//! report.

mod attack;
mod audit_output;
mod auditor;
mod claim;
pub mod guests;
mod options;
mod report;
mod scene;
mod script;
mod timeline;
mod traffic;

pub use options::{DemoResult, Options};
pub use script::run;
