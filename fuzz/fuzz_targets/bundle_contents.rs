//! Any contents that the pinned key has signed.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| p4shield_bundle::fuzz::signed_contents(bytes));
