//! Any bytes as a packet for a tunnel that the switch ends.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| p4shield_attach::tunnel::fuzz_bytes(bytes));
