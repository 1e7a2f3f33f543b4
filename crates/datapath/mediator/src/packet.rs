//! What the mediator needs of a packet, and what it returns to the attachment.

/// A packet that an attachment owns: a handle to a UMEM frame, an mbuf, a vector in a test.
///
/// The mediator moves handles and never copies a packet. It never frees a packet by dropping its
/// handle: each handle comes back out of `submit` or `poll`.
pub trait Packet {
    /// Returns the front of the packet from the Ethernet header on, contiguous. The slice is shorter
    /// than the packet if the packet's memory is segmented; the P4 VM then receives at most this
    /// slice.
    fn bytes(&self) -> &[u8];

    /// Returns the length of the whole packet in bytes.
    fn len(&self) -> usize;

    /// Whether it has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Replaces the first `old_len` bytes by `new`, and cuts the packet to `new_total_len` bytes.
    ///
    /// `old_len` is at most `self.bytes().len()`, and `new_total_len` lies between `new.len()` and
    /// `self.len() - old_len + new.len()`. To grow, an implementation uses headroom or moves the
    /// rest of the packet.
    ///
    /// # Errors
    /// If the packet has no room or its memory is read-only. The mediator then drops the packet,
    /// whatever it contains.
    fn replace_head(
        &mut self,
        old_len: usize,
        new: &[u8],
        new_total_len: usize,
    ) -> Result<(), RewriteRefused>;
}

/// A packet in a vector, for callers without packet memory. A rewrite may allocate.
impl Packet for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }

    fn len(&self) -> usize {
        self.as_slice().len()
    }

    fn replace_head(
        &mut self,
        old_len: usize,
        new: &[u8],
        new_total_len: usize,
    ) -> Result<(), RewriteRefused> {
        let rest = self.as_slice().len().checked_sub(old_len).ok_or(RewriteRefused)?;
        if new_total_len < new.len() || new_total_len - new.len() > rest {
            return Err(RewriteRefused);
        }
        self.splice(..old_len, new.iter().copied());
        self.truncate(new_total_len);
        Ok(())
    }
}

/// The packet's memory has no room for a rewrite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the packet has no room for the rewritten header")]
pub struct RewriteRefused;

/// A packet that the mediator returns to the attachment.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the attachment has to forward or free the packet"]
pub struct ReleasedPacket<P> {
    /// The packet, with its rewrite applied.
    pub packet: P,
    /// What the attachment has to do with it.
    pub disposition: Disposition,
}

/// What the attachment has to do with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// Forward it.
    Pass,
    /// Free it.
    Drop(Reason),
}

/// Reason why a packet was dropped, or let through without a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Reason {
    /// The program returned the verdict.
    Program,
    /// The P4 VM gave no verdict by the tenant's deadline.
    Deadline,
    /// The channel has no free slot, or the tenant holds `max_held` packets.
    Full,
    /// The P4 VM broke the protocol, stalled or exited, and was not replaced yet.
    Fault,
    /// No P4 VM is attached.
    NoChannel,
    /// The source address is not allowed on this port.
    Spoofed,
    /// The rewrite would turn it into a packet that another program has to judge, or that the switch
    /// would forward or learn from in another way.
    Strayed,
    /// The rewrite leaves no Ethernet frame, or does not fit into the packet's memory.
    Rewrite,
    /// An unowned packet on a port that drops those.
    Unowned,
}

impl Reason {
    /// Every reason, in the order of their numbers.
    pub const ALL: [Self; 9] = [
        Self::Program,
        Self::Deadline,
        Self::Full,
        Self::Fault,
        Self::NoChannel,
        Self::Spoofed,
        Self::Strayed,
        Self::Rewrite,
        Self::Unowned,
    ];

    /// Returns its name in metrics and messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Program => "program",
            Self::Deadline => "deadline",
            Self::Full => "full",
            Self::Fault => "fault",
            Self::NoChannel => "no_channel",
            Self::Spoofed => "spoofed",
            Self::Strayed => "strayed",
            Self::Rewrite => "rewrite",
            Self::Unowned => "others",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_is_rewritten_and_cut_and_never_padded() {
        let rewritten = |new_total_len| {
            let mut packet = vec![1, 2, 3, 4, 5];
            packet.replace_head(2, &[8, 9, 10], new_total_len).map(|()| packet)
        };
        assert_eq!(rewritten(6), Ok(vec![8, 9, 10, 3, 4, 5]));
        assert_eq!(rewritten(5), Ok(vec![8, 9, 10, 3, 4]));
        assert_eq!(rewritten(3), Ok(vec![8, 9, 10]));
        assert_eq!(rewritten(7), Err(RewriteRefused));
        assert_eq!(rewritten(2), Err(RewriteRefused));
    }
}
