//! A peer of a handshake that has keys, and says anything under them.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| p4shield_handshake::fuzz::peer(bytes));
