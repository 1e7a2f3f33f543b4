//! The Simple Test Framework: packets in, packets expected.
//!
//! A script adds table entries, sends packets and says what has to leave. [`runner::run`] takes a program that was
//! compiled and verified and runs it on the real engine ([`device::Device`]): as machine code, in the interpreter, or
//! on both at once, which then have to agree. What differs is told by header and field ([`diff`]).

#![forbid(unsafe_code)]

pub mod census;
pub mod conformance;
pub mod device;
pub mod diff;
pub mod dissect;
pub mod externs;
pub mod members;
pub mod names;
pub mod parse;
pub mod pattern;
pub mod pcap;
pub mod replication;
pub mod runner;
pub mod script;
pub mod state;

/// For fuzzing: whatever the bytes, reading them as a script or as a capture ends, and what was read makes sense.
pub fn fuzz(data: &[u8]) {
    if let Ok(script) = parse::parse(&String::from_utf8_lossy(data)) {
        assert!(script.iter().all(|s| s.line > 0));
    }
    if let Ok(packets) = pcap::read(data) {
        assert!(packets.iter().all(|p| p.length as usize >= p.bytes.len()));
        for p in &packets {
            let fields = dissect::dissect(&p.bytes);
            assert!(fields.iter().all(|f| f.bytes().end <= p.bytes.len()));
        }
    }
}
