//! How long it takes to have a packet judged by a P4 VM that sleeps: woken at its word, or by its doorbell.
//!
//! `cargo run --release -p p4shield-channel --example wake`: by turns, each end on a core of its own; median and 90th percentile
//! of all round trips, and how long the mediator's own system call took.

use p4shield_abi::channel::{Geometry, Request};
use p4shield_channel::futex::{self, FutexWait};
use p4shield_channel::{Doorbell, Requester, Responder, Response, Sleeper, create_channel};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

const TRIPS: usize = 20_000;
const ROUNDS: usize = 5;
/// A P4 VM beside a switch with two ports: so many channels, and its mailbox.
const OTHERS: usize = 4;

/// Sleeps for each packet.
fn judge(mut judge: Responder, bell: &Doorbell, at_word: &AtomicBool, done: &AtomicBool) {
    bind(0);
    let quiet = [const { AtomicU32::new(0) }; OTHERS];
    let others: Vec<_> = (0..OTHERS).map(|_| Doorbell::pair().expect("sockets")).collect();
    while !done.load(Relaxed) {
        let fetched = judge.fetch_with(32, |_, _| ()).expect("the mediator is honest");
        for _ in 0..fetched {
            judge.respond(Response::Pass).expect("it was asked");
        }
        let _ = judge.publish();
        if fetched != 0 {
            continue;
        }
        if at_word.load(Relaxed) {
            if judge.announce_at_futex() {
                let quiet = quiet.iter().map(|w| FutexWait::private(w, 0));
                futex::wait(quiet.chain([judge.futex()]), Duration::from_millis(10)).expect("a new kernel");
                judge.retract();
            }
        } else {
            bell.drain();
            if judge.announce() {
                let bells = others.iter().map(|(ours, _)| ours).chain([bell]);
                let mut fds: Vec<_> = bells.map(|b| PollFd::new(b, PollFlags::IN)).collect();
                poll(&mut fds, Some(&Duration::from_millis(10).try_into().expect("short"))).expect("open");
                judge.retract();
            }
        }
    }
}

fn bind(cpu: usize) {
    let mut cores = CpuSet::new();
    cores.set(cpu);
    sched_setaffinity(None, &cores).expect("two cores");
}

/// From each request to its answer, and of that the call that wakes; nanoseconds.
fn trips(requester: &mut Requester, bell: &Doorbell) -> (Vec<u64>, Vec<u64>) {
    let (mut there_and_back, mut calls) = (Vec::new(), Vec::new());
    for id in 0..TRIPS as u64 {
        // Time to fall asleep.
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

#[expect(clippy::print_stdout, reason = "it is what the example is for")]
fn main() {
    let geometry = Geometry::default();
    let memory = create_channel("wake", geometry).expect("memory");
    let far = Responder::new(memory.map_again().expect("memory"), geometry).expect("valid");
    let mut requester = Requester::new(memory, geometry).expect("valid");
    let (ours, theirs) = Doorbell::pair().expect("sockets");
    let (at_word, done) = (AtomicBool::new(false), AtomicBool::new(false));
    let mut measured = [const { (Vec::new(), Vec::new()) }; 2];
    std::thread::scope(|scope| {
        scope.spawn(|| judge(far, &theirs, &at_word, &done));
        bind(1);
        for _ in 0..ROUNDS {
            for (way, (all, calls)) in measured.iter_mut().enumerate() {
                at_word.store(way == 1, Relaxed);
                let (more, more_calls) = trips(&mut requester, &ours);
                all.extend(more);
                calls.extend(more_calls);
            }
        }
        done.store(true, Relaxed);
    });
    println!("{:<10} {:>10} {:>10} {:>14} {:>10}", "woken", "p50 us", "p90 us", "call p50 us", "calls");
    for (name, (mut all, mut calls)) in ["doorbell", "word"].into_iter().zip(measured) {
        let count = calls.len();
        println!(
            "{name:<10} {:>10.2} {:>10.2} {:>14.2} {count:>10}",
            percentile(&mut all, 50),
            percentile(&mut all, 90),
            percentile(&mut calls, 50)
        );
    }
}
