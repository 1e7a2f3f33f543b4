//! Any bytes as instructions: interpreter and JIT agree.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some(pair) = p4shield_bpf::fuzz::run_both(bytes) {
        assert_eq!(pair.interpreter, pair.jit);
    }
});
