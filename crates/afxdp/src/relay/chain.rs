//! Packets in several buffers.

use crate::frames::Shape;
use crate::relay::Parcel;
use crate::ring::Descriptor;

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
    /// The unfinished packet, and its last link.
    open: Option<(Parcel, u32)>,
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
        Self { links, free: 0, open: None }
    }

    /// Adds a buffer. Returns the packet if that was its last one, or the buffer itself if there is no room for it.
    pub(super) fn add(
        &mut self,
        shape: &Shape,
        descriptor: Descriptor,
        cell: u32,
    ) -> Result<Option<Parcel>, Descriptor> {
        match self.open.take() {
            None => {
                let parcel = Parcel::new(shape, descriptor, cell);
                if continues(&descriptor) {
                    self.open = Some((parcel, END));
                    return Ok(None);
                }
                Ok(Some(parcel))
            }
            Some((mut parcel, last)) => {
                let Some(at) = self.take(descriptor, cell) else {
                    self.open = Some((parcel, last));
                    return Err(descriptor);
                };
                match self.links.get_mut(last as usize) {
                    Some(link) => link.next = at,
                    None => parcel.rest = at,
                }
                parcel.total = parcel.total.saturating_add(descriptor.len);
                if continues(&descriptor) {
                    self.open = Some((parcel, at));
                    return Ok(None);
                }
                Ok(Some(parcel))
            }
        }
    }

    /// Gives each buffer of a packet to `each`, in order, as it is to be put into a ring.
    pub(super) fn unfold(&mut self, parcel: Parcel, mut each: impl FnMut(Descriptor, u32)) {
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
        self.open.take().map(|(parcel, _)| parcel)
    }

    fn take(&mut self, descriptor: Descriptor, cell: u32) -> Option<u32> {
        let at = self.free;
        let link = self.links.get_mut(at as usize)?;
        self.free = link.next;
        *link = Link { descriptor, cell, next: END };
        Some(at)
    }
}
