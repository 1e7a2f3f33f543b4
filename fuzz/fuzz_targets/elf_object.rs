//! Any bytes as an ELF object: loaded and linked or refused.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| { let _linked = p4shield_bpf::fuzz::load_and_link(bytes); });
