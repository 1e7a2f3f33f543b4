//! Any bytes as what a verifier's process and its owner say to each other.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| p4shield_bpf::fuzz::verifier_message(bytes));
