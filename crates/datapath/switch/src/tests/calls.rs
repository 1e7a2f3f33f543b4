//! Packets whose program calls a function in a compartment, which answers, lies, is late or dies.

use super::{Memory, compiled_with, load};
use crate::{
    CallFail, CallPort, CallSettings, DropReason, MAX_CALLS, NoCompartment, PipelineHandle, QueueLimits,
    RecordFilter, Step, Submitted, Switch, Traits,
};
use p4shield_abi::call::{FUNCTION, NUMBERS, RESULT, message};
use p4shield_abi::channel::MAX_HEADER_BYTES;
use p4shield_abi::schema::Architecture;
use p4shield_p4::{Compiled, Options, Placement};
use p4shield_traffic::{Groups, Sessions};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Calls the function as often as the packet says.
const CALLER: &str = r"
#include <v1model.p4>
@compartment extern bit<8> key(in bit<8> x);
header h_t { bit<48> dst; bit<48> src; bit<8> calls; bit<8> value; bit<8> number; }
struct headers { h_t h; }
struct metadata { }
parser P(packet_in p, out headers hdr, inout metadata m, inout standard_metadata_t std) {
    state start { p.extract(hdr.h); transition accept; }
}
control V(inout headers hdr, inout metadata m) { apply { } }
control I(inout headers hdr, inout metadata m, inout standard_metadata_t std) {
    apply {
        std.egress_spec = 2;
        if (hdr.h.calls >= 1) { hdr.h.value = key(hdr.h.value); }
        if (hdr.h.calls >= 2) { hdr.h.value = key(hdr.h.value); }
    }
}
control E(inout headers hdr, inout metadata m, inout standard_metadata_t std) { apply { } }
control D(packet_out p, in headers hdr) { apply { p.emit(hdr); } }
V1Switch(P(), V(), I(), E(), V(), D()) main;
";

/// The way a compartment answers a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    Honest,
    Refuses,
    TooShort,
    OtherFunction,
}

#[derive(Debug, Default)]
struct Far {
    /// Messages that are not answered.
    messages: VecDeque<Vec<u8>>,
    /// Answers that are ready.
    ready: VecDeque<Option<Vec<u8>>>,
    is_dead: bool,
    /// True if it answers each message at once.
    at_once: bool,
    /// The most messages, answered or not, that are not taken yet.
    room: Option<usize>,
}

/// A compartment whose answers the test decides.
#[derive(Clone, Debug, Default)]
pub(super) struct Compartment(Arc<Mutex<Far>>);

impl Compartment {
    fn settings(&self, fail: CallFail) -> Box<CallSettings> {
        Box::new(CallSettings { port: Box::new(self.clone()), deadline: DEADLINE, fail })
    }

    /// Answers this many messages.
    pub(super) fn answer(&self, count: usize, manner: Manner) {
        let mut far = self.0.lock().unwrap();
        for _ in 0..count {
            let Some(mut message) = far.messages.pop_front() else { return };
            message[RESULT] = keyed(message[NUMBERS]);
            match manner {
                Manner::Honest => {}
                Manner::Refuses => {
                    far.ready.push_back(None);
                    continue;
                }
                Manner::TooShort => message.truncate(RESULT + 1),
                Manner::OtherFunction => message[FUNCTION] = 9,
            }
            far.ready.push_back(Some(message));
        }
    }

    /// Has room for this many messages.
    pub(super) fn limit(&self, room: usize) {
        self.0.lock().unwrap().room = Some(room);
    }

    fn die(&self) {
        self.0.lock().unwrap().is_dead = true;
    }
}

impl CallPort for Compartment {
    fn submit(&mut self, message: &[u8]) -> Submitted {
        let mut far = self.0.lock().unwrap();
        if far.room.is_some_and(|room| far.messages.len() + far.ready.len() >= room) {
            return Submitted::Full;
        }
        far.messages.push_back(message.to_vec());
        if far.is_dead { Submitted::Dead } else { Submitted::Taken }
    }

    fn publish(&mut self) {
        let at_once = self.0.lock().unwrap().at_once;
        if at_once {
            self.answer(usize::MAX, Manner::Honest);
        }
    }

    fn take(&mut self, each: &mut dyn FnMut(Option<&[u8]>)) -> bool {
        let mut far = self.0.lock().unwrap();
        far.ready.drain(..).for_each(|answer| each(answer.as_deref()));
        !far.is_dead
    }
}

