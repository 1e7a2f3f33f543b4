//! What offloads leave undone in a frame.

pub mod checksum;
pub mod headers;

pub use checksum::complete;
pub use headers::Transport;
