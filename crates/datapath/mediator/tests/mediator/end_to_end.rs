//! A mediator and a P4 VM in two threads that sleep and wake each other.

use crate::common::*;
use p4shield_abi::channel::Geometry;
use p4shield_channel::{Doorbell, IdleResult, RequestBatch, Responder, Response, WaitPolicy, Waiter};
use p4shield_mediator::{Disposition, Mediator, Reason};
use rustix::event::{PollFd, PollFlags};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

const PACKETS: u32 = 50_000;
/// Little spinning, so that both sides sleep and are woken all the time.
const SLEEPY: WaitPolicy = WaitPolicy { min_spins: 0, max_spins: 16, yields: 1 };

/// Drops every third packet and rewrites every fifth, until `stop` is set and no request is open.
/// Returns how many.
fn answer_until(mut responder: Responder, bell: &Doorbell, stop: &AtomicBool) -> u32 {
    let mut waiter = Waiter::new(SLEEPY);
    let mut batch = RequestBatch::new(&GEOMETRY);
    let mut answered = 0;
    loop {
        if responder.fetch(&mut batch).expect("the mediator is honest") == 0 {
            if stop.load(Ordering::Acquire) {
                return answered;
            }
            let fds = &mut [PollFd::new(bell, PollFlags::IN)];
            if matches!(waiter.idle(&mut responder, fds, None).expect("poll"), IdleResult::Slept(_)) {
                bell.drain();
            }
            continue;
        }
        waiter.found_work();
        for entry in batch.iter_mut() {
            let packet = &mut entry.frame[entry.start..entry.start + entry.len];
            let serial = u32::from_be_bytes(packet[SERIAL_AT..SERIAL_AT + 4].try_into().expect("four bytes"));
            let response = if serial.is_multiple_of(3) {
                Response::Drop
            } else if serial.is_multiple_of(5) {
                packet[22] = 1;
                Response::Rewritten { header: packet, packet_len: entry.request.packet_len }
            } else {
                Response::Pass
            };
            responder.respond(response).expect("it fits");
            answered += 1;
        }
        if responder.publish() {
            bell.ring();
        }
    }
}

fn check(serial: u32, packet: &TestPacket, disposition: Disposition) {
    let dropped = serial.is_multiple_of(3);
    assert_eq!(disposition, if dropped { Disposition::Drop(Reason::Program) } else { Disposition::Pass });
    let ttl = if serial.is_multiple_of(5) && !dropped { 1 } else { 64 };
    assert_eq!((packet.serial, packet.bytes[22]), (serial, ttl), "in order, with the program's rewrite");
}

/// Submits in bursts with pauses, so that both sides fall asleep from time to time.
fn mediate(mediator: &mut Mediator<TestPacket>) {
    let start = Instant::now();
    let mut waiter = Waiter::new(SLEEPY);
    let (mut submitted, mut out) = (0_u32, 0_u32);
    while out < PACKETS {
        let now = u64::try_from(start.elapsed().as_nanos()).expect("a short test");
        let burst = if submitted % 1000 < 32 { 1 } else { 16 };
        let room = submitted.saturating_sub(out) < 64;
        let pause = submitted % 1000 == 999 && out < submitted;
        if submitted < PACKETS && room && !pause {
            for _ in 0..burst.min(PACKETS - submitted) {
                assert_eq!(released(mediator.submit(now, &SHARED, packet(submitted, 1, 99))), None);
                submitted += 1;
            }
        }
        let before = out;
        mediator.poll(now, 32, |released| {
            check(out, &released.packet, released.disposition);
            out += 1;
        });
        if out != before || (room && submitted < PACKETS && !pause) {
            waiter.found_work();
            continue;
        }
        sleep(mediator, &mut waiter);
    }
    assert_eq!(mediator.held(), 0);
}

fn sleep(mediator: &mut Mediator<TestPacket>, waiter: &mut Waiter) {
    let bell =
        rustix::io::fcntl_dupfd_cloexec(mediator.doorbells().next().expect("attached").1, 0).expect("dup");
    let fds = &mut [PollFd::new(&bell, PollFlags::IN)];
    if matches!(waiter.idle(mediator, fds, None).expect("poll"), IdleResult::Slept(_)) {
        mediator.drain_doorbell(0);
    }
}

/// The deadline is an hour, and both sides sleep without limit: a lost wake-up would hang the test.
#[test]
fn a_p4vm_thread_judges_every_packet() {
    let mut config = tenants(1);
    config.tenants[0].deadline = std::time::Duration::from_secs(3600);
    config.tenants[0].stall = None;
    config.tenants[0].max_held = 128;
    let mut mediator = mediator(&config);
    let geometry = Geometry { slots: 128, ..GEOMETRY };
    let p4vm = attach(&mut mediator, 0, 0, geometry);
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);

    let p4vm_thread = std::thread::spawn(move || answer_until(p4vm.responder, &p4vm.bell, &stopped));
    mediate(&mut mediator);
    stop.store(true, Ordering::Release);
    // Closing the mediator's end wakes a sleeping P4 VM.
    mediator.replace_channel(0, 0, None).expect("the tenant exists");
    let answered = p4vm_thread.join().expect("the P4 VM thread does not panic");

    assert_eq!(answered, PACKETS);
    let egress = mediator.counters().tenants[0].vms[0].directions[1].read();
    assert_eq!((egress.packets_in, egress.held), (u64::from(PACKETS), 0));
    assert_eq!(egress.dropped_for(Reason::Program), u64::from(PACKETS.div_ceil(3)));
}
