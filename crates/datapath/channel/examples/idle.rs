//! Prints how much of a core both ends of a channel use, without work and with a packet now and then.
//!
//! `cargo run --release -p p4shield-channel --example idle`
//!
//! The P4 VM's end also wakes every 10 ms, like one that serves info and log pages.

use p4shield_abi::channel::{Geometry, Request};
use p4shield_channel::{
    Doorbell, IdleResult, RequestBatch, Requester, Responder, Response, Waiter, create_channel,
};
use rustix::event::{PollFd, PollFlags};
use rustix::time::{ClockId, clock_gettime};
use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const TIME: Duration = Duration::from_secs(3);

fn cpu_time() -> Duration {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(t.tv_sec.unsigned_abs(), u32::try_from(t.tv_nsec).unwrap_or(0))
}

/// Answers until `stop` is set; returns the CPU time used.
fn respond_until(
    mut responder: Responder,
    bell: &Doorbell,
    geometry: &Geometry,
    stop: &AtomicBool,
) -> Result<Duration, Box<dyn Error + Send + Sync>> {
    let (mut batch, mut waiter) = (RequestBatch::new(geometry), Waiter::default());
    while !stop.load(Ordering::Relaxed) {
        if responder.fetch(&mut batch)? == 0 {
            let fds = &mut [PollFd::new(bell, PollFlags::IN)];
            if let IdleResult::Slept(1..) =
                waiter.idle(&mut responder, fds, Some(Duration::from_millis(10)))?
            {
                bell.drain();
            }
            continue;
        }
        waiter.found_work();
        for _ in 0..batch.len() {
            responder.respond(Response::Pass)?;
        }
        if responder.publish() {
            bell.ring();
        }
    }
    Ok(cpu_time())
}

/// Submits a packet every `pause`, if any; returns the CPU time used and the median round trip.
fn submit(
    requester: &mut Requester,
    bell: &Doorbell,
    pause: Option<Duration>,
) -> Result<(Duration, Duration), Box<dyn Error>> {
    let (begin, cpu, mut waiter) = (Instant::now(), cpu_time(), Waiter::default());
    let (mut next, mut submitted, mut trips) = (begin, begin, Vec::new());
    while begin.elapsed() < TIME {
        if pause.is_some() && requester.outstanding() == 0 && Instant::now() >= next {
            submitted = Instant::now();
            requester.push(&Request { packet_len: 128, ..Request::default() }, &[0; 128])?;
            if requester.publish() {
                bell.ring();
            }
        }
        if requester.take(32, |_| ())? != 0 {
            trips.push(submitted.elapsed());
            next = Instant::now() + pause.unwrap_or(TIME);
            waiter.found_work();
            continue;
        }
        let due = if requester.outstanding() == 0 && pause.is_some() {
            next.saturating_duration_since(Instant::now())
        } else {
            TIME.saturating_sub(begin.elapsed())
        };
        let fds = &mut [PollFd::new(bell, PollFlags::IN)];
        if let IdleResult::Slept(1..) = waiter.idle(requester, fds, Some(due))? {
            bell.drain();
        }
    }
    trips.sort_unstable();
    Ok((cpu_time() - cpu, trips.get(trips.len() / 2).copied().unwrap_or_default()))
}

#[expect(clippy::print_stdout, reason = "the example prints its results")]
fn main() -> Result<(), Box<dyn Error>> {
    let geometry = Geometry::default();
    for (what, pause) in [
        ("no work", None),
        ("a packet every 100 ms", Some(Duration::from_millis(100))),
        ("a packet every ms", Some(Duration::from_millis(1))),
    ] {
        let memory = create_channel("idle", geometry)?;
        let responder = Responder::new(memory.map_again()?, geometry)?;
        let mut requester = Requester::new(memory, geometry)?;
        let (bell, far_bell) = Doorbell::pair()?;
        let stop = AtomicBool::new(false);
        let (mediator, p4vm) = std::thread::scope(|scope| {
            let responding = scope.spawn(|| respond_until(responder, &far_bell, &geometry, &stop));
            let result = submit(&mut requester, &bell, pause);
            stop.store(true, Ordering::Relaxed);
            bell.ring();
            (result, responding.join())
        });
        let (mediator, trip) = mediator?;
        let p4vm = p4vm.map_err(|_| "the P4 VM thread panicked")?.map_err(|e| e.to_string())?;
        let share = |t: Duration| 100.0 * t.as_secs_f64() / TIME.as_secs_f64();
        println!(
            "{what:<22} mediator {:5.2} %, P4 VM {:5.2} % of a core; median round trip {trip:?}",
            share(mediator),
            share(p4vm)
        );
    }
    Ok(())
}
