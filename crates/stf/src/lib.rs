//! The Simple Test Framework: packets in, packets expected.
//!
//! A script adds table entries, sends packets and says what has to leave. [`run`](runner::run) compiles nothing by
//! itself: it takes a program that was compiled, has it verified, and runs it on the real engine: as machine code, in
//! the interpreter, or on both at once, which then have to agree.

#![forbid(unsafe_code)]

pub mod parse;
pub mod pattern;
pub mod pcap;
pub mod script;
