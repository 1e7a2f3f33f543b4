//! Any bytes as an info page: read and opened.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| p4shield_agent::fuzz::info_page(bytes));
