//! Records of packets, and the program compiled for tracing that runs meanwhile.

use super::{Memory, compiled, compiled_with, load, packet, router};
use crate::{DropReason, InjectError, RecordFilter, Step, Switch, Twin};
use p4shield_p4::Options;
use p4shield_traffic::{Copy, Event};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);

/// Counts packets in a register, and floods those of group 7.
const COUNTER: &str = r"
#include <v1model.p4>
header h_t { bit<8> what; bit<8> count; }
struct headers { h_t h; }
struct metadata { }
parser P(packet_in p, out headers hdr, inout metadata m, inout standard_metadata_t std) {
    state start { p.extract(hdr.h); transition accept; }
}
control V(inout headers hdr, inout metadata m) { apply { } }
control I(inout headers hdr, inout metadata m, inout standard_metadata_t std) {
    register<bit<8>>(1) seen;
    apply {
        seen.read(hdr.h.count, 0);
        seen.write(0, hdr.h.count + 1);
        if (hdr.h.what == 1) { std.egress_spec = 2; } else { std.mcast_grp = 7; }
    }
}
control E(inout headers hdr, inout metadata m, inout standard_metadata_t std) { apply { } }
control D(packet_out p, in headers hdr) { apply { p.emit(hdr); } }
V1Switch(P(), V(), I(), E(), V(), D()) main;
";

/// A switch with ports 1, 2 and 3, and the twin of its program.
fn counter() -> Switch<Memory> {
    let plain = compiled(COUNTER);
    let (program, traits) = load(&plain);
    let mut switch = Switch::new(Memory::new(3), vec![1, 2, 3], program, traits).unwrap();
    switch
        .pipeline()
        .traffic
        .groups
        .set(7, vec![Copy { port: 2, replica: 1 }, Copy { port: 3, replica: 2 }])
        .unwrap();
    let options = Options { trace: true, ..Options::default() };
    let (program, traits) = load(&compiled_with(COUNTER, &options));
    let maps = vec![plain.facts.arrays[0].map.clone()];
    assert!(switch.set_twin(Some(Twin { program, traits, maps })).is_none());
    switch
}

fn judge(switch: &mut Switch<Memory>, what: u8) {
    switch.io().input[0].push_back([&[what, 0][..], &[0xab; 40]].concat());
    switch.round().unwrap();
    assert!(switch.counts().balance(), "{:?}", switch.counts());
}

/// Returns the counts in the packets that left by port 2.
fn counted(switch: &mut Switch<Memory>) -> Vec<u8> {
    switch.io().output[1].iter().map(|p| p[1]).collect()
}

fn events(steps: &[Step]) -> usize {
    steps.iter().filter(|s| matches!(s, Step::Program(_))).count()
}

#[test]
fn registers_stay_when_a_trace_begins_and_ends() {
    let mut switch = counter();
    judge(&mut switch, 1);
    switch.record(RecordFilter::default(), 2, true, LONG);
    judge(&mut switch, 1);
    judge(&mut switch, 1);
    let (records, done) = switch.take_records(LONG).unwrap();
    assert!(done);
    judge(&mut switch, 1);
    switch.stop_recording();
    judge(&mut switch, 1);
    assert_eq!(counted(&mut switch), [0, 1, 2, 3, 4]);
    assert_eq!(records.packets.len(), 2, "the third is one too many");
    for record in &records.packets {
        assert!(events(&record.steps) >= 5, "{record:?}");
        assert!(matches!(record.steps.last(), Some(Step::Sent { port: 2, bytes }) if bytes.len() == 42));
    }
    assert!(switch.take_records(LONG).is_none());
}

#[test]
fn each_copy_of_a_packet_has_its_steps() {
    let mut switch = counter();
    switch.record(RecordFilter::default(), 1, true, LONG);
    judge(&mut switch, 2);
    let (records, _) = switch.take_records(LONG).unwrap();
    let steps = &records.packets[0].steps;
    let fates: Vec<_> = steps.iter().filter(|s| !matches!(s, Step::Program(_))).collect();
    let [
        Step::Traffic(Event::Replicated),
        Step::Traffic(Event::Copied),
        Step::Sent { port: 2, .. },
        rest @ ..,
    ] = fates.as_slice()
    else {
        panic!("{fates:?}")
    };
    assert!(matches!(rest, [Step::Traffic(Event::Copied), Step::Sent { port: 3, .. }]), "{rest:?}");
    // Egress runs for each copy, between the steps of the traffic manager.
    assert!(matches!(steps[steps.len() - 2], Step::Program(_)), "{steps:?}");
}

