//! Any bytes as an Ethernet frame with offloads to complete.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| p4shield_xdp::fuzz_frame(bytes));
