//! Any bytes as a line between `p4shield switch` and a switch, and as a message between a switch in a
//! compartment and the process outside.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    p4shield_p4switch::api::fuzz(bytes);
    p4shield_p4switch::fuzz_line(bytes);
});
