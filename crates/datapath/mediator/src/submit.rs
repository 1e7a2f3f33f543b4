//! Submission: a packet comes in from the switch.
//!
//! [`crate::admission`] decides which program judges it. Packets that a program judges enter a queue
//! ([`crate::enqueue`]); all others come out again at once.

use crate::admission::{Admission, AdmissionCache, Route};
use crate::config::{AllowedSources, PortSpec, UnownedPolicy};
use crate::counters::CounterBatch;
use crate::flight::{Flight, Owner};
use crate::mediator::Mediator;
use crate::packet::{Disposition, Packet, Reason, ReleasedPacket};
use p4shield_abi::Direction;

/// Most tenants whose answers are prefetched: with more, the first ones leave the cache before they are read.
const MAX_PREFETCHED: usize = 4;

impl<P: Packet> Mediator<P> {
    /// Submits a packet that came in at `port`. At most one packet comes out at once: this one, if it
    /// is decided, or an older one that makes room for it; all others come out of [`Self::poll`].
    ///
    /// Requests are published to the P4 VMs in batches of 32, the rest by the next [`Self::poll`] or
    /// [`Self::flush`].
    #[inline]
    pub fn submit(&mut self, now: u64, port: &PortSpec, packet: P) -> Option<ReleasedPacket<P>> {
        let mut counts = CounterBatch::default();
        let index = self.port_index(port);
        let released = self.submit_one(now, index, packet, &mut AdmissionCache::new(port), &mut counts);
        counts.store(&self.counters);
        released
    }

    /// Submits packets that came in at `port`, in their order, and publishes their requests. Packets
    /// that come out at once, as from [`Self::submit`], go to `sink`; all others come out of
    /// [`Self::poll`].
    ///
    /// The front of each packet is read here. An attachment whose packets are not in the cache should
    /// prefetch them when it assembles the burst.
    pub fn submit_burst(
        &mut self,
        now: u64,
        port: &PortSpec,
        packets: impl IntoIterator<Item = P>,
        mut sink: impl FnMut(ReleasedPacket<P>),
    ) {
        self.prefetch();
        let (mut cache, mut counts) = (AdmissionCache::new(port), CounterBatch::default());
        let index = self.port_index(port);
        let mut packets = packets.into_iter();
        let mut next = packets.next();
        while let Some(packet) = next {
            let Admission { route, vm, next: after } =
                cache.admit(&self.lookup, &self.counters, (packet.bytes(), packet.len()));
            let released = match route {
                Route::Judge(direction) => {
                    let flight = Flight::new(now, index, vm, after);
                    let same = |p: &P| cache.is_same(p.bytes());
                    let flow = (packet, &mut packets);
                    match self.enqueue_flow(now, direction, flight, flow, same, &mut counts) {
                        Ok(following) => {
                            next = following;
                            continue;
                        }
                        Err(packet) => self.enqueue_outlined(now, direction, flight, packet, &mut counts),
                    }
                }
                Route::Unowned => Some(self.release_unowned(now, (port, after), packet, &mut counts)),
                Route::Skipped => Some(self.release_skipped(now, after, packet, &mut counts)),
                Route::Spoofed => Some(self.drop_spoofed(port, packet)),
                Route::Ambiguous => Some(self.drop_ambiguous(packet)),
            };
            if let Some(released) = released {
                sink(released);
            }
            next = packets.next();
        }
        counts.store(&self.counters);
        self.flush(now);
    }

    #[inline]
    fn submit_one(
        &mut self,
        now: u64,
        port: u32,
        packet: P,
        cache: &mut AdmissionCache<'_>,
        counts: &mut CounterBatch,
    ) -> Option<ReleasedPacket<P>> {
        let front = (packet.bytes(), packet.len());
        let Admission { route, vm, next } = cache.admit(&self.lookup, &self.counters, front);
        match route {
            Route::Judge(direction) => {
                let flight = Flight::new(now, port, vm, next);
                self.enqueue(now, direction, flight, packet, counts)
            }
            Route::Unowned => Some(self.release_unowned(now, (cache.port(), next), packet, counts)),
            Route::Skipped => Some(self.release_skipped(now, next, packet, counts)),
            Route::Spoofed => Some(self.drop_spoofed(cache.port(), packet)),
            Route::Ambiguous => Some(self.drop_ambiguous(packet)),
        }
    }

    /// Prefetches the cache lines that the next [`Self::poll`] reads from the P4 VMs' cores.
    #[inline]
    fn prefetch(&self) {
        for t in self.active.iter().take(MAX_PREFETCHED) {
            if let Some(channel) = self.tenants[usize::from(*t)].channel() {
                channel.requester.prefetch();
            }
        }
    }

    #[inline]
    fn port_index(&mut self, port: &PortSpec) -> u32 {
        let tenants = &self.tenants;
        self.ports.index(port, |n| tenants.iter().any(|tenant| tenant.references_port(n)))
    }

    /// Wakes the P4 VM of a VM whose deferred ingress is about to judge a packet: waking it takes
    /// longer than the switch takes to forward the packet.
    #[inline]
    fn wake_early(&mut self, now: u64, vm: Owner) {
        if vm != Owner::NONE {
            let t = vm.tenant();
            self.tenants[t].wake_early(now, &self.counters.tenants[t]);
        }
    }

    #[inline]
    fn release_unowned(
        &mut self,
        now: u64,
        (port, next): (&PortSpec, Owner),
        packet: P,
        counts: &mut CounterBatch,
    ) -> ReleasedPacket<P> {
        let disposition = match port.unowned {
            UnownedPolicy::Pass => {
                self.wake_early(now, next);
                counts.unowned_passed();
                Disposition::Pass
            }
            UnownedPolicy::Drop => {
                self.counters.unowned.dropped.add(1);
                Disposition::Drop(Reason::Unowned)
            }
        };
        ReleasedPacket { packet, disposition }
    }

    /// Passes a packet of a VM that has no program for the direction.
    #[inline]
    fn release_skipped(
        &mut self,
        now: u64,
        next: Owner,
        packet: P,
        counts: &mut CounterBatch,
    ) -> ReleasedPacket<P> {
        self.wake_early(now, next);
        counts.unowned_passed();
        ReleasedPacket { packet, disposition: Disposition::Pass }
    }

    /// Drops a packet that may belong to several VMs, or that its receivers may read differently. It
    /// counts as unowned.
    #[cold]
    fn drop_ambiguous(&self, packet: P) -> ReleasedPacket<P> {
        self.counters.unowned.dropped.add(1);
        ReleasedPacket { packet, disposition: Disposition::Drop(Reason::Unowned) }
    }

    /// Drops a packet with a false source address. It counts for the VM of its port, or else as unowned.
    #[cold]
    fn drop_spoofed(&self, port: &PortSpec, packet: P) -> ReleasedPacket<P> {
        let owner = if let AllowedSources::Only(vm) = port.source { self.counters.of(vm) } else { None };
        if let Some(counters) = owner {
            let egress = &counters[Direction::Egress as usize];
            egress.packets_in.add(1);
            egress.bytes_in.add(packet.len() as u64);
            egress.dropped[Reason::Spoofed as usize].add(1);
        } else {
            self.counters.unowned.spoofed.add(1);
        }
        ReleasedPacket { packet, disposition: Disposition::Drop(Reason::Spoofed) }
    }
}
