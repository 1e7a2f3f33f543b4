//! Both ends over real shared memory: honest ends, and each fault of a dishonest one.

use p4shield_abi::Verdict;
use p4shield_abi::channel::{
    ASLEEP_AT_FUTEX, Geometry, P4VM_FUTEX, P4VM_SLEEPS, REQUEST_HEAD, REWRITTEN, Request, SENT, VERDICT_HEAD,
};
use p4shield_channel::{
    ChannelError, ChannelFault, Doorbell, Memory, PushRefused, RequestBatch, Requester, Responder, Response,
    ResponseRefused, SharedMemory, Sleeper, create_channel,
};
use std::sync::atomic::Ordering::Relaxed;

const GEOMETRY: Geometry = Geometry { slots: 8, header_bytes: 100, headroom: 60 };

/// Returns both ends, and a mapping for tests in which the P4 VM or the mediator is hostile.
fn ends() -> (Requester, Responder, SharedMemory) {
    let memory = create_channel("test", GEOMETRY).expect("memory");
    let responder = Responder::new(memory.map_again().expect("memory"), GEOMETRY).expect("valid");
    let hostile = memory.map_again().expect("memory");
    (Requester::new(memory, GEOMETRY).expect("valid"), responder, hostile)
}

fn request(id: u64, packet_len: u32) -> Request {
    Request { id, packet_len, timestamp_ns: id + 1, input_port: 3, vm: 7, direction: 1, ..Request::default() }
}

/// Submits one packet of 200 bytes, of which 100 are in the request.
fn submit_one() -> (Requester, Responder, SharedMemory) {
    let (mut requester, responder, hostile) = ends();
    requester.push(&request(5, 200), &[9; 200]).expect("there is room");
    assert!(!requester.publish(), "the P4 VM is awake");
    (requester, responder, hostile)
}

/// Writes an answer and its rewrite record into slot 0 and publishes it, as a hostile P4 VM would.
fn answer_raw(memory: &SharedMemory, answer: u64, rewrite: u64) {
    memory.store_u64(GEOMETRY.answers(), answer, Relaxed);
    memory.store_u64(GEOMETRY.rewrites(), rewrite, Relaxed);
    memory.store_u32(VERDICT_HEAD, 1, Relaxed);
}

fn rewrite(packet_len: u32, start: u16, copy_len: u16) -> u64 {
    u64::from(packet_len) | u64::from(start) << 32 | u64::from(copy_len) << 48
}

const PASS: u64 = (Verdict::Pass as u64) << 32;
const PASS_REWRITTEN: u64 = PASS | (REWRITTEN as u64) << 40;

fn expect_fault(mut requester: Requester, expected: ChannelFault) {
    let mut given = 0;
    assert_eq!(requester.take(8, |_| given += 1), Err(expected));
    assert_eq!(given, 0, "no answer passes a fault");
    assert_eq!(requester.take(8, |_| given += 1), Err(expected), "a fault sticks");
    assert_eq!(requester.push(&request(6, 60), &[0; 60]), Err(PushRefused::Faulted(expected)));
    assert_eq!(requester.room(), 0);
    assert!(!requester.publish());
}

