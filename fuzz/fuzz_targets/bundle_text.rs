//! Any text as a manifest, and as a public key's file.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| p4shield_bundle::fuzz::text(bytes));
