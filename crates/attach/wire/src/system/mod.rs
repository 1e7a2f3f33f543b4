//! What we ask of the kernel outside the hot path: links, offload switches, BPF programs.

pub mod ethtool;
pub mod guard;
pub mod link;
pub mod xdp;
