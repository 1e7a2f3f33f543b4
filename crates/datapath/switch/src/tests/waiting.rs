//! Records of packets that wait in queues.

use super::queues::{PROBE, drain, limits, probe, to};
use super::{Memory, compiled, compiled_with, load, packet, router};
use crate::{DropReason, Record, RecordFilter, Step, Switch, Twin};
use p4shield_p4::Options;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);

/// Takes the records of all packets.
fn records(switch: &mut Switch<Memory>) -> Vec<Record> {
    switch.take_records(LONG).unwrap().0.packets
}

/// Returns the kinds of the steps, and the ports.
fn kinds(record: &Record) -> Vec<(&'static str, u16)> {
    let kind = |step: &Step| match step {
        Step::Program(_) => None,
        Step::Sent { port, .. } => Some(("sent", *port)),
        Step::Queued { port } => Some(("queued", *port)),
        Step::Waited { port, .. } => Some(("waited", *port)),
        Step::Dropped(reason) => Some((reason.name(), 0)),
        Step::Called | Step::Behind | Step::Answered { .. } | Step::Traffic(_) => Some(("traffic", 0)),
    };
    record.steps.iter().filter_map(kind).collect()
}

#[test]
fn a_record_follows_a_packet_through_its_queue() {
    let mut switch = router();
    // A packet each 10 ms: more than a queue makes up for at once, however late the first round is.
    switch.set_queue(2, limits(100, 4)).unwrap();
    switch.record(RecordFilter::default(), 9, false, LONG);
    let sent = [packet([10, 0, 2, 1], 6, 0), packet([10, 0, 2, 2], 6, 0), packet([10, 0, 3, 1], 6, 0)];
    switch.io().input[0].extend(sent.iter().cloned());
    switch.round().unwrap();
    switch.pass(Duration::from_millis(20));
    drain(&mut switch);
    let records = records(&mut switch);
    let through = vec![("queued", 2), ("waited", 2), ("sent", 2)];
    let fates: Vec<_> = records.iter().map(kinds).collect();
    assert_eq!(fates, [vec![("sent", 3)], through.clone(), through]);
    assert_eq!([&records[1].bytes, &records[2].bytes], [&sent[0], &sent[1]]);
    let waited = records[2].steps.iter().find_map(|s| match s {
        Step::Waited { time, .. } => Some(*time),
        _ => None,
    });
    assert!(waited >= Some(Duration::from_millis(1)), "{waited:?}");
}

#[test]
fn a_record_shows_egress_behind_the_queue() {
    let options = Options { trace: true, ..Options::default() };
    let mut switch = probe();
    let (program, traits) = load(&compiled_with(PROBE, &options));
    assert!(switch.set_twin(Some(Twin { program, traits, maps: Vec::new() })).is_none());
    switch.set_queue(2, limits(1_000, 4)).unwrap();
    switch.record(RecordFilter::default(), 9, true, LONG);
    switch.io().input[0].extend([to(2), to(2)]);
    switch.round().unwrap();
    drain(&mut switch);
    let records = records(&mut switch);
    assert_eq!(records.len(), 2);
    for record in &records {
        assert_eq!(kinds(record), [("queued", 2), ("waited", 2), ("sent", 2)]);
        let behind = record.steps.iter().skip_while(|s| !matches!(s, Step::Waited { .. }));
        assert!(behind.filter(|s| matches!(s, Step::Program(_))).count() > 0, "{record:?}");
    }
}

#[test]
fn a_record_ends_when_a_full_queue_drops_the_packet() {
    let sets = PROBE.replace("std.egress_spec =", "std.priority = (bit<3>) hdr.h.at; std.egress_spec =");
    let (program, traits) = load(&compiled(&sets));
    let mut switch = Switch::new(Memory::new(3), vec![1, 2, 3], program, traits).unwrap();
    switch.set_queue(2, limits(1_000, 1)).unwrap();
    switch.record(RecordFilter::default(), 9, false, LONG);
    let of = |priority: u8| {
        let mut packet = to(2);
        packet[15] = priority;
        packet
    };
    switch.io().input[0].extend([of(1), of(2), of(0)]);
    switch.round().unwrap();
    drain(&mut switch);
    let fates: Vec<_> = records(&mut switch).iter().map(|r| (r.bytes[15], kinds(r))).collect();
    let lost = DropReason::Queue.name();
    let through = vec![("queued", 2), ("waited", 2), ("sent", 2)];
    assert_eq!(fates, [(1, vec![("queued", 2), (lost, 0)]), (0, vec![(lost, 0)]), (2, through)]);
}

#[test]
fn a_later_recording_knows_no_packets_of_an_earlier_one() {
    let mut switch = router();
    switch.set_queue(2, limits(1_000, 4)).unwrap();
    for to in [1, 2] {
        switch.record(RecordFilter::default(), 9, false, LONG);
        switch.io().input[0].push_back(packet([10, 0, 2, to], 6, 0));
        switch.io().input[0].push_back(packet([10, 0, 2, to], 6, 0));
        switch.round().unwrap();
    }
    drain(&mut switch);
    let records = records(&mut switch);
    assert_eq!(records.iter().map(|r| r.bytes[33]).collect::<Vec<_>>(), [2, 2]);
    assert!(records.iter().all(|r| kinds(r) == [("queued", 2), ("waited", 2), ("sent", 2)]), "{records:?}");
}

#[test]
fn only_an_injected_packet_is_recorded_if_asked() {
    let mut switch = router();
    switch.set_queue(2, limits(1_000, 4)).unwrap();
    switch.record(RecordFilter { injected: true, ..RecordFilter::default() }, 1, false, LONG);
    switch.io().input[0].push_back(packet([10, 0, 2, 1], 6, 0));
    switch.round().unwrap();
    switch.inject(1, &packet([10, 0, 2, 2], 6, 0)).unwrap();
    assert!(!switch.take_records(LONG).unwrap().1);
    drain(&mut switch);
    let (records, done) = switch.take_records(LONG).unwrap();
    assert!(done && records.packets.len() == 1 && records.packets[0].bytes[33] == 2, "{records:?}");
}