/// Does what the function does.
pub(super) fn keyed(x: u8) -> u8 {
    x.wrapping_mul(3).wrapping_add(1)
}

pub(super) const DEADLINE: Duration = Duration::from_secs(5);

pub(super) fn switch(fail: CallFail) -> (Switch<Memory>, Compartment) {
    let (program, traits) = load(&caller());
    let mut switch = Switch::new(Memory::new(2), vec![1, 2], program, traits).unwrap();
    let compartment = Compartment::default();
    assert!(switch.set_calls(Some(compartment.settings(fail))).is_none());
    (switch, compartment)
}

/// A packet of a flow, which makes so many calls.
pub(super) fn packet(flow: u8, calls: u8, number: u8) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, flow, 2, 0, 0, 0, 0, 9, calls, 7, number][..], &[0xab; 45]].concat()
}

pub(super) fn arrive(switch: &mut Switch<Memory>, packets: impl IntoIterator<Item = Vec<u8>>) {
    switch.io().input[0].extend(packets);
    switch.round().unwrap();
    assert!(switch.counts().balance(), "{:?}", switch.counts());
}

/// Runs some rounds, and returns value and number of each packet that left.
pub(super) fn left(switch: &mut Switch<Memory>) -> Vec<(u8, u8)> {
    for _ in 0..4 {
        switch.round().unwrap();
    }
    assert!(switch.counts().balance(), "{:?}", switch.counts());
    switch.io().output[1].iter().map(|p| (p[13], p[14])).collect()
}

pub(super) const ONCE: u8 = 22;
const TWICE: u8 = 67;

#[test]
fn packets_go_on_with_their_answers() {
    let (mut switch, compartment) = switch(CallFail::Drop);
    arrive(&mut switch, [packet(1, 1, 1), packet(2, 0, 2), packet(3, 2, 3)]);
    assert_eq!(left(&mut switch), [(7, 2)], "the others wait");
    assert!(switch.awaits_answers());
    assert_eq!(switch.counts().waiting, 2);
    let all = |m: &Vec<u8>| message(m).is_some_and(|whole| whole.len() == m.len());
    assert!(compartment.0.lock().unwrap().messages.iter().all(all), "no kept value leaves");
    compartment.answer(2, Manner::Honest);
    assert_eq!(left(&mut switch), [(7, 2), (ONCE, 1)]);
    compartment.answer(1, Manner::Honest);
    assert_eq!(left(&mut switch), [(7, 2), (ONCE, 1), (TWICE, 3)]);
    assert!(!switch.awaits_answers());
    assert!(switch.io().output[1].iter().all(|p| p[15..] == [0xab; 45]));
}

#[test]
fn packets_of_a_flow_keep_their_order_around_calls() {
    let (mut switch, compartment) = switch(CallFail::Drop);
    arrive(
        &mut switch,
        [packet(1, 2, 1), packet(1, 0, 2), packet(1, 1, 3), packet(2, 1, 4), packet(2, 0, 5)],
    );
    let mut seen = Vec::new();
    for _ in 0..6 {
        compartment.answer(1, Manner::Honest);
        seen.push(left(&mut switch).iter().map(|(_, number)| *number).collect::<Vec<_>>());
    }
    assert_eq!(seen.last().unwrap(), &[4, 5, 1, 2, 3], "{seen:?}");
    assert!(!switch.awaits_answers());
}

#[test]
fn without_an_answer_a_packet_may_go_on_with_zero() {
    let (mut switch, compartment) = switch(CallFail::Zero);
    arrive(&mut switch, [packet(1, 1, 1), packet(1, 1, 2), packet(2, 1, 3)]);
    compartment.answer(1, Manner::Refuses);
    compartment.answer(1, Manner::TooShort);
    switch.pass(DEADLINE);
    assert_eq!(left(&mut switch), [(0, 1), (0, 2), (0, 3)]);
    compartment.die();
    arrive(&mut switch, [packet(1, 1, 4)]);
    assert_eq!(left(&mut switch).last(), Some(&(0, 4)));
}

