//! Any text as a file of table entries, in each format.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| p4shield_entries::fuzz(text));
