//! Any bytes as a line on the agent's control socket.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| p4shield_agent::fuzz::control_line(bytes));