#[test]
fn a_dead_compartment_costs_its_own_packets_only() {
    let (mut switch, compartment) = switch(CallFail::Drop);
    arrive(&mut switch, [packet(1, 1, 1), packet(2, 0, 2)]);
    compartment.die();
    assert_eq!(left(&mut switch), [(7, 2)]);
    arrive(&mut switch, [packet(1, 1, 3), packet(2, 0, 4), packet(1, 0, 5)]);
    assert_eq!(left(&mut switch), [(7, 2), (7, 4), (7, 5)], "without a deadline");
    assert_eq!(switch.counts().dropped(DropReason::Unanswered), 2);
    let next = Compartment::default();
    switch.set_calls(Some(next.settings(CallFail::Drop)));
    arrive(&mut switch, [packet(1, 1, 6)]);
    next.answer(1, Manner::Honest);
    assert_eq!(left(&mut switch).last(), Some(&(ONCE, 6)));
    let missing = CallSettings { port: Box::new(NoCompartment), deadline: DEADLINE, fail: CallFail::Drop };
    switch.set_calls(Some(Box::new(missing)));
    arrive(&mut switch, [packet(1, 1, 7), packet(1, 0, 8)]);
    assert_eq!(left(&mut switch).last(), Some(&(7, 8)));
}

#[test]
fn a_lie_costs_the_packet_that_it_is_about() {
    let (mut switch, compartment) = switch(CallFail::Drop);
    arrive(&mut switch, (1..=4).map(|n| packet(n, 1, n)));
    for manner in [Manner::OtherFunction, Manner::Honest, Manner::TooShort, Manner::Refuses] {
        compartment.answer(1, manner);
    }
    assert_eq!(left(&mut switch), [(ONCE, 2)]);
    assert_eq!(switch.counts().dropped(DropReason::Unanswered), 3);
}

#[test]
fn packets_that_find_no_room_to_wait_are_counted() {
    let (mut switch, compartment) = switch(CallFail::Drop);
    for n in 0..MAX_CALLS + 100 {
        arrive(&mut switch, [packet(n as u8, 1, 0)]);
    }
    assert_eq!(switch.counts().dropped(DropReason::CallsFull), 100);
    arrive(&mut switch, [packet(0, 0, 0)]);
    assert_eq!(switch.counts().dropped(DropReason::CallsFull), 101, "it cannot wait for its flow");
    compartment.answer(MAX_CALLS, Manner::Honest);
    assert_eq!(left(&mut switch).len(), MAX_CALLS);
}

#[test]
fn another_program_comes_when_the_packets_have_gone_on() {
    let (mut switch, compartment) = switch(CallFail::Drop);
    arrive(&mut switch, [packet(1, 2, 1), packet(1, 1, 2)]);
    compartment.0.lock().unwrap().at_once = true;
    replace(&mut switch, &caller());
    assert_eq!(left(&mut switch), [(TWICE, 1), (ONCE, 2)]);
    // One that calls in vain ends, too.
    compartment.0.lock().unwrap().at_once = false;
    let short = CallSettings { deadline: Duration::from_millis(5), ..*compartment.settings(CallFail::Drop) };
    switch.set_calls(Some(Box::new(short)));
    arrive(&mut switch, [packet(1, 1, 3)]);
    replace(&mut switch, &caller());
    assert_eq!((switch.counts().dropped(DropReason::Unanswered), switch.awaits_answers()), (1, false));
}

#[test]
fn a_record_follows_a_packet_through_its_call() {
    let (mut switch, compartment) = switch(CallFail::Drop);
    switch.record(RecordFilter::default(), 1, false, DEADLINE * 9);
    arrive(&mut switch, [packet(1, 1, 1)]);
    compartment.answer(1, Manner::Honest);
    left(&mut switch);
    let (records, done) = switch.take_records(DEADLINE).unwrap();
    let steps = &records.packets[0].steps;
    assert!(
        done && matches!(steps.as_slice(), [Step::Called, Step::Answered { .. }, Step::Sent { port: 2, .. }])
    );
}

/// Replaces the program by this one, which takes no entries.
fn replace(switch: &mut Switch<Memory>, program: &Compiled) {
    let (program, traits) = load(program);
    switch.replace(program, traits, &[]);
}

fn caller() -> Compiled {
    compiled_with(CALLER, &Options { placement: Placement::Extern, ..Options::default() })
}

#[test]
fn a_replacement_gives_no_packet_an_earlier_ones_answer() {
    let (mut switch, compartment) = switch(CallFail::Zero);
    let short = CallSettings { deadline: Duration::from_millis(5), ..*compartment.settings(CallFail::Zero) };
    switch.set_calls(Some(Box::new(short)));
    // Its second call is given up.
    arrive(&mut switch, [packet(1, 2, 1)]);
    replace(&mut switch, &caller());
    let mut other = packet(1, 1, 2);
    other[13] = 100;
    arrive(&mut switch, [other]);
    compartment.answer(1, Manner::Honest);
    assert!(!left(&mut switch).contains(&(ONCE, 2)), "that is the other packet's");
}

