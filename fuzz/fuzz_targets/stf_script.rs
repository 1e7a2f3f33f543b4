//! Test scripts, and the captures that take their place.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| p4shield_stf::fuzz(data));
