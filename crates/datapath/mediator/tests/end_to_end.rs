//! A mediator and a P4 VM in two threads that both really wait and are really woken.

mod common;
use common::*;
use p4shield_channel::{Doorbell, IdleResult, Responder, Response, WaitPolicy, Waiter};
use p4shield_mediator::{Disposition, Mediator, Reason};
use rustix::event::{PollFd, PollFlags};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

const PACKETS: u32 = 50_000;
/// Hardly any spinning, so that both sides sleep and are woken all the time.
const SLEEPY: WaitPolicy = WaitPolicy { min_spins: 0, max_spins: 16, yields: 1 };

/// Drops every third packet, rewrites every fifth, until it is told to stop and has nothing to do.
fn judge_until(mut judge: Responder, bell: &Doorbell, stop: &AtomicBool) -> u32 {
    let mut waiter = Waiter::new(SLEEPY);
    let mut batch = p4shield_channel::RequestBatch::new(&GEOMETRY);
    let mut judged = 0;
    loop {
        if judge.fetch(&mut batch).expect("the mediator is honest") == 0 {
            if stop.load(Ordering::Acquire) {
                return judged;
            }
            let fds = &mut [PollFd::new(bell, PollFlags::IN)];
            if matches!(waiter.idle(&mut judge, fds, None).expect("poll"), IdleResult::Slept(_)) {
                bell.drain();
            }
            continue;
        }
        waiter.found_work();
        for entry in batch.iter_mut() {
            let packet = &mut entry.frame[entry.start..entry.start + entry.len];
            let serial = u32::from_be_bytes(packet[SERIAL_AT..SERIAL_AT + 4].try_into().expect("four bytes"));
            let reply = if serial.is_multiple_of(3) {
                Response::Drop
            } else if serial.is_multiple_of(5) {
                packet[22] = 1;
                Response::Rewritten { header: packet, packet_len: entry.request.packet_len }
            } else {
                Response::Pass
            };
            judge.respond(reply).expect("it fits");
            judged += 1;
        }
        if judge.publish() {
            bell.ring();
        }
    }
}

fn check(serial: u32, packet: &TestPacket, disposition: Disposition) {
    let dropped = serial.is_multiple_of(3);
    assert_eq!(disposition, if dropped { Disposition::Drop(Reason::Program) } else { Disposition::Pass });
    let ttl = if serial.is_multiple_of(5) && !dropped { 1 } else { 64 };
    assert_eq!((packet.serial, packet.bytes[22]), (serial, ttl), "in order, as the program left it");
}

/// Submits in bursts with pauses, so that both sides fall asleep now and then.
fn mediate(mediator: &mut Mediator<TestPacket>) {
    let start = Instant::now();
    let mut waiter = Waiter::new(SLEEPY);
    let (mut submitted, mut out) = (0_u32, 0_u32);
    while out < PACKETS {
        let now = u64::try_from(start.elapsed().as_nanos()).expect("not that long");
        let burst = if submitted % 1000 < 32 { 1 } else { 16 };
        let room = submitted.saturating_sub(out) < 64;
        let pause = submitted % 1000 == 999 && out < submitted;
        if submitted < PACKETS && room && !pause {
            for _ in 0..burst.min(PACKETS - submitted) {
                assert_eq!(of(mediator.submit(now, &SHARED, packet(submitted, 1, 99))), None);
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

/// The deadline is out of reach and nobody sleeps with a time limit: a lost wake-up would hang the test.
#[test]
fn a_p4vm_thread_judges_every_packet() {
    let mut config = tenants(1);
    config.tenants[0].deadline = std::time::Duration::from_secs(3600);
    config.tenants[0].stall = None;
    config.tenants[0].max_held = 128;
    let mut mediator = mediator(&config);
    let geometry = p4shield_abi::channel::Geometry { slots: 128, ..GEOMETRY };
    let p4vm = attach(&mut mediator, 0, 0, geometry);
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);

    let judging = std::thread::spawn(move || judge_until(p4vm.judge, &p4vm.bell, &stopped));
    mediate(&mut mediator);
    stop.store(true, Ordering::Release);
    // Closing our end wakes a judge that sleeps.
    mediator.replace_channel(0, 0, None).expect("there is such a tenant");
    let judged = judging.join().expect("the judge does not panic");

    assert_eq!(judged, PACKETS);
    let egress = mediator.counters().tenants[0].vms[0].directions[1].read();
    assert_eq!((egress.packets_in, egress.held), (u64::from(PACKETS), 0));
    assert_eq!(egress.dropped_for(Reason::Program), u64::from(PACKETS.div_ceil(3)));
}