#[test]
fn requests_arrive_unchanged_and_answers_in_order() {
    let (mut requester, mut responder, _) = ends();
    assert_eq!(requester.header_bytes(), GEOMETRY.header_bytes as usize);
    let mut batch = RequestBatch::new(&GEOMETRY);
    let mut next = 0;
    for round in 0..100_u64 {
        let count = round % 8 + 1;
        for i in 0..count {
            let header: Vec<u8> = (0..60 + i as u8).collect();
            requester.push(&request(round * 10 + i, 60 + i as u32), &header).expect("there is room");
        }
        let _ = requester.publish();
        assert_eq!(responder.fetch(&mut batch), Ok(count as usize));
        for (i, entry) in (0..).zip(batch.iter_mut()) {
            let expected = Request { copy_len: 60 + i as u16, ..request(round * 10 + i, 60 + i as u32) };
            assert_eq!(*entry.request, expected);
            let header: Vec<u8> = (0..60 + i as u8).collect();
            assert_eq!(entry.frame[entry.start..][..entry.len], header);
            responder
                .respond(if i % 2 == 0 { Response::Pass } else { Response::Drop })
                .expect("a request is open");
        }
        let _ = responder.publish();
        let mut got = Vec::new();
        assert_eq!(requester.take(32, |a| got.push((a.id, a.verdict))), Ok(count as usize));
        let verdict = |i| if i % 2 == 0 { Verdict::Pass } else { Verdict::Drop };
        assert_eq!(got, (0..count).map(|i| (round * 10 + i, verdict(i))).collect::<Vec<_>>());
        next += count;
    }
    assert!(next > 3 * u64::from(GEOMETRY.slots), "the ring wraps");
}

#[test]
fn a_full_channel_refuses_and_recovers() {
    let (mut requester, mut responder, _) = ends();
    for id in 0..8 {
        requester.push(&request(id, 60), &[1; 60]).expect("there is room");
    }
    assert_eq!(requester.push(&request(8, 60), &[1; 60]), Err(PushRefused::Full));
    assert_eq!((requester.room(), requester.outstanding()), (0, 8));
    let _ = requester.publish();
    let mut batch = RequestBatch::new(&GEOMETRY);
    assert_eq!(responder.fetch(&mut batch), Ok(8));
    assert_eq!(requester.push(&request(8, 60), &[1; 60]), Err(PushRefused::Full), "fetched is not answered");
    responder.respond(Response::Pass).expect("a request is open");
    let _ = responder.publish();
    assert_eq!(requester.push(&request(8, 60), &[1; 60]), Err(PushRefused::Full), "answered is not taken");
    assert_eq!(requester.take(8, |_| ()), Ok(1));
    requester.push(&request(8, 60), &[1; 60]).expect("there is room again");
}

#[test]
fn unpublished_requests_are_invisible() {
    let (mut requester, mut responder, _) = ends();
    requester.push(&request(0, 60), &[1; 60]).expect("there is room");
    let mut batch = RequestBatch::new(&GEOMETRY);
    assert_eq!(responder.fetch(&mut batch), Ok(0));
    let _ = requester.publish();
    assert_eq!(responder.fetch(&mut batch), Ok(1));
    responder.respond(Response::Pass).expect("a request is open");
    assert_eq!(requester.take(8, |_| ()), Ok(0));
    let _ = responder.publish();
    assert_eq!(requester.take(8, |_| ()), Ok(1));
}

#[test]
fn headers_grow_to_the_frame_and_shrink_to_nothing() {
    for (len, packet_len) in [(160, 260), (160, 160), (101, 201), (1, 101), (0, 100), (0, 0)] {
        let (mut requester, mut responder, _) = submit_one();
        assert_eq!(responder.fetch_with(1, |_, frame| assert_eq!(frame.len(), 100)), Ok(1));
        let header: Vec<u8> = (0..len).map(|i| i as u8).collect();
        responder.respond(Response::Rewritten { header: &header, packet_len }).expect("it fits");
        let _ = responder.publish();
        let taken = requester.take(1, |answer| {
            let rewrite = answer.rewrite.expect("a rewrite");
            assert_eq!((rewrite.replaced, rewrite.packet_len), (100, packet_len));
            assert_eq!(rewrite.header, header);
        });
        assert_eq!(taken, Ok(1), "{len} bytes");
    }
}

#[test]
fn a_refused_rewrite_leaves_its_request_open() {
    for (len, packet_len) in [(161, 261), (100, 99), (100, 201), (0, 101)] {
        let (mut requester, mut responder, _) = submit_one();
        assert_eq!(responder.fetch_with(1, |_, _| ()), Ok(1));
        let refused = responder.respond(Response::Rewritten { header: &vec![0; len], packet_len });
        assert!(matches!(refused, Err(ResponseRefused::Rewrite { .. })), "{len} bytes of {packet_len}");
        responder.respond(Response::Drop).expect("it is still open");
        assert_eq!(responder.respond(Response::Drop), Err(ResponseRefused::NoOpenRequest));
        let _ = responder.publish();
        assert_eq!(requester.take(1, |a| assert_eq!(a.verdict, Verdict::Drop)), Ok(1));
    }
}

