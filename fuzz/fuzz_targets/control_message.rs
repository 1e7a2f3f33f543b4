//! Any bytes as what host and P4 VM say to each other, in either direction.
#![no_main]

use p4shield_text::{printable, printable_lines};
use p4shield_control::{Envelope, Reply, Request, decode};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _request: Result<Envelope<Request>, _> = decode(bytes);
    if let Ok(Envelope { body: Reply::Failed(text) | Reply::Refused(text), .. }) = decode(bytes) {
        assert_eq!(printable(&text).lines().count(), usize::from(!text.is_empty()));
        assert!(printable_lines(&text).lines().skip(1).all(|line| line.starts_with("    | ")));
    }
});
