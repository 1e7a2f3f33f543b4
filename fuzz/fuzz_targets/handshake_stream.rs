//! Any bytes as a stream of messages between a workstation and a P4 VM.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| p4shield_handshake::fuzz::stream(bytes));
