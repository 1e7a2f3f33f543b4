//! The Simple Test Framework (STF): tests P4 programs with scripts of sent and expected packets.
//!
//! A script adds table entries, sends packets and states which packets have to leave. [`runner::run`]
//! runs it against a compiled and verified program on the real engine ([`device::Device`]): as machine
//! code, in the interpreter, or on both, which then have to agree. `p4shield_entries` has the multicast
//! groups. [`diff`] reports differences by header and field.

#![forbid(unsafe_code)]

pub mod census;
mod compartment;
pub mod conformance;
pub mod device;
pub mod diff;
pub mod dissect;
pub mod error;
pub mod externs;
pub mod members;
pub mod parse;
pub mod pattern;
pub mod pcap;
mod resolve;
pub mod runner;
pub mod script;
pub mod state;

/// For fuzzers: parses any bytes as a script and as a capture, and checks the result.
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
