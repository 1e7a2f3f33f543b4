//! Any text as the host daemon's configuration.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _config = p4shield_config::Config::parse(std::path::Path::new("fuzz.toml"), text);
    }
});
