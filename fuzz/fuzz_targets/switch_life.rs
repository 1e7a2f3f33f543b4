//! Any bytes as the life of a P4 switch: packets, writes, ports, programs, compartments, recordings and time.
#![no_main]

use p4shield_p4::{NoIncludes, Options, Placement, compile};
use p4shield_switch::fuzz::{Programs, life};
use std::sync::LazyLock;

static PROGRAMS: LazyLock<Programs> = LazyLock::new(|| {
    Programs::new(|text, trace| {
        let options = Options { trace, placement: Placement::Extern, ..Options::default() };
        compile("life.p4", text, &NoIncludes, &options).expect("it compiles").object
    })
});

libfuzzer_sys::fuzz_target!(
    // With the sanitizer, the verifier takes a minute, which is not the first input's.
    init: {
        LazyLock::force(&PROGRAMS);
    },
    |bytes: &[u8]| life(&PROGRAMS, bytes)
);
