//! Any bytes as a message to a P4 VM.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| { let _request: Result<p4shield_runtime::control::Frame<p4shield_runtime::control::Request>, _> = p4shield_runtime::control::decode(bytes); });
