//! The hot path: moves frames from one side of a wire through the mediator to the other side.
//!
//! ```text
//!            receive ring                                    transmit ring
//!   kernel ───────────────► Frame ──► complete ──► mediator ──► queue ──────────────► kernel
//!      ▲                              checksum     submit/poll  (backlog)                │
//!      │ fill ring                                                       completion ring │
//!      └───────────────────────────────── free frames ◄──────────────────────────────────┘
//! ```
//!
//! One thread and one UMEM: a frame is moved and never copied. The thread waits for nothing: frames that
//! the transmit ring does not take wait in the queue's backlog; further ones are dropped and counted.

mod packet;
mod queue;
mod wire;

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use p4shield_afxdp::{Frame, FramePool, Port, Socket, SocketId};
use p4shield_channel::{IdleResult, Waiter};
use p4shield_mediator::{
    self as mediator, Counters, Disposition, Mediator, P4VmChannel, PortSpec, ReleasedPacket,
};
use p4shield_xdp::checksum;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags};

use self::packet::Destination;
pub use self::packet::WirePacket;
use self::queue::InterfaceQueue;
use self::wire::EngineWire;
use crate::config::{BURST, LoopConfig, WireSide};
use crate::counters::{Snapshot, WireCounters};
use crate::{Error, Result, WireId};

/// The most packets that the mediator releases before the loop receives again.
const POLL: usize = 4 * BURST as usize;
/// Time until the next attempt on a transmit ring that the kernel left unfinished, if nothing else
/// happens.
const RETRY: Duration = Duration::from_millis(1);
/// Data of an epoll entry that is not a P4 VM's doorbell.
const NO_TENANT: u64 = u64::MAX;

/// The state of a loop's thread.
pub(crate) struct Engine<'p> {
    pool: &'p FramePool,
    mediator: Mediator<WirePacket<'p>>,
    wires: Vec<Option<EngineWire<'p>>>,
    generation: u32,
    burst: Vec<Frame<'p>>,
    epoll: OwnedFd,
    ring: u32,
    backlog: usize,
    rounds: u64,
    sleeps: u64,
    stop: bool,
}

