//! Packets that wait for a port with a rate.

use super::{Memory, compiled, load, packet, router};
use crate::{DropReason, QueueError, QueueLimits, Switch};
use p4shield_traffic::MAX_RUNS;

pub(super) fn limits(packets: u64, depth: u32) -> Option<QueueLimits> {
    Some(QueueLimits { packets: Some(packets), bits: None, depth: Some(depth) })
}

/// Serves the switch until no packet waits.
pub(super) fn drain(switch: &mut Switch<Memory>) {
    while switch.counts().waiting > 0 {
        switch.round().unwrap();
        assert!(switch.counts().balance(), "{:?}", switch.counts());
    }
}

/// Writes into the packet what egress knows of the queue.
pub(super) const PROBE: &str = r"
#include <v1model.p4>
header h_t { bit<32> before; bit<32> after; bit<32> waited; bit<32> at; bit<32> port; }
struct headers { h_t h; }
struct meta_t { }
parser P(packet_in p, out headers hdr, inout meta_t m, inout standard_metadata_t std) {
    state start { p.extract(hdr.h); transition accept; }
}
control V(inout headers hdr, inout meta_t m) { apply { } }
control I(inout headers hdr, inout meta_t m, inout standard_metadata_t std) {
    apply { std.egress_spec = (bit<9>) hdr.h.port; }
}
control E(inout headers hdr, inout meta_t m, inout standard_metadata_t std) {
    apply {
        hdr.h.before = (bit<32>) std.enq_qdepth;
        hdr.h.after = (bit<32>) std.deq_qdepth;
        hdr.h.waited = std.deq_timedelta;
        hdr.h.at = std.enq_timestamp;
        hdr.h.port = (bit<32>) std.egress_port;
    }
}
control D(packet_out p, in headers hdr) { apply { p.emit(hdr); } }
V1Switch(P(), V(), I(), E(), V(), D()) main;
";

pub(super) fn probe() -> Switch<Memory> {
    let (program, traits) = load(&compiled(PROBE));
    assert!(traits.reads_queues && traits.divided);
    Switch::new(Memory::new(3), vec![1, 2, 3], program, traits).unwrap()
}

/// A packet that the probe sends to a port.
pub(super) fn to(port: u8) -> Vec<u8> {
    [&[0; 19][..], &[port], &[0xab; 40]].concat()
}

/// Returns the five numbers in a packet.
fn numbers(packet: &[u8]) -> [u32; 5] {
    std::array::from_fn(|i| u32::from_be_bytes(packet[4 * i..4 * i + 4].try_into().unwrap()))
}

#[test]
fn packets_wait_for_the_rate_of_their_port() {
    let mut switch = router();
    switch.set_queue(2, limits(1_000, 4)).unwrap();
    let sent: Vec<_> = (0..10).map(|n| packet([10, 0, 2, n], 6, 0)).collect();
    switch.io().input[0].extend(sent.iter().cloned().chain([packet([10, 0, 3, 1], 6, 0)]));
    switch.round().unwrap();
    assert!(switch.counts().waiting >= 1 && switch.counts().balance(), "{:?}", switch.counts());
    assert_eq!(switch.io().output[2].len(), 1, "another port has no queue");
    assert_eq!(switch.counts().dropped(DropReason::Queue), 6);
    assert!(switch.next_release().is_some());
    drain(&mut switch);
    let left: Vec<u8> = switch.io().output[1].iter().map(|p| p[33]).collect();
    assert_eq!(left, [0, 1, 2, 3], "in their order");
    let state = switch.queues()[0];
    assert_eq!((state.port, state.waiting, state.dropped), (2, 0, 6));
    assert_eq!(switch.next_release(), None);
}

