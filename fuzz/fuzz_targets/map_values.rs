//! Any text as entries of a program's maps.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| p4shield_bpf::maps::fuzz_fill(text));
