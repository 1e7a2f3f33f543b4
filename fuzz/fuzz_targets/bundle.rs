//! Any bytes as a signed bundle.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| p4shield_bundle::fuzz::bundle(bytes));