#[test]
fn packets_of_a_greater_priority_leave_a_queue_first() {
    let sets = PROBE.replace("std.egress_spec =", "std.priority = (bit<3>) hdr.h.at; std.egress_spec =");
    let behind = ["enq_qdepth", "deq_qdepth", "deq_timedelta", "enq_timestamp"]
        .iter()
        .fold(sets.clone(), |text, field| text.replace(&format!("std.{field}"), "8w0"));
    assert_ne!(sets, behind);
    for text in [sets, behind.replace("= 8w0", "= (bit<32>) 8w0")] {
        let (program, traits) = load(&compiled(&text));
        let mut switch = Switch::new(Memory::new(3), vec![1, 2, 3], program, traits).unwrap();
        switch.set_queue(2, limits(2_000, 4)).unwrap();
        let of = |priority: u8, mark: u8| {
            let mut packet = to(2);
            (packet[15], packet[20]) = (priority, mark);
            packet
        };
        let sent = [of(0, 1), of(3, 2), of(0, 3), of(7, 4), of(3, 5), of(0, 6)];
        switch.io().input[0].extend(sent);
        switch.round().unwrap();
        drain(&mut switch);
        let left: Vec<u8> = switch.io().output[1].iter().map(|p| p[20]).collect();
        assert_eq!(left, [4, 2, 5, 1]);
        assert_eq!(switch.counts().dropped(DropReason::Queue), 2);
        assert!(switch.counts().balance(), "{:?}", switch.counts());
    }
}

#[test]
fn egress_knows_how_long_a_packet_waited() {
    let mut switch = probe();
    switch.io().input[0].push_back(to(2));
    switch.round().unwrap();
    assert_eq!(numbers(&switch.io().output[1].remove(0)), [0, 0, 0, 0, 2], "there is no queue");
    switch.set_queue(2, limits(500, 3)).unwrap();
    switch.io().input[0].extend([to(2), to(2), to(2), to(2), to(3)]);
    switch.round().unwrap();
    drain(&mut switch);
    let packets = switch.io().output[1].clone();
    assert!(packets.iter().all(|p| p[20..] == [0xab; 40]), "the payload stays");
    let all: Vec<_> = packets.iter().map(|p| numbers(p)).collect();
    assert_eq!(all.iter().map(|n| n[0]).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(all.iter().map(|n| n[1]).collect::<Vec<_>>(), [2, 1, 0]);
    assert!(all[2][2] > 0 && all[2][3] > 0 && all.iter().all(|n| n[4] == 2), "{all:?}");
    let elsewhere = numbers(&switch.io().output[2][0]);
    assert_eq!(elsewhere, [0, 0, 0, 0, 3], "that port has no queue");
    assert_eq!(switch.counts().dropped(DropReason::Queue), 1);
}

#[test]
fn a_loop_through_a_queue_ends() {
    let before = "        hdr.h.before = ";
    let text = PROBE.replace(before, &format!("        recirculate_preserving_field_list(0);\n{before}"));
    let (program, traits) = load(&compiled(&text));
    let mut switch = Switch::new(Memory::new(3), vec![1, 2, 3], program, traits).unwrap();
    switch.set_queue(2, limits(1_000_000, 8)).unwrap();
    switch.io().input[0].push_back(to(2));
    switch.round().unwrap();
    drain(&mut switch);
    let counts = switch.counts();
    assert_eq!(counts.dropped(DropReason::Runs), 1);
    assert_eq!(counts.recirculated, MAX_RUNS as u64 / 2, "a loop is two runs");
}

#[test]
fn waiting_packets_survive_a_new_program() {
    let mut switch = probe();
    switch.set_queue(2, limits(1, 8)).unwrap();
    switch.io().input[0].extend((0..5).map(|_| to(2)));
    switch.round().unwrap();
    assert!(switch.counts().waiting >= 3);
    let (program, traits) = load(&compiled(PROBE));
    switch.replace(program, traits, &[]);
    assert_eq!((switch.counts().waiting, switch.io().output[1].len()), (0, 5));
    switch.io().input[0].extend((0..5).map(|_| to(2)));
    switch.round().unwrap();
    assert!(switch.counts().waiting >= 3);
    switch.set_queue(2, None).unwrap();
    assert_eq!((switch.counts().waiting, switch.io().output[1].len()), (0, 10));
    assert!(switch.counts().balance());
}

#[test]
fn queues_that_hold_nothing_are_refused() {
    let mut switch = router();
    assert_eq!(switch.set_queue(9, limits(1, 1)), Err(QueueError::NoPort(9)));
    assert_eq!(switch.set_queue(2, limits(1, 0)), Err(QueueError::Depth(0)));
    assert_eq!(switch.set_queue(2, limits(1, 5000)), Err(QueueError::Depth(5000)));
    assert_eq!(switch.set_queue(2, limits(0, 5)), Err(QueueError::Rate));
    assert_eq!(switch.queue_limits(2), Ok(None));
}
