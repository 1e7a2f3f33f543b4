//! Commands that need no switch.

#[path = "../common/mod.rs"]
mod common;

mod attach;
mod bundle;
mod cli;
mod docs;
mod functions;
mod handshake;
mod input;
mod keys;
mod libvirt;
mod logs;
mod measure;
mod mininet;
mod policy;
mod program_state;
mod switch;
mod user_vm;
mod wrong;
