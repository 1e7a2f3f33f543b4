//! One tenant: its channel, its held packets, its policy.

use crate::asking::Asking;
use crate::config::{FailPolicy, TenantConfig};
use crate::counters::{Counters, TenantCounters};
use crate::inline::{self, InlineEngine};
use crate::lookup::Lookup;
use crate::mediator::Burst;
use crate::packet::{Packet, Reason, ReleasedPacket};
use crate::ports::Ports;
use crate::queue::{Fate, Flight, Queue, State, id_of, number_of};
use crate::rules;
use p4shield_abi::channel::{BATCH, Request};
use p4shield_abi::{Direction, Verdict};
use p4shield_channel::{ChannelFault, CheckedAnswer, Doorbell, PushRefused, Requester};
use std::time::Duration;

/// Answers that are taken in one poll at most, so that one tenant's burst does not delay the others' packets.
const TAKE: usize = 2 * BATCH;

/// Nanoseconds between two times that one P4 VM is woken, on average: one that claims to sleep all the time is to be woken at
/// each packet, and this bounds the system calls that it costs (two each).
const BELL_INTERVAL: u64 = 20_000;
/// Nanoseconds that wake-ups may be ahead of that, so that an honest P4 VM, which sleeps between a packet and its answer, is woken
/// at once.
const BELL_ADVANCE: u64 = 8 * BELL_INTERVAL;

/// The mediator's end of a channel, with the doorbell that wakes the P4 VM and is rung by it.
#[derive(Debug)]
pub struct P4VmChannel {
    /// The ring end.
    pub requester: Requester,
    /// The doorbell end.
    pub doorbell: Doorbell,
}

/// Why a channel was detached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum P4VmFault {
    /// The P4 VM broke the protocol.
    #[error("the P4 VM broke the channel's protocol")]
    Protocol(#[source] ChannelFault),
    /// The P4 VM owed answers and gave none for as long as the tenant's configuration allows.
    #[error("the P4 VM stopped answering")]
    Stalled,
    /// The P4 VM closed its end of the doorbell.
    #[error("the P4 VM is gone")]
    Gone,
}

impl P4VmFault {
    /// A word for metrics and messages.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Protocol(fault) => fault.name(),
            Self::Stalled => "stalled",
            Self::Gone => "gone",
        }
    }
}

/// Who judges a tenant's packets.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one a tenant, and a box would be one more load a packet"
)]
enum Judge {
    /// Nobody at present.
    Nobody,
    /// A P4 VM.
    Channel(P4VmChannel),
    /// This thread.
    Here(Box<dyn InlineEngine>),
}

pub(crate) struct Tenant<P> {
    pub(crate) name: String,
    fail: FailPolicy,
    /// Nanoseconds.
    deadline: u64,
    /// Nanoseconds.
    stall: Option<u64>,
    judge: Judge,
    fault: Option<P4VmFault>,
    /// By [`Direction`].
    queues: [Queue<P>; 2],
    /// Number of the next packet to be judged in place, by [`Direction`].
    next: [u64; 2],
    /// When the P4 VM last gave an answer, or began to owe one.
    progress: u64,
    /// When the doorbell may be rung next.
    next_ring: u64,
    /// When it may be woken next for what another mediator is about to ask.
    next_rouse: u64,
    /// The P4 VM sleeps and has to be woken.
    ring_due: bool,
    /// Whether it is in the mediator's list of tenants with something to publish.
    pub(crate) dirty: bool,
    /// Whether it is in the mediator's list of tenants with something to wait for.
    pub(crate) active: bool,
}

