//! The Simple Test Framework: packets in, packets expected.
//!
//! A script adds table entries, sends packets and says what has to leave. [`runner::run`] takes a program that was
//! compiled and verified and runs it on the real engine ([`device::Device`]): as machine code, in the interpreter, or
//! on both at once, which then have to agree. What differs is told by header and field ([`diff`]).

#![forbid(unsafe_code)]

pub mod conformance;
pub mod device;
pub mod diff;
pub mod dissect;
pub mod names;
pub mod parse;
pub mod pattern;
pub mod pcap;
pub mod runner;
pub mod script;
pub mod state;