#[test]
fn faults_have_names_of_their_own_in_metrics() {
    let named = [
        (ChannelFault::Index { index: 0, base: 0, open: 0 }, "index"),
        (ChannelFault::Id { expected: 0, got: 1 }, "id"),
        (ChannelFault::Flags(2), "flags"),
        (ChannelFault::Bounds { start: 0, len: 0, frame: 0 }, "bounds"),
        (ChannelFault::Length { packet_len: 0, min: 1, max: 1 }, "length"),
    ];
    named.iter().for_each(|(fault, name)| assert_eq!(fault.name(), *name));
}

#[test]
fn more_answers_than_requests_is_a_fault() {
    for index in [2, 9, u32::MAX, 1 << 31] {
        let (requester, _, hostile) = submit_one();
        hostile.store_u32(VERDICT_HEAD, index, Relaxed);
        expect_fault(requester, ChannelFault::Index { index, base: 0, open: 1 });
    }
}

#[test]
fn an_answer_to_an_unpublished_request_is_a_fault() {
    let (mut requester, _, hostile) = ends();
    requester.push(&request(1, 60), &[0; 60]).expect("there is room");
    let _ = requester.publish();
    requester.push(&request(2, 60), &[0; 60]).expect("there is room");
    hostile.store_u32(VERDICT_HEAD, 2, Relaxed);
    expect_fault(requester, ChannelFault::Index { index: 2, base: 0, open: 1 });
    assert_eq!(hostile.load_u32(REQUEST_HEAD, Relaxed), 1, "after a fault nothing is published");
}

#[test]
fn an_index_that_goes_back_is_a_fault() {
    let (mut requester, mut responder, hostile) = submit_one();
    assert_eq!(responder.fetch_with(1, |_, _| ()), Ok(1));
    responder.respond(Response::Pass).expect("a request is open");
    let _ = responder.publish();
    assert_eq!(requester.take(1, |_| ()), Ok(1));
    requester.push(&request(6, 60), &[0; 60]).expect("there is room");
    let _ = requester.publish();
    hostile.store_u32(VERDICT_HEAD, 0, Relaxed);
    expect_fault(requester, ChannelFault::Index { index: 0, base: 1, open: 1 });
}

#[test]
fn an_answer_to_another_request_is_a_fault() {
    let (requester, _, hostile) = submit_one();
    answer_raw(&hostile, 4 | PASS, 0);
    expect_fault(requester, ChannelFault::Id { expected: 5, got: 4 });
}

#[test]
fn a_repeated_answer_is_a_fault() {
    let (mut requester, _, hostile) = submit_one();
    answer_raw(&hostile, 5 | PASS, 0);
    assert_eq!(requester.take(8, |_| ()), Ok(1));
    requester.push(&request(6, 60), &[0; 60]).expect("there is room");
    let _ = requester.publish();
    // The same answer in the slot of the next request.
    hostile.store_u64(GEOMETRY.answers() + 8, 5 | PASS, Relaxed);
    hostile.store_u32(VERDICT_HEAD, 2, Relaxed);
    expect_fault(requester, ChannelFault::Id { expected: 6, got: 5 });
}

#[test]
fn unknown_flags_are_a_fault_and_unknown_verdicts_drop() {
    let (requester, _, hostile) = submit_one();
    answer_raw(&hostile, 5 | PASS | 2 << 40, 0);
    expect_fault(requester, ChannelFault::Flags(2));
    let (mut requester, _, hostile) = submit_one();
    answer_raw(&hostile, 5 | 77 << 32, 0);
    assert_eq!(requester.take(1, |a| assert_eq!(a.verdict, Verdict::Drop)), Ok(1));
}

