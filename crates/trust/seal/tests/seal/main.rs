//! Sealed pages: digests, keys, rotation, the information page and the log page.

mod digest;
mod epoch;
mod info;
mod key;
mod log;
mod rotation;
mod session;
