//! The channel and its memory, with honest and hostile ends.

mod ends;
mod fuzzing;
mod handshake_page;
mod memory;
mod packets;
