//! Measures the round trip of a packet to a sleeping P4 VM, woken at its futex or by its doorbell.
//!
//! `cargo run --release -p p4shield-channel --example wake`: both ways in turn, each end on a core of
//! its own; median and 90th percentile of all round trips, and the time of the mediator's system
//! call.

use p4shield_abi::channel::{Geometry, Request};
use p4shield_channel::futex::{self, FutexWait};
use p4shield_channel::{Doorbell, Requester, Responder, Response, Sleeper, create_channel};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

const TRIPS: usize = 20_000;
const ROUNDS: usize = 5;
/// Other channels of a P4 VM beside a switch with two ports, and its mailbox.
const OTHERS: usize = 4;

/// Runs the P4 VM, which sleeps before each packet.
fn respond(mut responder: Responder, bell: &Doorbell, at_futex: &AtomicBool, done: &AtomicBool) {
    bind(0);
    let quiet = [const { AtomicU32::new(0) }; OTHERS];
    let others: Vec<_> = (0..OTHERS).map(|_| Doorbell::pair().expect("sockets")).collect();
    while !done.load(Relaxed) {
        let fetched = responder.fetch_with(32, |_, _| ()).expect("the mediator is honest");
        for _ in 0..fetched {
            responder.respond(Response::Pass).expect("a request is open");
        }
        let _ = responder.publish();
        if fetched != 0 {
            continue;
        }
        if at_futex.load(Relaxed) {
            if responder.announce_at_futex() {
                let quiet = quiet.iter().map(|w| FutexWait::private(w, 0));
                futex::wait(quiet.chain([responder.futex()]), Duration::from_millis(10))
                    .expect("a new kernel");
                responder.retract();
            }
        } else {
            bell.drain();
            if responder.announce() {
                let bells = others.iter().map(|(ours, _)| ours).chain([bell]);
                let mut fds: Vec<_> = bells.map(|b| PollFd::new(b, PollFlags::IN)).collect();
                poll(&mut fds, Some(&Duration::from_millis(10).try_into().expect("short"))).expect("open");
                responder.retract();
            }
        }
    }
}

fn bind(cpu: usize) {
    let mut cores = CpuSet::new();
    cores.set(cpu);
    sched_setaffinity(None, &cores).expect("two cores");
}

/// Returns the time from each request to its answer, and of the call that wakes; nanoseconds.
fn trips(requester: &mut Requester, bell: &Doorbell) -> (Vec<u64>, Vec<u64>) {
    let (mut there_and_back, mut calls) = (Vec::new(), Vec::new());
    for id in 0..TRIPS as u64 {
        // The P4 VM falls asleep.
        let pause = Instant::now();
        while pause.elapsed() < Duration::from_micros(30) {
            std::hint::spin_loop();
        }
        let start = Instant::now();
        requester.push(&Request { id, packet_len: 60, ..Request::default() }, &[0; 60]).expect("room");
        let mut due = requester.publish();
        loop {
            if due {
                let call = Instant::now();
                assert!(requester.wake(bell), "the P4 VM is there");
                calls.push(call.elapsed().as_nanos() as u64);
            }
            if requester.take(1, |_| ()).expect("the P4 VM is honest") == 1 {
                break;
            }
            due = requester.must_wake();
        }
        there_and_back.push(start.elapsed().as_nanos() as u64);
    }
    (there_and_back, calls)
}

fn percentile(values: &mut [u64], percent: usize) -> f64 {
    values.sort_unstable();
    values.get(values.len() * percent / 100).map_or(0.0, |ns| *ns as f64 / 1000.0)
}

#[expect(clippy::print_stdout, reason = "the example prints its results")]
fn main() {
    let geometry = Geometry::default();
    let memory = create_channel("wake", geometry).expect("memory");
    let far = Responder::new(memory.map_again().expect("memory"), geometry).expect("valid");
    let mut requester = Requester::new(memory, geometry).expect("valid");
    let (ours, theirs) = Doorbell::pair().expect("sockets");
    let (at_futex, done) = (AtomicBool::new(false), AtomicBool::new(false));
    let mut measured = [const { (Vec::new(), Vec::new()) }; 2];
    std::thread::scope(|scope| {
        scope.spawn(|| respond(far, &theirs, &at_futex, &done));
        bind(1);
        for _ in 0..ROUNDS {
            for (way, (all, calls)) in measured.iter_mut().enumerate() {
                at_futex.store(way == 1, Relaxed);
                let (more, more_calls) = trips(&mut requester, &ours);
                all.extend(more);
                calls.extend(more_calls);
            }
        }
        done.store(true, Relaxed);
    });
    println!("{:<10} {:>10} {:>10} {:>14} {:>10}", "woken", "p50 us", "p90 us", "call p50 us", "calls");
    for (name, (mut all, mut calls)) in ["doorbell", "futex"].into_iter().zip(measured) {
        let count = calls.len();
        println!(
            "{name:<10} {:>10.2} {:>10.2} {:>14.2} {count:>10}",
            percentile(&mut all, 50),
            percentile(&mut all, 90),
            percentile(&mut calls, 50)
        );
    }
}