#[test]
fn a_recording_ends_without_its_client() {
    let mut switch = counter();
    switch.record(RecordFilter::default(), 9, true, Duration::ZERO);
    judge(&mut switch, 1);
    assert!(!switch.is_recording());
    assert!(switch.take_records(LONG).is_none());
    judge(&mut switch, 1);
    assert_eq!(counted(&mut switch), [0, 1]);
}

#[test]
fn another_program_ends_a_recording() {
    let mut switch = counter();
    switch.record(RecordFilter::default(), 9, true, LONG);
    let plain = compiled(COUNTER);
    let (program, traits) = load(&plain);
    let (before, twin) = switch.replace(program, traits, &[]);
    assert!(twin.is_some() && !switch.is_recording());
    assert_eq!(before.digest(), load(&plain).0.digest(), "the plain one, not its twin");
    assert_ne!(twin.unwrap().program.digest(), before.digest());
}

#[test]
fn a_filter_chooses_by_port_way_and_fate() {
    let recorded = |filter: RecordFilter| {
        let mut switch = router();
        switch.record(filter, 100, false, LONG);
        for port in 0..2 {
            for to in 1..=3 {
                switch.io().input[port].push_back(packet([10, 0, to, 1], 6, 20));
            }
            switch.io().input[port].push_back(packet([10, 9, 9, 9], 6, 20));
        }
        while switch.round().unwrap() > 0 {}
        let (records, done) = switch.take_records(LONG).unwrap();
        assert!(!done);
        records.packets
    };
    assert_eq!(recorded(RecordFilter::default()).len(), 8);
    let from = recorded(RecordFilter { port: Some(2), ..RecordFilter::default() });
    assert!(from.len() == 4 && from.iter().all(|r| r.port == 2), "{from:?}");
    let to = recorded(RecordFilter { leaves_by: Some(3), ..RecordFilter::default() });
    assert!(to.len() == 2 && to.iter().all(|r| r.bytes[32] == 3), "{to:?}");
    let dropped = recorded(RecordFilter { dropped: true, ..RecordFilter::default() });
    assert!(dropped.iter().all(|r| r.steps == [Step::Dropped(DropReason::Program)]), "{dropped:?}");
    assert_eq!(dropped.len(), 2);
    assert!(recorded(RecordFilter { through: vec![1], ..RecordFilter::default() }).is_empty(), "no events");
}

#[test]
fn records_without_room_are_counted() {
    let mut switch = router();
    switch.record(RecordFilter::default(), u64::MAX, false, LONG);
    for _ in 0..3000 {
        switch.io().input[0].push_back(packet([10, 0, 2, 1], 6, 2000));
        switch.round().unwrap();
        switch.io().output[1].clear();
    }
    let (records, _) = switch.take_records(LONG).unwrap();
    assert!(records.missed > 0, "{} packets", records.packets.len());
    assert_eq!(records.packets.len() as u64 + records.missed, 3000);
    let kept: usize = records.packets.iter().map(|r| r.bytes.len()).sum();
    assert!(kept < 4 << 20, "{kept}");
}

#[test]
fn an_injected_packet_counts_as_received() {
    let mut switch = counter();
    switch.record(RecordFilter::default(), 1, true, LONG);
    switch.inject(3, &[1, 0, 5]).unwrap();
    let (records, done) = switch.take_records(LONG).unwrap();
    assert!(done && records.packets[0].port == 3);
    assert_eq!(switch.counts().ports[2].received, 1);
    assert_eq!(switch.io().output[1], [vec![1, 0, 5]]);
    assert!(switch.counts().balance());
    assert_eq!(switch.inject(9, &[1]), Err(InjectError::NoPort(9)));
    assert_eq!(switch.inject(1, &[0; 1 << 16]), Err(InjectError::TooLong(1 << 16)));
}
