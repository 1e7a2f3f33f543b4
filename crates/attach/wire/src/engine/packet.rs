//! A frame on its way across a wire.

use p4shield_afxdp::Frame;
use p4shield_mediator::{Packet, RewriteRefused};

use crate::config::WireSide;

/// The queue that a frame goes to if it passes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Destination {
    pub(super) slot: u32,
    /// Distinguishes the wire from an earlier one in the same slot.
    pub(super) generation: u32,
    pub(super) side: WireSide,
    pub(super) queue: u16,
}

/// A frame and its destination, as the mediator holds it.
#[derive(Debug)]
pub struct WirePacket<'p> {
    frame: Frame<'p>,
    to: Destination,
}

impl<'p> WirePacket<'p> {
    pub(super) const fn new(frame: Frame<'p>, to: Destination) -> Self {
        Self { frame, to }
    }

    pub(super) fn into_parts(self) -> (Frame<'p>, Destination) {
        (self.frame, self.to)
    }
}

impl Packet for WirePacket<'_> {
    fn bytes(&self) -> &[u8] {
        self.frame.bytes()
    }

    fn len(&self) -> usize {
        self.frame.len()
    }

    fn replace_head(
        &mut self,
        old_len: usize,
        new: &[u8],
        new_total_len: usize,
    ) -> Result<(), RewriteRefused> {
        replace_head(&mut self.frame, old_len, new, new_total_len)
    }
}

/// Replaces the first `old_len` bytes by `new` and keeps as many of the remaining bytes as make `total`
/// bytes.
fn replace_head(
    frame: &mut Frame<'_>,
    old_len: usize,
    new: &[u8],
    total: usize,
) -> Result<(), RewriteRefused> {
    let rest = total.checked_sub(new.len()).ok_or(RewriteRefused)?;
    if old_len.checked_add(rest).is_none_or(|end| end > frame.len()) {
        return Err(RewriteRefused);
    }
    let rest_at = frame.headroom() + old_len;
    // If there is headroom, `new` grows into it and no payload moves; otherwise the payload moves back.
    let start = rest_at.saturating_sub(new.len());
    if !frame.set_packet(start, total) {
        return Err(RewriteRefused);
    }
    let buffer = frame.buffer_mut();
    buffer.copy_within(rest_at..rest_at + rest, start + new.len());
    buffer[start..start + new.len()].copy_from_slice(new);
    Ok(())
}

#[cfg(test)]
mod tests {
    use p4shield_afxdp::{FramePool, Umem, UmemConfig};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn head_replacement_equals_a_vectors(
            start in 0..600usize,
            packet in prop::collection::vec(any::<u8>(), 1..1400),
            new in prop::collection::vec(any::<u8>(), 0..900),
            old in 0..1400usize,
            cut in 0..1400usize,
        ) {
            let umem = Umem::new(UmemConfig { frames: 64, frame_size: 2048, huge_pages: false }).unwrap();
            let pool = FramePool::new(umem);
            let mut frame = pool.take().unwrap();
            prop_assert!(frame.set_packet(start, packet.len()));
            frame.bytes_mut().copy_from_slice(&packet);
            let old = old.min(packet.len());
            let rest = (packet.len() - old).saturating_sub(cut);
            let expected = [&new[..], &packet[old..old + rest]].concat();
            match replace_head(&mut frame, old, &new, expected.len()) {
                Ok(()) => prop_assert_eq!(frame.bytes(), &expected[..]),
                Err(RewriteRefused) => {
                    prop_assert!(expected.len() + start.saturating_sub(256) > 2048 || expected.len() > 2048);
                    prop_assert_eq!(frame.bytes(), &packet[..], "refused, but changed");
                }
            }
        }
    }

    #[test]
    fn totals_that_do_not_fit_are_refused() {
        let umem = Umem::new(UmemConfig { frames: 64, frame_size: 2048, huge_pages: false }).unwrap();
        let pool = FramePool::new(umem);
        let mut frame = pool.take().unwrap();
        assert!(frame.set_packet(256, 100));
        for (old, new, total) in [(0, 10, 9), (50, 10, 61), (101, 0, 0), (usize::MAX, 0, 1)] {
            assert!(replace_head(&mut frame, old, &vec![0; new], total).is_err(), "{old} {new} {total}");
        }
    }
}