fn nanoseconds(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

impl<P: Packet> Tenant<P> {
    pub(crate) fn new(config: &TenantConfig) -> Self {
        Self {
            name: config.name.clone(),
            fail: config.fail,
            deadline: nanoseconds(config.deadline),
            stall: config.stall.map(nanoseconds),
            judge: Judge::Nobody,
            fault: None,
            queues: std::array::from_fn(|_| Queue::new(config.max_held)),
            next: [0; 2],
            progress: 0,
            next_ring: 0,
            next_rouse: 0,
            ring_due: false,
            dirty: false,
            active: false,
        }
    }

    pub(crate) fn queue(&mut self, direction: Direction) -> &mut Queue<P> {
        &mut self.queues[direction as usize]
    }

    pub(crate) fn fail(&self) -> FailPolicy {
        self.fail
    }

    pub(crate) fn fault(&self) -> Option<P4VmFault> {
        self.fault
    }

    pub(crate) fn link(&self) -> Option<&P4VmChannel> {
        if let Judge::Channel(link) = &self.judge { Some(link) } else { None }
    }

    pub(crate) fn link_mut(&mut self) -> Option<&mut P4VmChannel> {
        if let Judge::Channel(link) = &mut self.judge { Some(link) } else { None }
    }

    pub(crate) fn is_attached(&self) -> bool {
        !matches!(self.judge, Judge::Nobody)
    }

    /// Packets held, in both directions.
    pub(crate) fn held(&self) -> usize {
        self.queues.iter().map(Queue::len).sum()
    }

    /// Whether anything is held or owed.
    pub(crate) fn is_busy(&self) -> bool {
        self.held() != 0 || self.owed() != 0
    }

    /// Answers that the P4 VM owes.
    pub(crate) fn owed(&self) -> usize {
        self.link().map_or(0, |l| l.requester.outstanding())
    }

    /// Whether packets wait that can be judged without another core.
    pub(crate) fn can_judge_at_once(&self) -> bool {
        matches!(self.judge, Judge::Here(_)) && self.unjudged()
    }

    /// Whether the newest packets have not been judged in place.
    fn unjudged(&self) -> bool {
        self.queues.iter().zip(self.next).any(|(queue, next)| queue.next_number() != next)
    }

    /// Whether a packet that is held came from the port of this number.
    pub(crate) fn names_port(&self, port: u32) -> bool {
        self.queues.iter().any(|queue| queue.names_port(port))
    }

    /// What becomes of a packet that is not judged.
    pub(crate) fn policy(&self, reason: Reason) -> Fate {
        match self.fail {
            FailPolicy::Drop => (State::Dropped, reason),
            FailPolicy::Pass => (State::LetThrough, reason),
        }
    }

    /// When a packet that is submitted now gets the policy.
    #[inline]
    pub(crate) fn deadline_from(&self, now: u64) -> u64 {
        now.saturating_add(self.deadline)
    }

    /// The oldest packet of a direction was not judged in time.
    #[cold]
    pub(crate) fn expire(&mut self, direction: Direction) {
        let state = self.policy(Reason::Deadline);
        if let Some(flight) = self.queue(direction).front() {
            flight.decide(state);
        }
    }

    /// Puts a packet into its queue, which is not full, and asks about it. It is written where it stays first, and the
    /// request is made from there.
    ///
    /// # Errors
    /// Why nobody can be asked; it is the newest in its queue and waits all the same.
    #[inline(always)]
    pub(crate) fn hold(
        &mut self,
        now: u64,
        direction: Direction,
        flight: Flight,
        packet: P,
        ports: &Ports,
    ) -> Result<(), Reason> {
        let queue = &mut self.queues[direction as usize];
        let number = queue.next_number();
        let (flight, packet) = queue.push(flight, packet);
        match &mut self.judge {
            Judge::Channel(link) => {
                if link.requester.outstanding() == 0 {
                    self.progress = now;
                }
                push(link, number, direction, (flight, packet), ports)
            }
            // Those that wait are judged when they are collected.
            Judge::Here(_) => Ok(()),
            Judge::Nobody if self.fault.is_some() => Err(Reason::Fault),
            Judge::Nobody => Err(Reason::NoChannel),
        }
    }

    /// What it takes to put packets of a direction into their queue and ask about them; none if there is no room for any,
    /// or nobody to be asked.
    #[inline(always)]
    pub(crate) fn asking(
        &mut self,
        now: u64,
        direction: Direction,
        input_port: u32,
    ) -> Option<Asking<'_, P>> {
        let queue = &mut self.queues[direction as usize];
        let mut room = queue.room();
        let requester = match &mut self.judge {
            Judge::Channel(P4VmChannel { requester, .. }) => {
                if requester.outstanding() == 0 {
                    self.progress = now;
                }
                room = room.min(requester.room()).min(BATCH.saturating_sub(requester.unpublished()));
                Some(requester)
            }
            // Those that wait are judged when they are collected.
            Judge::Here(_) => None,
            Judge::Nobody => return None,
        };
        (room != 0).then_some(Asking { queue, requester, direction, input_port, room })
    }

    /// Applies the policy to the newest packet of a direction.
    #[cold]
    pub(crate) fn decide_newest(&mut self, direction: Direction, reason: Reason) {
        let fate = self.policy(reason);
        let queue = self.queue(direction);
        if let Some((flight, _)) = queue.waiting(queue.next_number().wrapping_sub(1)) {
            flight.decide(fate);
        }
    }

    /// Whether as many requests were asked as are published together.
    #[inline]
    pub(crate) fn has_batch(&self) -> bool {
        self.link().is_some_and(|l| l.requester.unpublished() >= BATCH)
    }

    /// Publishes what was asked, and wakes a P4 VM that sleeps, unless that was done too often lately.
    #[inline]
    pub(crate) fn publish(&mut self, now: u64, counters: &TenantCounters) {
        if let Judge::Channel(link) = &mut self.judge {
            self.ring_due |= link.requester.publish();
            if self.ring_due && now >= self.next_ring {
                self.ring(now, counters);
            }
        }
    }

    /// Wakes a P4 VM that sleeps and is about to be asked by another mediator, unless that was done just now.
    #[inline]
    pub(crate) fn rouse(&mut self, now: u64, counters: &TenantCounters) {
        if let Judge::Channel(link) = &mut self.judge
            && now >= self.next_rouse
            && link.requester.is_asleep()
        {
            // Its flag says that it sleeps until it runs: the packets that follow would wake it again and again.
            self.next_rouse = now.saturating_add(BELL_INTERVAL);
            self.wake(counters);
        }
    }

    #[cold]
    fn ring(&mut self, now: u64, counters: &TenantCounters) {
        self.ring_due = false;
        self.next_ring = self.next_ring.max(now.saturating_sub(BELL_ADVANCE)).saturating_add(BELL_INTERVAL);
        self.wake(counters);
    }

    #[cold]
    fn wake(&mut self, counters: &TenantCounters) {
        counters.wakeups.add(1);
        if self.link_mut().is_some_and(|l| !l.requester.wake(&l.doorbell)) {
            self.detach(P4VmFault::Gone, counters);
        }
    }

    /// Takes answers and applies them to the packets that wait for them; those that pass and are first in their queue go
    /// out at once. True if all answers that were there were taken: a packet that still waits has none.
    ///
    /// `counters` are all, and which are this tenant's.
    #[inline]
    pub(crate) fn collect(
        &mut self,
        now: u64,
        switch: (&Lookup, &Ports),
        counters: (&Counters, usize),
        burst: &mut Burst<impl FnMut(ReleasedPacket<P>)>,
    ) -> bool {
        let link = match &mut self.judge {
            Judge::Channel(link) if link.requester.outstanding() != 0 => link,
            Judge::Here(engine) => {
                inline::judge(&mut **engine, &mut self.queues, &mut self.next, switch, counters, burst);
                return true;
            }
            Judge::Channel(_) | Judge::Nobody => return true,
        };
        let queues = &mut self.queues;
        let result = link.requester.take(TAKE, |answered| settle(queues, answered, switch, counters, burst));
        let counters = &counters.0.tenants[counters.1];
        match result {
            Ok(0) => self.wait(now, counters),
            Ok(taken) => {
                self.progress = now;
                return taken < TAKE;
            }
            Err(fault) => self.detach(P4VmFault::Protocol(fault), counters),
        }
        true
    }

    /// The P4 VM owes answers and has none: perhaps it sleeps, perhaps it is dead.
    #[inline]
    fn wait(&mut self, now: u64, counters: &TenantCounters) {
        if self.stall.is_some_and(|s| now.saturating_sub(self.progress) >= s) {
            self.detach(P4VmFault::Stalled, counters);
            return;
        }
        self.ring_due |= self.link_mut().is_some_and(|l| l.requester.must_wake());
        if self.ring_due && now >= self.next_ring {
            self.ring(now, counters);
        }
    }

    /// Takes the channel away; its packets get the tenant's policy at once and leave in their order.
    #[cold]
    pub(crate) fn detach(&mut self, fault: P4VmFault, counters: &TenantCounters) {
        tracing::warn!(
            tenant = self.name,
            fault = fault.name(),
            error = &fault as &dyn std::error::Error,
            "channel detached; the tenant's policy applies until it is replaced"
        );
        counters.faults.add(1);
        self.fault = Some(fault);
        self.unlink(Reason::Fault);
    }

    fn unlink(&mut self, reason: Reason) {
        self.judge = Judge::Nobody;
        self.ring_due = false;
        let state = self.policy(reason);
        for queue in &mut self.queues {
            queue.waiting_all(|_, flight, _| flight.decide(state));
        }
    }

    /// Puts another channel in the place of the one there is. Packets that still wait are asked again over it, as
    /// far as it has slots; their deadlines stay.
    pub(crate) fn replace(&mut self, now: u64, link: Option<P4VmChannel>, ports: &Ports) {
        self.fault = None;
        let Some(mut link) = link else {
            self.unlink(Reason::NoChannel);
            return;
        };
        let full = self.policy(Reason::Full);
        for direction in Direction::ALL {
            self.queues[direction as usize].waiting_all(|number, flight, packet| {
                if push(&mut link, number, direction, (flight, packet), ports).is_err() {
                    flight.decide(full);
                }
            });
        }
        self.progress = now;
        self.ring_due = false;
        self.next_ring = now;
        self.judge = Judge::Channel(link);
    }

    /// Has packets judged in place, those that wait already first.
    pub(crate) fn attach_inline(&mut self, engine: Box<dyn InlineEngine>) {
        self.fault = None;
        self.ring_due = false;
        self.next = self.queues.each_ref().map(Queue::front_number);
        self.judge = Judge::Here(engine);
    }

    /// When `poll` has to be called next though nothing comes; `now` if it has work at once.
    pub(crate) fn next_deadline(&self, now: u64) -> Option<u64> {
        let fronts = self.queues.iter().filter_map(|queue| {
            queue.peek().map(|f| if f.state == State::Waiting { f.deadline } else { now })
        });
        let stall = self.stall.filter(|_| self.owed() != 0).map(|s| self.progress.saturating_add(s));
        let ring = self.ring_due.then_some(self.next_ring);
        let here = self.can_judge_at_once().then_some(now);
        fronts.chain(stall).chain(ring).chain(here).min()
    }
}

