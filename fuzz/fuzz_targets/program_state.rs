//! Any bytes as what a P4 VM says of its program and sends of the program's maps.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| p4shield_daemon::fuzz_program_state(bytes));
