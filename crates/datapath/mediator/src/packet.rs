//! What the mediator asks of a packet, and what becomes of it.

/// A packet that an attachment owns: a handle to a UMEM frame, an mbuf, a vector in a test.
///
/// The mediator moves handles around and never copies a packet. Dropping a handle is never its way of freeing one:
/// each comes back out of `submit` or `poll`.
pub trait Packet {
    /// The front of the packet from the Ethernet header on, contiguous. Shorter than the packet if its memory is in
    /// pieces or its tail is elsewhere; then no more than this is handed to the P4 VM.
    fn bytes(&self) -> &[u8];

    /// Bytes of the whole packet.
    fn len(&self) -> usize;

    /// Whether it has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Replaces the first `old_len` bytes by `new`, and cuts the packet to `new_total_len` bytes.
    ///
    /// `old_len` is at most `self.bytes().len()`, and `new_total_len` lies between `new.len()` and
    /// `self.len() - old_len + new.len()`. Growing takes head room, or moves the rest.
    ///
    /// # Errors
    /// If there is no room or the packet's memory cannot be changed; the packet is dropped then, whatever it holds.
    fn replace_head(
        &mut self,
        old_len: usize,
        new: &[u8],
        new_total_len: usize,
    ) -> Result<(), RewriteRefused>;
}

/// A packet in a vector, for who has no packet memory. A rewrite may allocate.
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

/// A packet that the mediator is done with.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the packet is to be passed on or freed"]
pub struct ReleasedPacket<P> {
    /// The packet, as rewritten.
    pub packet: P,
    /// What to do with it.
    pub disposition: Disposition,
}

/// What the attachment has to do with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// Send it on.
    Pass,
    /// Free it.
    Drop(Reason),
}

/// Why a packet was dropped, or let through unjudged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Reason {
    /// The program said so.
    Program,
    /// No verdict by the tenant's deadline.
    Deadline,
    /// The channel has no slot, or the tenant holds its most packets.
    Full,
    /// The P4 VM broke the protocol, stalled or went away while it had the packet, and was not replaced yet.
    Fault,
    /// No P4 VM is attached.
    NoChannel,
    /// The source address is not one that may come from this port.
    Spoofed,
    /// A rewrite would have made it a packet that another tenant's program should have judged.
    Strayed,
    /// A rewrite that leaves no Ethernet frame, or that the packet's memory has no room for.
    Rewrite,
    /// No tenant's packet, on a port that drops those.
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

    /// The word for it in metrics and messages.
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
