//! State of one tenant: what judges its packets, and its two queues.
//!
//! [`crate::deadline`] applies the tenant's policy, [`crate::wakeup`] publishes its requests and
//! wakes its P4 VM.

use crate::config::{FailPolicy, TenantConfig};
use crate::counters::{Counters, TenantCounters};
use crate::flight::Flight;
use crate::inline::{self, InlineEngine};
use crate::output::PollOutput;
use crate::p4vm::{P4VmChannel, P4VmFault};
use crate::packet::{Packet, Reason, ReleasedPacket};
use crate::ports::Ports;
use crate::queue::Queue;
use crate::request::{self, FlowSubmission};
use crate::rewrite_check::Switch;
use crate::verdict;
use p4shield_abi::Direction;
use p4shield_abi::channel::BATCH;
use std::time::Duration;

/// Most answers that one poll takes from a channel, so that one tenant's burst does not delay the
/// others' packets.
const TAKE: usize = 2 * BATCH;

/// What judges a tenant's packets.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one per tenant, and a box would cost one more load per packet"
)]
pub(crate) enum VerdictSource {
    /// Nothing at present: the tenant's policy applies.
    Detached,
    /// A P4 VM.
    P4Vm(P4VmChannel),
    /// Programs in this thread.
    Inline(Box<dyn InlineEngine>),
}

/// State of one tenant.
pub(crate) struct TenantState<P> {
    pub(crate) name: String,
    pub(crate) fail: FailPolicy,
    /// Longest time that a packet is held, in nanoseconds.
    pub(crate) deadline: u64,
    /// Longest time that the P4 VM may owe answers without giving any, in nanoseconds.
    pub(crate) stall: Option<u64>,
    pub(crate) source: VerdictSource,
    pub(crate) fault: Option<P4VmFault>,
    /// By [`Direction`].
    pub(crate) queues: [Queue<P>; 2],
    /// Number of the next packet that the inline engine judges, by [`Direction`].
    pub(crate) next_inline: [u64; 2],
    /// When the P4 VM last gave an answer, or began to owe one.
    pub(crate) progress: u64,
    /// Earliest time of the next wake-up by the tenant's own budget.
    pub(crate) next_wake: u64,
    /// Time of the wake-up that is due, by the thread's budget, too.
    pub(crate) wake_at: u64,
    /// Earliest time of the next early wake-up.
    pub(crate) next_early_wake: u64,
    /// The P4 VM sleeps and has to be woken.
    pub(crate) wake_due: bool,
    /// Whether [`crate::Mediator`]'s list of tenants with unpublished requests contains it.
    pub(crate) dirty: bool,
    /// Whether [`crate::Mediator`]'s list of tenants that hold packets or await answers contains it.
    pub(crate) active: bool,
}

