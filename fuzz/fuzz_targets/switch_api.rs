//! Any bytes as a line between `p4shield switch` and a switch.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| p4shield_p4switch::api::fuzz(bytes));
