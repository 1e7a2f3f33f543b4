//! A hostile host between two parties of a handshake, as a script.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| p4shield_handshake::fuzz::host(bytes));