#[test]
fn packets_go_on_before_their_thread_has_another_pipeline() {
    let (mut switch, compartment) = switch(CallFail::Drop);
    arrive(&mut switch, [packet(1, 1, 1), packet(1, 0, 2)]);
    let (program, traits) = load(&caller());
    let own = PipelineHandle::new(program, traits, Groups::default(), Sessions::default());
    compartment.answer(1, Manner::Honest);
    let _ = switch.exchange_pipeline(own);
    assert_eq!(left(&mut switch), [(ONCE, 1), (7, 2)]);
}

/// The first of two threads replaces the program while packets of the other one wait.
fn replaced_by_another(hold: bool) -> Switch<Memory> {
    let (mut first, compartment) = switch(CallFail::Drop);
    let mut second = first.seat().take(Memory::new(2)).unwrap();
    second.set_calls(Some(compartment.settings(CallFail::Drop)));
    arrive(&mut second, [packet(1, 1, 1), packet(1, 0, 2)]);
    compartment.answer(1, Manner::Honest);
    if hold {
        second.hold(DEADLINE);
        arrive(&mut second, [packet(1, 0, 3)]);
        assert_eq!((second.io().output[1].len(), second.io().input[0].len()), (2, 1), "one stays outside");
    }
    replace(&mut first, &caller());
    second
}

#[test]
fn what_a_packet_keeps_means_nothing_to_another_program() {
    let mut second = replaced_by_another(false);
    assert_eq!(left(&mut second), []);
    assert_eq!(second.counts().dropped(DropReason::Unanswered), 2);
}

#[test]
fn a_thread_that_holds_loses_no_packet_to_a_replacement() {
    let mut second = replaced_by_another(true);
    second.hold(Duration::ZERO);
    assert_eq!(left(&mut second), [(ONCE, 1), (7, 2), (7, 3)]);
    second.hold(DEADLINE);
    arrive(&mut second, [packet(1, 0, 4)]);
    second.pass(DEADLINE);
    assert_eq!(left(&mut second).len(), 4, "a thread that is not released receives again");
}

#[test]
fn a_packet_that_grew_behind_others_leaves_whole() {
    let more = "header more_t { bit<64> x; } struct headers { h_t h; more_t more; }";
    let grows = CALLER.replace("struct headers { h_t h; }", more);
    let grows =
        grows.replace("std.egress_spec = 2;", "std.egress_spec = 2; hdr.more.setValid(); hdr.more.x = 5;");
    let options = Options { placement: Placement::Extern, ..Options::default() };
    let (mut switch, compartment) = switch(CallFail::Drop);
    replace(&mut switch, &compiled_with(&grows, &options));
    let mut long = packet(1, 0, 2);
    long.resize(MAX_HEADER_BYTES as usize, 0xcd);
    arrive(&mut switch, [packet(1, 1, 1), long]);
    compartment.answer(1, Manner::Honest);
    left(&mut switch);
    let last = switch.io().output[1].last().unwrap();
    assert_eq!((last[14], last.len()), (2, MAX_HEADER_BYTES as usize + 8));
    assert!(last[23..].iter().rev().take(9_000).all(|b| *b == 0xcd));
}

#[test]
fn a_packet_that_has_a_place_may_call_again() {
    let (mut switch, compartment) = switch(CallFail::Drop);
    for n in 0..MAX_CALLS {
        arrive(&mut switch, [packet(n as u8, 2, 0)]);
    }
    // Two are of one flow: the second one's next call is behind that of the first.
    for _ in 0..3 {
        compartment.answer(MAX_CALLS, Manner::Honest);
        left(&mut switch);
    }
    assert_eq!(switch.counts().dropped(DropReason::CallsFull), 0);
    assert_eq!(left(&mut switch).len(), MAX_CALLS);
}

/// A program that names no port, as no compiler makes one with calls.
#[test]
fn a_packet_whose_port_is_gone_leaves_by_no_other() {
    let (mut switch, compartment) = switch(CallFail::Drop);
    let (program, traits) = load(&caller());
    switch.replace(program, Traits { architecture: Architecture::Ebpf, ..traits }, &[]);
    arrive(&mut switch, [packet(1, 1, 1)]);
    switch.delete_port(1, &mut None).unwrap();
    switch.add_port(3, &mut Some(0)).unwrap();
    compartment.answer(1, Manner::Honest);
    assert_eq!(left(&mut switch), []);
    assert!(switch.io().output[0].is_empty(), "that is port 3 now");
    assert_eq!(switch.counts().dropped(DropReason::NoPort), 1);
}

