//! What libraries in switches and the daemon say to each other.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    use p4shield_attach::message::{decode_order, decode_report};
    let _ = decode_report(bytes, 0);
    for descriptors in 0..3 {
        let _ = decode_order(bytes, descriptors);
    }
    if let Ok(setup) = p4shield_attach::Setup::decode(bytes) {
        let _ = setup.mediator();
    }
});
