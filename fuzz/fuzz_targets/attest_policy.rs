//! An attestation policy.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| p4shield_attest::fuzz::policy_file(bytes));
