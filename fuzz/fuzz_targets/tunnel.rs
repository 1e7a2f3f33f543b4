//! Any bytes as a packet for a tunnel that the switch ends, and a change of the frame inside.
#![no_main]

use p4shield_frame::tunnel::{Datagram, Encapsulation, InnerChange, MAX_OUTER, Outer};
use p4shield_frame::{Sum, ethernet};

const ETHERNET: usize = ethernet::HEADER_LEN;

libfuzzer_sys::fuzz_target!(|frame: &[u8]| {
    let Some(datagram) = Datagram::find(frame) else { return };
    for encapsulation in [Encapsulation::Vxlan, Encapsulation::Geneve] {
        let inner = datagram.inner(frame, encapsulation).filter(|_| !datagram.is_ambiguous);
        let Some(at) = inner else { continue };
        assert!(at <= MAX_OUTER && at + ETHERNET <= frame.len());
        let inner = &frame[at..];
        let (old_head, new_head) = (&inner[..ETHERNET], &frame[..ETHERNET + 1]);
        let (old_len, new_len) = (inner.len(), inner.len() + 1);
        let change = InnerChange { old_head, new_head, old_len, new_len, cut: Sum::default() };
        let _ = Outer::new(frame, at).and_then(|mut outer| outer.update(&change));
    }
});
