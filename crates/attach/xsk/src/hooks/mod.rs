//! The functions of libc that are replaced. Each asks [`crate::table`] whether it is about an AF_XDP socket, and calls
//! libc's own function if not.

mod descriptors;
mod io;
mod setup;
mod waiting;
