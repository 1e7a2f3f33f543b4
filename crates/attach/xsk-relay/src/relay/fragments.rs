//! Packets in several buffers (`XDP_PKT_CONTD`).

use p4shield_afxdp::ring::Descriptor;

use super::packet::{NO_FRAGMENT, RelayedPacket};
use super::verdicts::{JudgedPacket, VerdictSource};
use crate::frames::UmemGeometry;

/// Descriptor option `XDP_PKT_CONTD`: the packet continues in the next descriptor.
const CONTINUES: u32 = 1;

/// Returns whether a packet continues in the next descriptor.
pub(super) const fn continues(descriptor: &Descriptor) -> bool {
    descriptor.options & CONTINUES != 0
}

#[derive(Clone, Copy, Debug)]
struct Fragment {
    descriptor: Descriptor,
    frame: u32,
    next: u32,
}

/// The buffers of packets after the first one, in linked lists, and the packet whose last buffer is
/// still to come.
#[derive(Debug)]
pub(super) struct FragmentLists {
    nodes: Vec<Fragment>,
    free: u32,
    open: PartialPacket,
}

/// The rings that the buffers of a judged packet go to.
pub(super) trait PacketDestinations {
    /// Moves a buffer of a packet that passed to its destination ring.
    fn forward(&mut self, descriptor: Descriptor, frame: u32);

    /// Returns the frame of a dropped packet to the ring that supplied it.
    fn give_back(&mut self, frame: u32);

    /// Counts a packet of too many buffers.
    fn count_too_long(&self);
}

/// The packet whose last buffer is still to come.
#[derive(Debug)]
enum PartialPacket {
    /// No packet has begun.
    Nothing,
    /// `buffers` of the packet have come; `last` is the list node of the last one.
    Packet { packet: RelayedPacket, last: u32, buffers: u32 },
    /// The packet has too many buffers; its remaining ones are dropped.
    TooLong,
}

/// The result of adding a buffer to a packet.
#[derive(Debug)]
enum Assembly {
    /// The buffer was the last one.
    Whole(RelayedPacket),
    /// Further buffers are to come.
    Unfinished,
    /// The packet has as many buffers as the ring has entries, and more to come. Holds the buffers
    /// before this one, the first time.
    TooLong(Option<RelayedPacket>),
}

impl FragmentLists {
    /// Creates lists for `entries` buffers, the number of ring entries.
    pub(super) fn new(entries: u32) -> Self {
        let nothing = Descriptor::default();
        let nodes = (1..=entries).map(|next| Fragment { descriptor: nothing, frame: 0, next });
        let mut nodes: Vec<Fragment> = nodes.collect();
        if let Some(last) = nodes.last_mut() {
            last.next = NO_FRAGMENT;
        }
        Self { nodes, free: 0, open: PartialPacket::Nothing }
    }

    /// Adds a buffer from a ring. The last buffer of a packet submits the packet to `verdicts`.
    #[inline]
    pub(super) fn accept(
        &mut self,
        (descriptor, frame): (Descriptor, u32),
        geometry: &UmemGeometry,
        (verdicts, now): (&mut impl VerdictSource, u64),
        destinations: &mut impl PacketDestinations,
    ) {
        match self.add(geometry, descriptor, frame) {
            Assembly::Whole(packet) => {
                if let Some(judged) = verdicts.submit(now, packet) {
                    self.dispatch(judged, destinations);
                }
            }
            Assembly::Unfinished => {}
            Assembly::TooLong(before) => {
                destinations.count_too_long();
                destinations.give_back(frame);
                if let Some(packet) = before {
                    self.dispatch(JudgedPacket { pass: false, packet }, destinations);
                }
            }
        }
    }

    /// Moves each buffer of a judged packet to its ring, in order.
    #[inline]
    pub(super) fn dispatch(
        &mut self,
        JudgedPacket { packet, pass }: JudgedPacket,
        destinations: &mut impl PacketDestinations,
    ) {
        self.for_each_buffer(packet, |descriptor, frame| {
            if pass { destinations.forward(descriptor, frame) } else { destinations.give_back(frame) }
        });
    }

    #[inline]
    fn add(&mut self, geometry: &UmemGeometry, descriptor: Descriptor, frame: u32) -> Assembly {
        let more = continues(&descriptor);
        let entries = self.nodes.len() as u32;
        let (packet, last, buffers) = match std::mem::replace(&mut self.open, PartialPacket::Nothing) {
            PartialPacket::Nothing => (RelayedPacket::new(geometry, descriptor, frame), NO_FRAGMENT, 1),
            PartialPacket::TooLong => {
                if more {
                    self.open = PartialPacket::TooLong;
                }
                return Assembly::TooLong(None);
            }
            PartialPacket::Packet { mut packet, last, buffers } => {
                let fits = buffers + u32::from(more) < entries;
                let Some(at) = fits.then(|| self.allocate(descriptor, frame)).flatten() else {
                    if more {
                        self.open = PartialPacket::TooLong;
                    }
                    return Assembly::TooLong(Some(packet));
                };
                match self.nodes.get_mut(last as usize) {
                    Some(link) => link.next = at,
                    None => packet.next_fragment = at,
                }
                packet.total = packet.total.saturating_add(descriptor.len);
                (packet, at, buffers + 1)
            }
        };
        if more {
            self.open = PartialPacket::Packet { packet, last, buffers };
            return Assembly::Unfinished;
        }
        Assembly::Whole(packet)
    }

    /// Calls `each` for every buffer of a packet, in order, with the descriptor for its ring.
    #[inline]
    fn for_each_buffer(&mut self, packet: RelayedPacket, mut each: impl FnMut(Descriptor, u32)) {
        each(packet.descriptor, packet.frame);
        let mut at = packet.next_fragment;
        while let Some(link) = self.nodes.get_mut(at as usize) {
            each(link.descriptor, link.frame);
            let next = link.next;
            link.next = self.free;
            self.free = at;
            at = next;
        }
    }

    /// Drops all packets that `verdicts` holds, and the one whose last buffer is still to come, since their
    /// socket is closed.
    pub(super) fn drop_all(
        &mut self,
        verdicts: &mut impl VerdictSource,
        destinations: &mut impl PacketDestinations,
    ) {
        verdicts.drain(|judged| self.dispatch(JudgedPacket { pass: false, ..judged }, destinations));
        let open = std::mem::replace(&mut self.open, PartialPacket::Nothing);
        if let PartialPacket::Packet { packet, .. } = open {
            self.dispatch(JudgedPacket { pass: false, packet }, destinations);
        }
    }

    fn allocate(&mut self, descriptor: Descriptor, frame: u32) -> Option<u32> {
        let at = self.free;
        let link = self.nodes.get_mut(at as usize)?;
        self.free = link.next;
        *link = Fragment { descriptor, frame, next: NO_FRAGMENT };
        Some(at)
    }
}