#[test]
fn a_rewrite_outside_its_frame_is_a_fault() {
    for (start, len) in [(0, 161), (160, 1), (161, 0), (u16::MAX, u16::MAX), (u16::MAX, 0)] {
        let (requester, _, hostile) = submit_one();
        answer_raw(&hostile, 5 | PASS_REWRITTEN, rewrite(200, start, len));
        expect_fault(requester, ChannelFault::Bounds { start, len, frame: 160 });
    }
}

#[test]
fn a_packet_length_that_contradicts_the_rewrite_is_a_fault() {
    for packet_len in [0, 49, 151, u32::MAX] {
        let (requester, _, hostile) = submit_one();
        answer_raw(&hostile, 5 | PASS_REWRITTEN, rewrite(packet_len, 0, 50));
        expect_fault(requester, ChannelFault::Length { packet_len, min: 50, max: 150 });
    }
}

#[test]
fn answers_before_a_fault_count() {
    let (mut requester, mut responder, hostile) = ends();
    for id in 0..3 {
        requester.push(&request(id, 60), &[0; 60]).expect("there is room");
    }
    let _ = requester.publish();
    assert_eq!(responder.fetch_with(2, |_, _| ()), Ok(2));
    responder.respond(Response::Pass).expect("a request is open");
    responder.respond(Response::Drop).expect("a request is open");
    hostile.store_u64(GEOMETRY.answers() + 2 * 8, 99, Relaxed);
    hostile.store_u32(VERDICT_HEAD, 3, Relaxed);
    let mut ids = Vec::new();
    assert_eq!(requester.take(8, |a| ids.push(a.id)), Err(ChannelFault::Id { expected: 2, got: 99 }));
    assert_eq!(ids, [0, 1]);
}

#[test]
fn more_requests_than_slots_is_a_fault() {
    for index in [10, u32::MAX] {
        let (mut requester, mut responder, hostile) = submit_one();
        assert_eq!(responder.fetch_with(32, |_, _| ()), Ok(1));
        let _ = requester.publish();
        hostile.store_u32(REQUEST_HEAD, index, Relaxed);
        let fault = ChannelFault::Index { index, base: 1, open: 7 };
        assert_eq!(responder.fetch_with(32, |_, _| panic!("no request passes a fault")), Err(fault));
        assert_eq!(responder.fault(), Some(fault));
    }
}

#[test]
fn false_lengths_in_requests_are_limited() {
    let (mut requester, mut responder, hostile) = ends();
    for (packet_len, copy_len, expected) in [(500, u16::MAX, 100), (40, 100, 40), (0, 1, 0)] {
        requester.push(&request(1, 60), &[0; 60]).expect("there is room");
        let slot = GEOMETRY.requests() + 32 * next_slot(&hostile);
        let _ = requester.publish();
        let word = hostile.load_u64(slot + 16, Relaxed) >> 32 << 32 | packet_len;
        hostile.store_u64(slot + 16, word, Relaxed);
        hostile.store_u64(slot + 24, u64::from(copy_len), Relaxed);
        let seen = responder.fetch_with(1, |r, frame| {
            assert_eq!((usize::from(r.copy_len), frame.len()), (expected, expected));
        });
        assert_eq!(seen, Ok(1));
        responder.respond(Response::Drop).expect("a request is open");
        let _ = responder.publish();
        assert_eq!(requester.take(1, |_| ()), Ok(1));
    }
}

fn next_slot(memory: &SharedMemory) -> usize {
    (memory.load_u32(REQUEST_HEAD, Relaxed) % GEOMETRY.slots) as usize
}