fn nanoseconds(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

impl<P: Packet> TenantState<P> {
    pub(crate) fn new(config: &TenantConfig) -> Self {
        Self::with_queues(config, || Queue::new(config.max_held))
    }

    /// A state that will inherit its queues' memory.
    pub(crate) fn heir(config: &TenantConfig) -> Self {
        Self::with_queues(config, || Queue::heir(config.max_held))
    }

    fn with_queues(config: &TenantConfig, queue: impl Fn() -> Queue<P>) -> Self {
        Self {
            name: config.name.clone(),
            fail: config.fail,
            deadline: nanoseconds(config.deadline),
            stall: config.stall.map(nanoseconds),
            source: VerdictSource::Detached,
            fault: None,
            queues: std::array::from_fn(|_| queue()),
            next_inline: [0; 2],
            progress: 0,
            next_wake: 0,
            wake_at: 0,
            next_early_wake: 0,
            wake_due: false,
            dirty: false,
            active: false,
        }
    }

    pub(crate) fn queue(&mut self, direction: Direction) -> &mut Queue<P> {
        &mut self.queues[direction as usize]
    }

    pub(crate) fn channel(&self) -> Option<&P4VmChannel> {
        if let VerdictSource::P4Vm(channel) = &self.source { Some(channel) } else { None }
    }

    pub(crate) fn channel_mut(&mut self) -> Option<&mut P4VmChannel> {
        if let VerdictSource::P4Vm(channel) = &mut self.source { Some(channel) } else { None }
    }

    pub(crate) fn is_attached(&self) -> bool {
        !matches!(self.source, VerdictSource::Detached)
    }

    /// Returns the number of held packets, in both directions.
    pub(crate) fn held(&self) -> usize {
        self.queues.iter().map(Queue::len).sum()
    }

    /// Whether it holds packets or awaits answers.
    pub(crate) fn is_busy(&self) -> bool {
        self.held() != 0 || self.owed() != 0
    }

    /// Returns the number of answers that the P4 VM owes.
    pub(crate) fn owed(&self) -> usize {
        self.channel().map_or(0, |c| c.requester.outstanding())
    }

    /// Whether the inline engine has packets to judge.
    pub(crate) fn has_inline_work(&self) -> bool {
        matches!(self.source, VerdictSource::Inline(_)) && self.has_unjudged()
    }

    /// Whether the inline engine has not judged the newest packets.
    fn has_unjudged(&self) -> bool {
        self.queues.iter().zip(self.next_inline).any(|(queue, next)| queue.next_number() != next)
    }

    /// Whether a held packet came from the port with this index.
    pub(crate) fn references_port(&self, port: u32) -> bool {
        self.queues.iter().any(|queue| queue.references_port(port))
    }

    /// Puts a packet into its queue, which is not full, and pushes its request. The flight is written
    /// to its slot first, and the request is made from there.
    ///
    /// # Errors
    /// Reason why there is no request; the packet is the newest of its queue and waits all the same.
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
        match &mut self.source {
            VerdictSource::P4Vm(channel) => {
                if channel.requester.outstanding() == 0 {
                    self.progress = now;
                }
                request::push(&mut channel.requester, number, direction, (flight, packet), ports)
            }
            // `collect` judges the packets in the queue.
            VerdictSource::Inline(_) => Ok(()),
            VerdictSource::Detached if self.fault.is_some() => Err(Reason::Fault),
            VerdictSource::Detached => Err(Reason::NoChannel),
        }
    }

    /// Returns what submits several packets of a direction; none if there is no room for a packet, or
    /// no P4 VM or inline engine.
    #[inline(always)]
    pub(crate) fn submission(
        &mut self,
        now: u64,
        direction: Direction,
        input_port: u32,
    ) -> Option<FlowSubmission<'_, P>> {
        let queue = &mut self.queues[direction as usize];
        let mut room = queue.room();
        let requester = match &mut self.source {
            VerdictSource::P4Vm(P4VmChannel { requester, .. }) => {
                if requester.outstanding() == 0 {
                    self.progress = now;
                }
                room = room.min(requester.room()).min(BATCH.saturating_sub(requester.unpublished()));
                Some(requester)
            }
            // `collect` judges the packets in the queue.
            VerdictSource::Inline(_) => None,
            VerdictSource::Detached => return None,
        };
        (room != 0).then_some(FlowSubmission { queue, requester, direction, input_port, room })
    }

    /// Takes answers and applies them to their packets; packets that pass and are the oldest of their
    /// queue leave at once. Returns whether it took all answers that were there, so that a packet
    /// that still waits has none.
    ///
    /// `counters` are those of all tenants, with the index of this tenant.
    #[inline]
    pub(crate) fn collect(
        &mut self,
        now: u64,
        switch: Switch<'_>,
        counters: (&Counters, usize),
        output: &mut PollOutput<impl FnMut(ReleasedPacket<P>)>,
    ) -> bool {
        let channel = match &mut self.source {
            VerdictSource::P4Vm(channel) if channel.requester.outstanding() != 0 => channel,
            VerdictSource::Inline(engine) => {
                let next = &mut self.next_inline;
                inline::judge_queues(&mut **engine, &mut self.queues, next, switch, counters, output);
                return true;
            }
            VerdictSource::P4Vm(_) | VerdictSource::Detached => return true,
        };
        let queues = &mut self.queues;
        let result =
            channel.requester.take(TAKE, |answer| verdict::apply(queues, answer, switch, counters, output));
        let counters = &counters.0.tenants[counters.1];
        match result {
            Ok(0) => self.await_answers(now, counters),
            Ok(taken) => {
                self.progress = now;
                return taken < TAKE;
            }
            Err(fault) => self.detach(P4VmFault::Protocol(fault), counters),
        }
        true
    }

    /// Checks a P4 VM that owes answers and has given none: it may sleep, or have stopped.
    #[inline]
    fn await_answers(&mut self, now: u64, counters: &TenantCounters) {
        if self.is_stalled(now) {
            self.detach(P4VmFault::Stalled, counters);
        } else {
            self.wake_if_asleep(now, counters);
        }
    }

    /// Detaches the channel after a fault. The tenant's policy decides the held packets, which leave
    /// in their order.
    #[cold]
    pub(crate) fn detach(&mut self, fault: P4VmFault, counters: &TenantCounters) {
        tracing::warn!(
            event = "channel_detached",
            tenant = self.name,
            fault = fault.name(),
            error = &fault as &dyn std::error::Error,
            "channel detached; the tenant's policy applies until it is replaced"
        );
        counters.faults.add(1);
        self.fault = Some(fault);
        self.release_source(Reason::Fault);
    }

    fn release_source(&mut self, reason: Reason) {
        self.source = VerdictSource::Detached;
        self.wake_due = false;
        let decision = self.policy(reason);
        for queue in &mut self.queues {
            queue.for_each_waiting(|_, flight, _| flight.decide(decision));
        }
    }

    /// Replaces the channel. Requests for waiting packets are pushed again, as far as the new channel
    /// has slots; their deadlines stay.
    pub(crate) fn replace_channel(&mut self, now: u64, channel: Option<P4VmChannel>, ports: &Ports) {
        self.fault = None;
        let Some(mut channel) = channel else {
            self.release_source(Reason::NoChannel);
            return;
        };
        let full = self.policy(Reason::Full);
        for direction in Direction::ALL {
            self.queues[direction as usize].for_each_waiting(|number, flight, packet| {
                let requester = &mut channel.requester;
                if request::push(requester, number, direction, (flight, packet), ports).is_err() {
                    flight.decide(full);
                }
            });
        }
        self.progress = now;
        self.wake_due = false;
        self.next_wake = now;
        self.source = VerdictSource::P4Vm(channel);
    }

    /// Attaches an inline engine, which also judges the packets that already wait.
    pub(crate) fn attach_inline(&mut self, engine: Box<dyn InlineEngine>) {
        self.fault = None;
        self.wake_due = false;
        self.next_inline = self.queues.each_ref().map(Queue::front_number);
        self.source = VerdictSource::Inline(engine);
    }
}
