//! A switch with several packet threads.

use super::{Memory, compiled, load, packet, router};
use crate::{BATCH, Bell, Counts, DropReason, QueueLimits, RecordFilter, Switch, Way, link};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A bell that counts.
fn bell(rung: &Arc<AtomicUsize>) -> Bell {
    let rung = Arc::clone(rung);
    Arc::new(move || {
        rung.fetch_add(1, Ordering::Relaxed);
    })
}

/// A switch with two threads. The first one has port 1, the second one ports 2 and 3.
fn two(mut first: Switch<Memory>) -> ([Switch<Memory>; 2], [Arc<AtomicUsize>; 2]) {
    let mut second = first.seat().take(Memory::new(3)).unwrap();
    first.io().there = vec![true, false, false];
    second.io().there = vec![false, true, true];
    let rung: [Arc<AtomicUsize>; 2] = Default::default();
    let mut links = link(&rung.each_ref().map(bell)).into_iter();
    let other = |thread| Way { thread: Some(thread), has_queue: false };
    first.set_links(links.next().unwrap(), &[Way::OWN, other(1), other(1)]);
    second.set_links(links.next().unwrap(), &[other(0), Way::OWN, Way::OWN]);
    ([first, second], rung)
}

/// Returns the counts of both.
fn sum(first: &Switch<Memory>, second: &Switch<Memory>) -> Counts {
    let mut counts = first.counts().clone();
    counts.add(second.counts());
    counts.ports.extend(second.counts().ports.iter().copied());
    counts
}

#[test]
fn another_thread_sends_by_its_port_in_order() {
    let ([mut first, mut second], rung) = two(router());
    let sent: Vec<_> = (0..200_u8).map(|n| packet([10, 0, 2, n], 6, usize::from(n))).collect();
    assert!(second.doze(), "nothing has come yet");
    let mut left = sent.clone();
    left.iter_mut().for_each(|p| p[22] -= 1);
    for batch in sent.chunks(BATCH) {
        first.io().input[0].extend(batch.iter().cloned());
        assert_eq!(first.round().unwrap(), batch.len());
        assert!(first.io().output[1].is_empty() && sum(&first, &second).balance());
    }
    assert_eq!(rung.map(|r| r.load(Ordering::Relaxed)), [0, 1], "only one that sleeps is woken, and once");
    assert!(!second.doze(), "packets have come");
    second.awake();
    while second.round().unwrap() > 0 {}
    assert_eq!(second.io().output[1], left);
    let counts = sum(&first, &second);
    assert!(counts.balance() && counts.waiting == 0, "{counts:?}");
}

#[test]
fn what_a_thread_has_no_buffer_for_is_dropped() {
    let ([mut first, second], _) = two(router());
    first.io().input[0].extend((0..3000).map(|_| packet([10, 0, 3, 1], 6, 0)));
    while first.round().unwrap() > 0 {}
    let counts = sum(&first, &second);
    assert_eq!((counts.waiting, counts.dropped(DropReason::NoRoom)), (2048, 952));
    assert!(counts.balance());
}

#[test]
fn a_deleted_port_gets_nothing_that_was_on_its_way() {
    let ([mut first, mut second], _) = two(router());
    first.io().input[0].extend((0..3).map(|_| packet([10, 0, 2, 1], 6, 0)));
    first.round().unwrap();
    second.delete_port(2, &mut None).unwrap();
    second.round().unwrap();
    let counts = sum(&first, &second);
    assert_eq!((counts.dropped(DropReason::NoPort), counts.waiting), (3, 0));
    assert!(counts.balance());
}

