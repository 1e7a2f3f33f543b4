//! The replaced functions of libc. Each checks [`crate::socket::SOCKETS`] for its descriptor, and calls
//! libc's function unless the descriptor is an AF_XDP socket's.
//!
//! A packet's way begins here: an application's call runs the pumps of [`crate::queue`].

mod descriptors;
mod polling;
mod setup;
mod transfer;
