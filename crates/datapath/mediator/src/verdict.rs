//! Verdict application: what an answer, checked by the channel, does to the held packet that it is about.
//!
//! A packet that passes unchanged and is the oldest of its queue leaves at once. For every other
//! answer the decision is stored in the flight, and [`crate::release`] takes the packet out in its
//! turn.

use crate::counters::{Counters, TenantCounters};
use crate::flight::{Flight, FlightDecision, FlightState};
use crate::output::PollOutput;
use crate::packet::{Packet, Reason, ReleasedPacket};
use crate::queue::Queue;
use crate::request::parse_id;
use crate::rewrite_check::{self, Switch};
use p4shield_abi::{Direction, Verdict};
use p4shield_channel::CheckedAnswer;

/// Applies an answer to its packet. `counters` are those of all tenants, with the index of this tenant.
#[inline(always)]
pub(crate) fn apply<P: Packet>(
    queues: &mut [Queue<P>; 2],
    answer: CheckedAnswer<'_>,
    switch: Switch<'_>,
    (counters, tenant): (&Counters, usize),
    output: &mut PollOutput<impl FnMut(ReleasedPacket<P>)>,
) {
    let (number, direction) = parse_id(answer.id);
    let unchanged = answer.verdict == Verdict::Pass && answer.rewrite.is_none();
    if unchanged
        && output.room != 0
        && let Some((owner, packet)) = queues[direction as usize].pop_if_front(number)
    {
        output.pass(counters, owner, direction, packet);
        return;
    }
    store(queues, &answer, switch, &counters.tenants[tenant]);
}

/// Stores the decision in the flight. An answer whose packet the policy has decided meanwhile is late
/// and ignored.
#[inline(never)]
fn store<P: Packet>(
    queues: &mut [Queue<P>; 2],
    answer: &CheckedAnswer<'_>,
    switch: Switch<'_>,
    counters: &TenantCounters,
) {
    let (number, direction) = parse_id(answer.id);
    let Some((flight, packet)) = queues[direction as usize].waiting(number) else {
        counters.late.add(1);
        return;
    };
    let decision = decide(switch, flight, packet, direction, answer);
    flight.decide(decision);
    if answer.rewrite.is_some() && flight.state == FlightState::Passed {
        counters.vms[usize::from(flight.vm.vm().vm)].direction(direction).rewritten.add(1);
    }
}

#[inline]
fn decide<P: Packet>(
    switch: Switch<'_>,
    flight: &mut Flight,
    packet: &mut P,
    direction: Direction,
    answer: &CheckedAnswer<'_>,
) -> FlightDecision {
    match (answer.verdict, &answer.rewrite) {
        (Verdict::Drop, _) => (FlightState::Dropped, Reason::Program),
        (Verdict::Pass, None) => (FlightState::Passed, Reason::Program),
        (Verdict::Pass, Some(rewrite)) => {
            match rewrite_check::apply(switch, flight, packet, direction, rewrite) {
                Ok(()) => (FlightState::Passed, Reason::Program),
                Err(reason) => (FlightState::Dropped, reason),
            }
        }
    }
}
