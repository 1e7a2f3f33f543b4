//! Any bytes as a line between `p4shield` and the host daemon.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| p4shield_daemon::api::fuzz(bytes));