#[test]
fn a_sleeper_is_woken_once_until_it_was_awake() {
    let (mut requester, mut responder, _) = ends();
    assert!(responder.announce(), "no request is open");
    let submit = |requester: &mut Requester| {
        requester.push(&request(1, 60), &[0; 60]).expect("there is room");
        requester.publish()
    };
    assert!(submit(&mut requester), "it sleeps");
    assert!(!submit(&mut requester), "it has been woken");
    responder.retract();
    assert_eq!(responder.fetch_with(32, |_, _| ()), Ok(2));
    for _ in 0..2 {
        responder.respond(Response::Pass).expect("a request is open");
    }
    assert!(!responder.publish(), "the mediator is awake");
    assert!(responder.announce(), "no request is open");
    assert!(submit(&mut requester), "it sleeps again, and was awake in between");
    assert!(!responder.announce(), "a request is open");
    assert_eq!(requester.memory().load_u32(P4VM_SLEEPS, Relaxed), 0, "sleep is not announced");
}

#[test]
fn ends_refuse_a_region_of_another_geometry() {
    let memory = || create_channel("test", GEOMETRY).expect("memory");
    let other = Geometry { header_bytes: 101, ..GEOMETRY };
    assert!(matches!(Responder::new(memory(), other), Err(ChannelError::Header { .. })));
    let larger = Geometry { slots: 1024, ..GEOMETRY };
    assert!(matches!(Requester::new(memory(), larger), Err(ChannelError::TooSmall { .. })));
    for invalid in [Geometry { slots: 3, ..GEOMETRY }, Geometry { slots: 0, ..GEOMETRY }] {
        assert!(matches!(create_channel("test", invalid), Err(ChannelError::Geometry(_))));
        assert!(matches!(Responder::new(memory(), invalid), Err(ChannelError::Geometry(_))));
    }
}

#[test]
fn the_p4vm_is_notified_of_sent_packets() {
    let (mut requester, responder, hostile) = ends();
    let before = responder.sent_count();
    requester.notify_sent();
    let after = responder.sent_count();
    assert_ne!(before, after);
    assert_eq!(responder.sent_count(), after, "no further packets were sent");
    hostile.store_u32(SENT, before, Relaxed);
    requester.notify_sent();
    assert!(
        responder.sent_count() != after && responder.sent_count() != before,
        "the mediator does not read the counter"
    );
}

#[test]
fn a_p4vm_without_open_requests_is_seen_asleep() {
    let (mut requester, mut responder, _) = ends();
    assert!(!requester.is_asleep());
    assert!(responder.announce_at_futex() && requester.is_asleep());
    // After an early wake-up it finds its futex changed and polls, however late it falls asleep.
    assert!(requester.bump_futex());
    assert!(responder.announce_at_futex(), "no request is open");
    requester.push(&request(0, 60), &[9; 60]).expect("there is room");
    assert!(requester.publish(), "it sleeps again");
    assert!(!requester.is_asleep(), "it owes an answer");
}

/// The P4 VM claims to sleep at its futex and writes to it; the mediator finds no sleeper and does not wait.
#[test]
fn waking_a_lying_p4vm_never_waits() {
    let (mut requester, _judge, hostile) = ends();
    let (ours, theirs) = Doorbell::pair().expect("sockets");
    for id in 0..8 {
        hostile.store_u32(P4VM_SLEEPS, ASLEEP_AT_FUTEX, Relaxed);
        hostile.store_u32(P4VM_FUTEX, u32::MAX, Relaxed);
        requester.push(&request(id, 60), &[9; 60]).expect("there is room");
        if requester.publish() {
            assert!(requester.wake(&ours), "the doorbell is open");
            assert_eq!(
                hostile.load_u32(P4VM_FUTEX, Relaxed),
                id as u32 + 1,
                "the mediator does not read the counter"
            );
        }
        // Makes the next wake-up due.
        hostile.store_u32(P4VM_SLEEPS, 0, Relaxed);
        assert!(!requester.must_wake());
    }
    assert_eq!(requester.fault(), None);
    drop(theirs);
    hostile.store_u32(P4VM_SLEEPS, ASLEEP_AT_FUTEX, Relaxed);
    assert!(requester.must_wake());
    assert!(!requester.wake(&ours), "the doorbell is closed");
}
