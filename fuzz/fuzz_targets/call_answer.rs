//! Any bytes as the value with a call's message, and as the answer of a compartment.
#![no_main]

use p4shield_abi::call::{RESULT, message, take_answer};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((at, bytes)) = bytes.split_first_chunk() else { return };
    let (value, answer) = bytes.split_at(usize::from(u16::from_le_bytes(*at)).min(bytes.len()));
    let mut changed = value.to_vec();
    if take_answer(&mut changed, answer) {
        let asked = message(value).expect("an answer has a message");
        assert_eq!(changed[..RESULT], asked[..RESULT], "function and length stay");
        assert_eq!(changed[RESULT..answer.len()], answer[RESULT..]);
        assert_eq!(changed[answer.len()..], value[answer.len()..], "kept values stay");
    } else {
        assert_eq!(changed, value);
    }
});