/// The request about a flight.
#[inline(always)]
pub(crate) fn request<P: Packet>(
    number: u64,
    direction: Direction,
    (flight, packet): (&Flight, &P),
    input_port: u32,
) -> Request {
    Request {
        id: id_of(number, direction),
        timestamp_ns: flight.received,
        packet_len: u32::try_from(packet.len()).unwrap_or(u32::MAX),
        input_port,
        copy_len: 0,
        vm: flight.vm.vm().vm,
        direction: direction as u8,
        reserved: [0; 3],
    }
}

/// Writes a request for a flight.
#[inline(always)]
fn push<P: Packet>(
    link: &mut P4VmChannel,
    number: u64,
    direction: Direction,
    (flight, packet): (&Flight, &P),
    ports: &Ports,
) -> Result<(), Reason> {
    let request = request(number, direction, (flight, packet), ports.get(flight.port).number);
    link.requester.push(&request, packet.bytes()).map_err(|refused| match refused {
        PushRefused::Full => Reason::Full,
        PushRefused::Faulted(_) => Reason::Fault,
    })
}

/// Applies one answer: lets the packet go if it passes and is the first in its queue, or notes what becomes of it.
#[inline(always)]
pub(crate) fn settle<P: Packet>(
    queues: &mut [Queue<P>; 2],
    answered: CheckedAnswer<'_>,
    switch: (&Lookup, &Ports),
    (counters, t): (&Counters, usize),
    burst: &mut Burst<impl FnMut(ReleasedPacket<P>)>,
) {
    let (number, direction) = number_of(answered.id);
    let plain = answered.verdict == Verdict::Pass && answered.rewrite.is_none();
    if plain
        && burst.room != 0
        && let Some((owner, packet)) = queues[direction as usize].pop_answered(number)
    {
        burst.pass(counters, owner, direction, packet);
        return;
    }
    note(queues, &answered, switch, &counters.tenants[t]);
}

/// Notes what an answer makes of its packet. One whose packet was decided by policy meanwhile is late, and ignored.
#[inline(never)]
fn note<P: Packet>(
    queues: &mut [Queue<P>; 2],
    answered: &CheckedAnswer<'_>,
    switch: (&Lookup, &Ports),
    counters: &TenantCounters,
) {
    let (number, direction) = number_of(answered.id);
    let Some((flight, packet)) = queues[direction as usize].waiting(number) else {
        counters.late.add(1);
        return;
    };
    let fate = rules::apply(switch, flight, packet, direction, answered);
    flight.decide(fate);
    if answered.rewrite.is_some() && flight.state == State::Passed {
        counters.vms[usize::from(flight.vm.vm().vm)].direction(direction).rewritten.add(1);
    }
}