/// Calls in egress, of which it knows how long packets waited before it.
#[test]
fn packets_of_a_flow_keep_their_order_behind_a_queue() {
    let call = "if (hdr.h.calls >= 1) { hdr.h.value = key(hdr.h.value); }";
    let empty = "inout standard_metadata_t std) { apply { } }";
    let egress = "inout standard_metadata_t std) { apply { if (std.deq_qdepth < 99) { CALL } } }";
    let text = CALLER.replace(call, "").replace(empty, &egress.replace("CALL", call));
    let options = Options { placement: Placement::Extern, ..Options::default() };
    let (mut switch, compartment) = switch(CallFail::Drop);
    replace(&mut switch, &compiled_with(&text, &options));
    switch.set_queue(2, Some(QueueLimits::default())).unwrap();
    arrive(&mut switch, [packet(1, 1, 1), packet(1, 0, 2), packet(2, 0, 3), packet(1, 1, 4)]);
    assert_eq!(left(&mut switch), [(7, 3)]);
    compartment.answer(1, Manner::Honest);
    assert_eq!(left(&mut switch), [(7, 3), (ONCE, 1), (7, 2)]);
    compartment.answer(1, Manner::Honest);
    assert_eq!(left(&mut switch), [(7, 3), (ONCE, 1), (7, 2), (ONCE, 4)]);
}

/// An event while packets flow.
#[derive(Clone, Debug)]
enum Event {
    Packet(u8, u8),
    Answer(usize, Manner),
    Dies,
    Comes,
    TimePasses,
    Program,
}

fn event() -> impl Strategy<Value = Event> {
    let manners = vec![Manner::Refuses, Manner::TooShort, Manner::OtherFunction];
    prop_oneof![
        8 => (0..3_u8, 0..3_u8).prop_map(|(flow, calls)| Event::Packet(flow, calls)),
        4 => (0..9_usize).prop_map(|count| Event::Answer(count, Manner::Honest)),
        2 => (0..3_usize, prop::sample::select(manners)).prop_map(|(n, manner)| Event::Answer(n, manner)),
        1 => Just(Event::Dies),
        2 => Just(Event::Comes),
        1 => Just(Event::TimePasses),
        1 => Just(Event::Program),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: p4shield_need::extent(40, 200),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_packet_leaves_in_its_order_or_is_counted(events in prop::collection::vec(event(), 1..120)) {
        let (mut switch, mut compartment) = switch(CallFail::Drop);
        let compiled = caller();
        let mut number = 0;
        for event in events {
            match event {
                Event::Packet(flow, calls) => {
                    number += 1;
                    // Each packet has an answer of its own.
                    let mut packet = packet(flow, calls, number);
                    packet[13] = number;
                    switch.io().input[0].push_back(packet);
                }
                Event::Answer(count, manner) => compartment.answer(count, manner),
                Event::Dies => compartment.die(),
                Event::Comes => {
                    compartment = Compartment::default();
                    switch.set_calls(Some(compartment.settings(CallFail::Drop)));
                }
                Event::TimePasses => switch.pass(DEADLINE),
                Event::Program => {
                    compartment.0.lock().unwrap().at_once = true;
                    replace(&mut switch, &compiled);
                    compartment.0.lock().unwrap().at_once = false;
                }
            }
            switch.round().unwrap();
            prop_assert!(switch.counts().balance(), "{:?}", switch.counts());
        }
        switch.pass(2 * DEADLINE);
        left(&mut switch);
        switch.pass(2 * DEADLINE);
        left(&mut switch);
        prop_assert!(!switch.awaits_answers());
        prop_assert_eq!(switch.counts().waiting, 0);
        for p in &switch.io().output[1] {
            let value = (0..p[12]).fold(p[14], |value, _| keyed(value));
            prop_assert_eq!(p[13], value, "packet {} has another one's answer", p[14]);
        }
        for flow in 0..3 {
            let of_flow = switch.io().output[1].iter().filter(|p| p[5] == flow).map(|p| p[14]);
            let numbers: Vec<u8> = of_flow.collect();
            prop_assert!(numbers.is_sorted(), "{numbers:?}");
        }
    }
}
