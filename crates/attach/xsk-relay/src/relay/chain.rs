//! Packets in several buffers.

use super::{Judge, Judged, Parcel};
use crate::frames::Shape;
use p4shield_afxdp::ring::Descriptor;

/// No further buffer.
pub(super) const END: u32 = u32::MAX;

/// Flag of a descriptor: the packet goes on in the next one (`XDP_PKT_CONTD`).
const CONTINUES: u32 = 1;

/// Whether a packet goes on in the next descriptor.
pub(super) const fn continues(descriptor: &Descriptor) -> bool {
    descriptor.options & CONTINUES != 0
}

#[derive(Clone, Copy, Debug)]
struct Link {
    descriptor: Descriptor,
    cell: u32,
    next: u32,
}

/// The buffers of packets behind the first, in lists; and the packet whose buffers are not all there yet.
#[derive(Debug)]
pub(super) struct Chains {
    links: Vec<Link>,
    free: u32,
    open: Open,
}

/// Where the buffers of packets go that are judged.
pub(super) trait Ways {
    /// On, to whom the packet is for.
    fn on(&mut self, descriptor: Descriptor, cell: u32);

    /// Back, to where the packet came from.
    fn back(&mut self, cell: u32);

    /// Somebody made a packet of too many buffers.
    fn too_long(&self);
}

/// The packet whose last buffer has not come yet.
#[derive(Debug)]
enum Open {
    /// There is none.
    Nothing,
    /// So many buffers of it have come, the last in this link.
    Packet { parcel: Parcel, last: u32, buffers: u32 },
    /// It has too many.
    TooLong,
}

/// What a packet came to with one buffer more.
#[derive(Debug)]
enum Added {
    /// This was its last.
    Whole(Parcel),
    /// There are more to come.
    Unfinished,
    /// The buffer is of a packet with as many as the ring has entries, and more to come: it can never be whole where its
    /// judge is. Here is what had come before, the first time.
    TooLong(Option<Parcel>),
}

impl Chains {
    /// Room for as many buffers as the ring has entries; a judge holds no more of them.
    pub(super) fn new(entries: u32) -> Self {
        let nothing = Descriptor::default();
        let links = (1..=entries).map(|next| Link { descriptor: nothing, cell: 0, next });
        let mut links: Vec<Link> = links.collect();
        if let Some(last) = links.last_mut() {
            last.next = END;
        }
        Self { links, free: 0, open: Open::Nothing }
    }

    /// Takes a buffer from a ring. With its last the packet goes to the judge, and whatever comes of that goes its way.
    #[inline]
    pub(super) fn take(
        &mut self,
        (descriptor, cell): (Descriptor, u32),
        shape: &Shape,
        (judge, now): (&mut impl Judge, u64),
        ways: &mut impl Ways,
    ) {
        match self.add(shape, descriptor, cell) {
            Added::Whole(parcel) => {
                if let Some(judged) = judge.submit(now, parcel) {
                    self.go(judged, ways);
                }
            }
            Added::Unfinished => {}
            Added::TooLong(before) => {
                ways.too_long();
                ways.back(cell);
                if let Some(parcel) = before {
                    self.go(Judged { pass: false, parcel }, ways);
                }
            }
        }
    }

    /// Has each buffer of a packet go its way, in order.
    #[inline]
    pub(super) fn go(&mut self, Judged { parcel, pass }: Judged, ways: &mut impl Ways) {
        self.unfold(
            parcel,
            |descriptor, cell| if pass { ways.on(descriptor, cell) } else { ways.back(cell) },
        );
    }

    #[inline]
    fn add(&mut self, shape: &Shape, descriptor: Descriptor, cell: u32) -> Added {
        let more = continues(&descriptor);
        let entries = self.links.len() as u32;
        let (parcel, last, buffers) = match std::mem::replace(&mut self.open, Open::Nothing) {
            Open::Nothing => (Parcel::new(shape, descriptor, cell), END, 1),
            Open::TooLong => {
                if more {
                    self.open = Open::TooLong;
                }
                return Added::TooLong(None);
            }
            Open::Packet { mut parcel, last, buffers } => {
                let fits = buffers + u32::from(more) < entries;
                let Some(at) = fits.then(|| self.link(descriptor, cell)).flatten() else {
                    if more {
                        self.open = Open::TooLong;
                    }
                    return Added::TooLong(Some(parcel));
                };
                match self.links.get_mut(last as usize) {
                    Some(link) => link.next = at,
                    None => parcel.rest = at,
                }
                parcel.total = parcel.total.saturating_add(descriptor.len);
                (parcel, at, buffers + 1)
            }
        };
        if more {
            self.open = Open::Packet { parcel, last, buffers };
            return Added::Unfinished;
        }
        Added::Whole(parcel)
    }

    /// Gives each buffer of a packet to `each`, in order, as it is to be put into a ring.
    #[inline]
    fn unfold(&mut self, parcel: Parcel, mut each: impl FnMut(Descriptor, u32)) {
        each(parcel.descriptor, parcel.cell);
        let mut at = parcel.rest;
        while let Some(link) = self.links.get_mut(at as usize) {
            each(link.descriptor, link.cell);
            let next = link.next;
            link.next = self.free;
            self.free = at;
            at = next;
        }
    }

    /// The packet whose last buffer has not come, and will not.
    pub(super) fn unfinished(&mut self) -> Option<Parcel> {
        match std::mem::replace(&mut self.open, Open::Nothing) {
            Open::Packet { parcel, .. } => Some(parcel),
            Open::Nothing | Open::TooLong => None,
        }
    }

    fn link(&mut self, descriptor: Descriptor, cell: u32) -> Option<u32> {
        let at = self.free;
        let link = self.links.get_mut(at as usize)?;
        self.free = link.next;
        *link = Link { descriptor, cell, next: END };
        Some(at)
    }
}
