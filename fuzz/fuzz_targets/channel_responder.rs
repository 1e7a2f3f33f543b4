//! A hostile mediator, as a script.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| p4shield_channel::fuzz::responder(bytes));