impl<'p> Engine<'p> {
    /// Creates an engine without wires, woken by `bell`.
    pub(crate) fn new(config: &LoopConfig, pool: &'p FramePool, bell: BorrowedFd<'_>) -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC);
        let epoll = epoll.map_err(|e| Error::system("make an epoll instance")(e.into()))?;
        let engine = Self {
            pool,
            mediator: Mediator::new(&config.mediator)?,
            wires: Vec::new(),
            generation: 0,
            burst: Vec::with_capacity(BURST as usize),
            epoll,
            ring: config.ring,
            backlog: config.backlog as usize,
            rounds: 0,
            sleeps: 0,
            stop: false,
        };
        engine.watch(bell, NO_TENANT)?;
        Ok(engine)
    }

    fn watch(&self, fd: BorrowedFd<'_>, data: u64) -> Result<()> {
        epoll::add(&self.epoll, fd, EventData::new_u64(data), EventFlags::IN)
            .map_err(|e| Error::system("watch a descriptor")(e.into()))
    }

    /// Runs one round over all queues. Returns whether there was work.
    pub(crate) fn step(&mut self, now: u64) -> bool {
        self.rounds += 1;
        let mut worked = false;
        for slot in 0..self.wires.len() {
            for side in WireSide::ALL {
                let mut queue = 0;
                while let Some(more) = self.receive(now, slot, side, queue) {
                    worked |= more;
                    queue += 1;
                }
            }
        }
        let (wires, pool) = (&mut self.wires, self.pool);
        self.mediator.poll(now, POLL, |released| {
            worked = true;
            deliver(wires, pool, released);
        });
        for wire in self.wires.iter_mut().flatten() {
            for queue_state in wire.sides.iter_mut().flat_map(|s| &mut s.queues) {
                worked |= queue_state.flush(self.pool, now, self.ring);
            }
        }
        worked
    }

    /// Receives a burst from a queue and submits it to the mediator. `None` if there is no such queue.
    fn receive(&mut self, now: u64, slot: usize, side: WireSide, queue: usize) -> Option<bool> {
        let wire = self.wires[slot].as_mut()?;
        let (spec, to) = (wire.spec(side), wire.route(slot, side.other(), queue));
        let from = &mut wire.sides[side as usize];
        let queue_state = from.queues.get_mut(queue)?;
        let burst = &mut self.burst;
        queue_state.port.receive(self.pool, BURST, |frame| burst.push(frame));
        if burst.is_empty() {
            return Some(false);
        }
        let counters = &mut from.counters;
        counters.rx_packets += burst.len() as u64;
        for frame in burst.iter_mut() {
            counters.rx_bytes += frame.len() as u64;
            counters.checksums_completed += u64::from(checksum::complete(frame.bytes_mut()));
        }
        for frame in self.burst.drain(..) {
            if let Some(released) = self.mediator.submit(now, &spec, WirePacket::new(frame, to)) {
                deliver(&mut self.wires, self.pool, released);
            }
        }
        Some(true)
    }

    /// Spins, yields or sleeps after a round without work.
    pub(crate) fn idle(&mut self, waiter: &mut Waiter, now: u64) -> Result<()> {
        let due = self.mediator.next_deadline(now).map(|at| Duration::from_nanos(at.saturating_sub(now)));
        let unfinished = self.wires.iter().flatten().any(EngineWire::is_unfinished).then_some(RETRY);
        let timeout = due.into_iter().chain(unfinished).min();
        let mut fds = [PollFd::new(&self.epoll, PollFlags::IN)];
        let idled = waiter.idle(&mut self.mediator, &mut fds, timeout);
        let idled = idled.map_err(|e| Error::system("sleep in poll()")(e.into()))?;
        if let IdleResult::Slept(ready) = idled {
            self.sleeps += 1;
            if ready > 0 {
                self.answer_doorbells();
            }
        }
        Ok(())
    }

    fn answer_doorbells(&mut self) {
        let mut events = [const { std::mem::MaybeUninit::uninit() }; 64];
        let no_wait = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let Ok((ready, _)) = epoll::wait(&self.epoll, &mut events, Some(&no_wait)) else { return };
        for tenant in ready.iter().map(|e| e.data.u64()).filter(|&t| t != NO_TENANT) {
            self.mediator.drain_doorbell(tenant as usize);
        }
    }

    /// Ends the thread after this job.
    pub(crate) fn stop(&mut self) {
        self.stop = true;
    }

    pub(crate) fn stopped(&self) -> bool {
        self.stop
    }

    /// Returns the mediator.
    pub(crate) fn mediator(&mut self) -> &mut Mediator<WirePacket<'p>> {
        &mut self.mediator
    }

    /// Replaces the channel of a tenant, or removes it.
    pub(crate) fn replace_channel(&mut self, tenant: usize, link: Option<P4VmChannel>) -> Result<()> {
        if let Some(link) = &link {
            // The epoll watches it until the mediator closes it on detaching the P4 VM.
            self.watch(link.doorbell.fd(), tenant as u64)?;
        }
        Ok(self.mediator.replace_channel(crate::now(), tenant, link)?)
    }

    /// Replaces the tenants, which were those of `before`. Tenants that both know keep their channels and
    /// held packets; the policies of the others decide theirs. Returns the new counters.
    pub(crate) fn change_tenants(
        &mut self,
        before: &mediator::Config,
        config: &mediator::Config,
    ) -> Result<Arc<Counters>> {
        let mut mediator = Mediator::successor(config, before)?;
        mediator.inherit(&mut self.mediator);
        let mut old = std::mem::replace(&mut self.mediator, mediator);
        let now = crate::now();
        for tenant in 0..before.tenants.len() {
            old.replace_channel(now, tenant, None)?;
        }
        while old.held() > 0 {
            old.poll(now, POLL, |released| deliver(&mut self.wires, self.pool, released));
        }
        Ok(self.mediator.counters())
    }

    /// Sets the descriptions of a wire's sides.
    pub(crate) fn describe_wire(&mut self, id: WireId, specs: [PortSpec; 2]) {
        if let Some(wire) = self.wire(id) {
            wire.describe(specs);
        }
    }

    /// Adds a wire without interfaces.
    pub(crate) fn add_wire(&mut self, name: String, specs: [PortSpec; 2]) -> WireId {
        self.generation = self.generation.wrapping_add(1);
        let slot = self.wires.iter().position(Option::is_none).unwrap_or_else(|| {
            self.wires.push(None);
            self.wires.len() - 1
        });
        self.wires[slot] = Some(EngineWire::new(name, self.generation, specs));
        WireId { slot: slot as u32, generation: self.generation }
    }

    /// Removes a wire whose interfaces were uninstalled.
    pub(crate) fn remove_wire(&mut self, id: WireId) {
        if self.wire(id).is_some() {
            self.wires[id.slot as usize] = None;
        }
    }

    fn wire(&mut self, id: WireId) -> Option<&mut EngineWire<'p>> {
        self.wires.get_mut(id.slot as usize)?.as_mut().filter(|w| w.generation == id.generation)
    }

    /// Starts to use the sockets of an interface, in the order of its queues.
    pub(crate) fn install(&mut self, id: WireId, side: WireSide, sockets: Vec<Socket>) -> Result<()> {
        let (pool, backlog, ring) = (self.pool, self.backlog, self.ring);
        self.wire(id).ok_or(Error::Gone)?;
        for socket in &sockets {
            self.watch(socket.as_fd(), NO_TENANT)?;
        }
        let ports =
            sockets.into_iter().map(|s| Port::new(s, pool)).collect::<std::result::Result<Vec<_>, _>>()?;
        // Nothing fails from here on, so no frame is given to a socket that is then dropped.
        let queues = ports.into_iter().map(|mut port| {
            port.refill(pool, ring);
            InterfaceQueue::new(port, VecDeque::with_capacity(backlog), backlog)
        });
        let queues = queues.collect();
        if let Some(wire) = self.wire(id) {
            wire.sides[side as usize].queues = queues;
        }
        Ok(())
    }

    /// Removes the sockets of a side. The caller closes them and then calls [`Self::reclaim`].
    pub(crate) fn uninstall(&mut self, id: WireId, side: WireSide) -> Vec<(SocketId, Socket)> {
        let Some(wire) = self.wire(id) else { return Vec::new() };
        let queues = std::mem::take(&mut wire.sides[side as usize].queues);
        let sockets: Vec<_> = queues.into_iter().map(|l| (l.port.id(), l.port.into_socket())).collect();
        for (_, socket) in &sockets {
            // Otherwise a socket that is closed a moment later would wake the thread again and again.
            let _ = epoll::delete(&self.epoll, socket);
        }
        sockets
    }

    /// Takes back the frames of closed sockets.
    pub(crate) fn reclaim(&mut self, ports: &[SocketId]) {
        for &port in ports {
            self.pool.close_port(port);
        }
    }

    /// Returns the sums of the kernel counters of a side's sockets.
    pub(crate) fn statistics(&mut self, id: WireId, side: WireSide) -> p4shield_afxdp::Statistics {
        self.wire(id).map(|w| w.sides[side as usize].statistics()).unwrap_or_default()
    }

    /// Returns all counters.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let wires = self.wires.iter().zip(0u32..).filter_map(|(wire, slot)| {
            let wire = wire.as_ref()?;
            Some(WireCounters {
                id: WireId { slot, generation: wire.generation },
                name: wire.name.clone(),
                sides: [wire.sides[0].total(), wire.sides[1].total()],
            })
        });
        Snapshot {
            wires: wires.collect(),
            frames: self.pool.counts(),
            refused: self.pool.refused(),
            rounds: self.rounds,
            sleeps: self.sleeps,
        }
    }
}

/// Sends or frees a packet that the mediator released.
fn deliver<'p>(
    wires: &mut [Option<EngineWire<'p>>],
    pool: &'p FramePool,
    released: ReleasedPacket<WirePacket<'p>>,
) {
    let (frame, Destination { slot, generation, side, queue }) = released.packet.into_parts();
    if released.disposition != Disposition::Pass {
        return;
    }
    // A packet whose wire was removed while it was held is freed.
    let wire = wires.get_mut(slot as usize).and_then(Option::as_mut).filter(|w| w.generation == generation);
    if let Some(wire) = wire {
        wire.sides[side as usize].send(pool, frame, usize::from(queue));
    }
}
