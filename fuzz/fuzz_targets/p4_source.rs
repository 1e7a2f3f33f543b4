//! Any text as a P4 program: compiled or refused.
#![no_main]

use p4shield_p4::{NoIncludes, Options, compile};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Err(refused) = compile("fuzz.p4", text, &NoIncludes, &Options::default())
    {
        let _text = refused.render(false);
    }
});