#[test]
fn a_queue_is_served_by_the_thread_of_its_port() {
    let ([mut first, mut second], _) = two(router());
    let limits = QueueLimits { packets: Some(1000), ..QueueLimits::default() };
    first.set_queue(2, Some(limits)).unwrap();
    first.io().input[0].extend((0..5).map(|n| packet([10, 0, 2, n], 6, 0)));
    first.round().unwrap();
    assert_eq!((first.queues(), first.next_release()), (second.queues(), None));
    let waiting = first.queues()[0].waiting;
    assert_eq!((waiting, second.next_release().is_some()), (5, true));
    second.pass(Duration::from_millis(10));
    second.round().unwrap();
    assert_eq!(second.io().output[1].len() + second.queues()[0].waiting as usize, 5);
    first.set_queue(2, None).unwrap();
    second.round().unwrap();
    assert_eq!(second.io().output[1].len(), 5, "what waits when the queue ends leaves");
    let counts = sum(&first, &second);
    assert!(counts.balance() && counts.waiting == 0, "{counts:?}");
}

/// Counts packets in a register, by reading and writing it.
const COUNTER: &str = r"
#include <v1model.p4>
header h_t { bit<32> n; }
struct headers { h_t h; }
struct metadata { }
parser P(packet_in p, out headers hdr, inout metadata m, inout standard_metadata_t std) {
    state start { p.extract(hdr.h); transition accept; }
}
control V(inout headers hdr, inout metadata m) { apply { } }
control I(inout headers hdr, inout metadata m, inout standard_metadata_t std) {
    register<bit<32>>(1) total;
    apply {
        total.read(hdr.h.n, 0);
        hdr.h.n = hdr.h.n + 1;
        total.write(0, hdr.h.n);
        std.egress_spec = std.ingress_port;
    }
}
control E(inout headers hdr, inout metadata m, inout standard_metadata_t std) { apply { } }
control D(packet_out p, in headers hdr) { apply { p.emit(hdr); } }
V1Switch(P(), V(), I(), E(), V(), D()) main;
";

#[test]
fn threads_share_registers_as_if_they_were_one() {
    const EACH: u32 = 20_000;
    let (program, traits) = load(&compiled(COUNTER));
    let first = Switch::new(Memory::new(1), vec![1], program, traits).unwrap();
    let mut switches =
        [first.seat().take(Memory::new(1)).unwrap(), first.seat().take(Memory::new(1)).unwrap()];
    std::thread::scope(|threads| {
        for switch in &mut switches {
            threads.spawn(|| {
                switch.io().input[0].extend((0..EACH).map(|_| vec![0; 14]));
                while switch.round().unwrap() > 0 {}
            });
        }
    });
    let number = |p: &Vec<u8>| u32::from_be_bytes(*p.first_chunk().unwrap());
    let mut all: Vec<u32> = switches.iter_mut().flat_map(|s| s.io().output[0].iter().map(number)).collect();
    all.sort_unstable();
    assert!(all.into_iter().eq(1..=2 * EACH), "every packet has a number of its own");
}

#[test]
fn a_recording_sees_the_packets_of_all_threads() {
    let ([mut first, mut second], _) = two(router());
    second.record(RecordFilter::default(), 10, false, Duration::from_secs(1));
    first.io().input[0].push_back(packet([10, 0, 2, 1], 6, 0));
    second.io().input[1].push_back(packet([10, 0, 1, 1], 6, 0));
    first.round().unwrap();
    second.round().unwrap();
    let (records, _) = first.take_records(Duration::from_secs(1)).unwrap();
    assert_eq!(records.packets.iter().map(|r| r.port).collect::<Vec<_>>(), [1, 2]);
    first.stop_recording();
    assert!(!second.is_recording());
}

#[test]
fn a_thread_with_a_pipeline_of_its_own_waits_for_no_other() {
    let (mut first, mut second) = (router(), router());
    let mut switches = [first.seat(), first.seat()].map(|seat| seat.take(Memory::new(3)).unwrap());
    let shared = switches[1].exchange_pipeline(second.pipeline_handle());
    let _held = shared.lock();
    switches[1].io().input[0].push_back(packet([10, 0, 2, 1], 6, 0));
    switches[1].round().unwrap();
    assert_eq!(switches[1].io().output[1].len(), 1);
    // The queues stay common.
    let limits = QueueLimits { packets: Some(1), ..QueueLimits::default() };
    switches[1].set_queue(3, Some(limits)).unwrap();
    assert_eq!(switches[0].queues()[0].port, 3);
    assert!(first.io().output[1].is_empty() && second.io().output[1].is_empty());
}
