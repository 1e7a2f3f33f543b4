//! Any bytes as what Open vSwitch's database sends.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| p4shield_ovsdb::fuzz::server_output(bytes));
