//! Any bytes as the schema of a program, and entries for its tables.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| p4shield_tables::fuzz(bytes));
