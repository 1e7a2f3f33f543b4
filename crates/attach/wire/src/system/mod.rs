//! The kernel interfaces outside the hot path: network interfaces, offload switches, BPF programs.

pub mod guard;
pub mod interfaces;
pub mod xdp;
