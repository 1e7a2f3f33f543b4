//! Frames on the lines to a P4 VM and to a P4 switch in a virtual machine, in both directions.
#![no_main]

use p4shield_line::switch::{FromSwitch, MAX_FROM_SWITCH, MAX_TO_SWITCH, ToSwitch};
use p4shield_line::{CarriedRequest, FrameReader, FromGuest, MAX_FROM_GUEST, MAX_TO_GUEST};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut reader = FrameReader::new(MAX_FROM_GUEST);
    reader.extend(bytes);
    while let Ok(Some(_)) = reader.take::<FromGuest>() {}
    let mut reader = FrameReader::new(MAX_TO_GUEST);
    reader.extend(bytes);
    while let Ok(Some(_)) = reader.take::<CarriedRequest>() {}
    let mut reader = FrameReader::new(MAX_FROM_SWITCH);
    reader.extend(bytes);
    while let Ok(Some(_)) = reader.take::<FromSwitch>() {}
    let mut reader = FrameReader::new(MAX_TO_SWITCH);
    reader.extend(bytes);
    while let Ok(Some(_)) = reader.take::<ToSwitch>() {}
});
