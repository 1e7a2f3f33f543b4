//! Any bytes as files of /proc.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| p4shield_agent::fuzz::proc_files(bytes));
