//! Placement `inline`: the same queues and promises, with programs in the mediator's own thread.

use crate::common::*;
use p4shield_abi::channel::Request;
use p4shield_channel::Response;
use p4shield_mediator::{Disposition, FailPolicy, InlineBatch, InlineEngine, Reason};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// State that a test shares with its engine.
#[derive(Clone, Default)]
struct TestEngine {
    /// Another thread uses the engine.
    busy: Arc<AtomicBool>,
    judged: Arc<AtomicU32>,
    /// Bytes by which a rewritten packet exceeds its limit.
    excess: u32,
}

impl InlineEngine for TestEngine {
    fn run(&mut self, work: &mut dyn FnMut(&mut dyn InlineBatch)) -> bool {
        if self.busy.load(Relaxed) {
            return false;
        }
        work(&mut Program { engine: self, header: Vec::new() });
        true
    }
}

struct Program<'a> {
    engine: &'a TestEngine,
    header: Vec<u8>,
}

impl InlineBatch for Program<'_> {
    fn header_bytes(&self) -> usize {
        48
    }

    /// Passes, drops or rewrites, by the packet's serial number.
    fn judge(&mut self, request: &Request, header: &[u8]) -> Response<'_> {
        assert_eq!((usize::from(request.copy_len), header.len()), (48, 48), "as much as over a channel");
        self.engine.judged.fetch_add(1, Relaxed);
        let serial = u32::from_be_bytes(header[SERIAL_AT..SERIAL_AT + 4].try_into().expect("four bytes"));
        match serial % 3 {
            0 => Response::Pass,
            1 => Response::Drop,
            _ => {
                self.header = header.to_vec();
                self.header[22] = 7;
                Response::Rewritten {
                    header: &self.header,
                    packet_len: request.packet_len + self.engine.excess,
                }
            }
        }
    }
}

const DROPPED: Disposition = Disposition::Drop(Reason::Program);

#[test]
fn packets_are_judged_in_the_poll_that_follows_in_order() {
    let mut m = mediator(&tenants(1));
    m.attach_inline(0, Box::new(TestEngine::default())).expect("the tenant exists");
    assert!(m.is_attached(0));
    m.submit_burst(0, &SHARED, (0..6).map(|n| packet(n, 1, 99)), |_| panic!("not before the poll"));
    let mut out = Vec::new();
    assert_eq!(m.poll(0, 32, |r| out.push((r.packet.serial, r.disposition, r.packet.bytes[22]))), 4);
    let expected =
        [(0, PASS, 64), (1, DROPPED, 64), (2, PASS, 7), (3, PASS, 64), (4, DROPPED, 64), (5, PASS, 7)];
    assert_eq!(out, expected);
    assert_eq!((m.held(), m.next_deadline(0)), (0, None));
}

#[test]
fn a_packet_between_two_tenants_takes_one_poll() {
    let mut m = mediator(&tenants(2));
    let judged = Arc::new(AtomicU32::new(0));
    for t in 0..2 {
        let engine = TestEngine { judged: Arc::clone(&judged), ..TestEngine::default() };
        m.attach_inline(t, Box::new(engine)).expect("the tenant exists");
    }
    assert!(m.submit(0, &SHARED, packet(2, 1, 11)).is_none());
    assert_eq!(poll(&mut m, 0), [(2, PASS)]);
    assert_eq!(judged.load(Relaxed), 2, "by the sender's program and by the receiver's");
}

#[test]
fn a_busy_engine_is_not_waited_for() {
    let mut m = mediator(&tenants(1));
    let engine = TestEngine::default();
    m.attach_inline(0, Box::new(engine.clone())).expect("the tenant exists");
    engine.busy.store(true, Relaxed);
    m.submit_burst(0, &SHARED, [packet(0, 1, 99), packet(3, 1, 99)], |_| panic!("held"));
    assert_eq!(poll(&mut m, 1), []);
    assert_eq!((m.held(), m.next_deadline(1)), (2, Some(1)), "work at once");
    engine.busy.store(false, Relaxed);
    m.submit_burst(2, &SHARED, [packet(6, 1, 99)], |_| panic!("held"));
    assert_eq!(poll(&mut m, 2), [(0, PASS), (3, PASS), (6, PASS)]);
    engine.busy.store(true, Relaxed);
    m.submit_burst(3, &SHARED, [packet(9, 1, 99)], |_| panic!("held"));
    assert_eq!(poll(&mut m, 3 + DEADLINE), [(9, Disposition::Drop(Reason::Deadline))]);
    engine.busy.store(false, Relaxed);
    assert_eq!(poll(&mut m, 4 + DEADLINE), []);
    assert_eq!(engine.judged.load(Relaxed), 3, "a packet that left is not judged");
}

#[test]
fn a_placement_change_keeps_waiting_packets() {
    let mut m = mediator(&tenants(1));
    let _silent = attach(&mut m, 0, 0, GEOMETRY);
    assert!(m.submit(0, &SHARED, packet(0, 1, 99)).is_none());
    assert_eq!(poll(&mut m, 0), []);
    let engine = TestEngine::default();
    m.attach_inline(0, Box::new(engine.clone())).expect("the tenant exists");
    assert_eq!(poll(&mut m, 0), [(0, PASS)]);
    engine.busy.store(true, Relaxed);
    assert!(m.submit(1, &SHARED, packet(3, 1, 99)).is_none());
    assert_eq!(poll(&mut m, 1), []);
    let mut p4vm = attach(&mut m, 1, 0, GEOMETRY);
    assert_eq!(p4vm.pass_all(), 1);
    assert_eq!(poll(&mut m, 1), [(3, PASS)]);
}

#[test]
fn a_rewrite_beyond_its_bounds_is_dropped() {
    let mut m = mediator(&tenants(1));
    let engine = TestEngine { excess: 1, ..TestEngine::default() };
    m.attach_inline(0, Box::new(engine)).expect("the tenant exists");
    assert!(m.submit(0, &SHARED, packet(2, 1, 99)).is_none());
    assert_eq!(poll(&mut m, 0), [(2, DROPPED)]);
}

#[test]
fn a_full_queue_keeps_its_bounds_and_its_order() {
    let mut config = tenants(1);
    config.tenants[0].fail = FailPolicy::Pass;
    let mut m = mediator(&config);
    let engine = TestEngine::default();
    m.attach_inline(0, Box::new(engine.clone())).expect("the tenant exists");
    engine.busy.store(true, Relaxed);
    let mut out = Vec::new();
    m.submit_burst(0, &SHARED, (0..10).map(|n| packet(3 * n, 1, 99)), |r| {
        out.push((r.packet.serial, r.disposition))
    });
    assert_eq!(out, [(0, PASS), (3, PASS)], "the oldest make room");
    assert_eq!(m.held(), 8);
    engine.busy.store(false, Relaxed);
    assert_eq!(poll(&mut m, 0), (2..10).map(|n| (3 * n, PASS)).collect::<Vec<_>>());
    assert_eq!(engine.judged.load(Relaxed), 8);
}
