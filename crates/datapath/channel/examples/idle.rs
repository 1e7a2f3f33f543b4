//! Prints how much of a core both ends of a channel use, with nothing to do and with a packet now and then.
//!
//! `cargo run --release -p p4shield-channel --example idle`
//!
//! The P4 VM's end wakes every 10 ms besides, as one does that looks after info and log pages.

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

/// Judges until told to stop; returns the CPU time it took.
fn judge_until(
    mut judge: Responder,
    bell: &Doorbell,
    geometry: &Geometry,
    stop: &AtomicBool,
) -> Result<Duration, Box<dyn Error + Send + Sync>> {
    let (mut batch, mut waiter) = (RequestBatch::new(geometry), Waiter::default());
    while !stop.load(Ordering::Relaxed) {
        if judge.fetch(&mut batch)? == 0 {
            let fds = &mut [PollFd::new(bell, PollFlags::IN)];
            if let IdleResult::Slept(1..) = waiter.idle(&mut judge, fds, Some(Duration::from_millis(10)))? {
                bell.drain();
            }
            continue;
        }
        waiter.found_work();
        for _ in 0..batch.len() {
            judge.respond(Response::Pass)?;
        }
        if judge.publish() {
            bell.ring();
        }
    }
    Ok(cpu_time())
}

/// Asks about a packet every `pause`, if any; returns the CPU time it took and the median round trip.
fn ask(
    requester: &mut Requester,
    bell: &Doorbell,
    pause: Option<Duration>,
) -> Result<(Duration, Duration), Box<dyn Error>> {
    let (begin, cpu, mut waiter) = (Instant::now(), cpu_time(), Waiter::default());
    let (mut next, mut asked, mut trips) = (begin, begin, Vec::new());
    while begin.elapsed() < TIME {
        if pause.is_some() && requester.outstanding() == 0 && Instant::now() >= next {
            asked = Instant::now();
            requester.push(&Request { packet_len: 128, ..Request::default() }, &[0; 128])?;
            if requester.publish() {
                bell.ring();
            }
        }
        if requester.take(32, |_| ())? != 0 {
            trips.push(asked.elapsed());
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

#[expect(clippy::print_stdout, reason = "it is what the example is for")]
fn main() -> Result<(), Box<dyn Error>> {
    let geometry = Geometry::default();
    for (what, pause) in [
        ("nothing to do", None),
        ("a packet every 100 ms", Some(Duration::from_millis(100))),
        ("a packet every ms", Some(Duration::from_millis(1))),
    ] {
        let memory = create_channel("idle", geometry)?;
        let judge = Responder::new(memory.map_again()?, geometry)?;
        let mut requester = Requester::new(memory, geometry)?;
        let (bell, far_bell) = Doorbell::pair()?;
        let stop = AtomicBool::new(false);
        let (mediator, judge) = std::thread::scope(|scope| {
            let judging = scope.spawn(|| judge_until(judge, &far_bell, &geometry, &stop));
            let asked = ask(&mut requester, &bell, pause);
            stop.store(true, Ordering::Relaxed);
            bell.ring();
            (asked, judging.join())
        });
        let (mediator, trip) = mediator?;
        let judge = judge.map_err(|_| "the judge panicked")?.map_err(|e| e.to_string())?;
        let share = |t: Duration| 100.0 * t.as_secs_f64() / TIME.as_secs_f64();
        println!(
            "{what:<22} mediator {:5.2} %, P4 VM {:5.2} % of a core; median round trip {trip:?}",
            share(mediator),
            share(judge)
        );
    }
    Ok(())
}
