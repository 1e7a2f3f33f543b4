//! Any bytes as a packet whose tenant is looked for.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _kind = p4shield_mediator::classify(bytes, bytes.len());
});
