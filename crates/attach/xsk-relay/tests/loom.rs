//! The hand-over of rings between threads, the sleep protocol, and the claim of a frame, model-checked
//! with every interleaving and every value that the memory model lets a load return.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p p4shield-xsk-relay --test loom --release`.
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use loom::thread;
use p4shield_xsk_relay::frames::{Ledger, RingHistory, RingRegistry, UmemGeometry};
use p4shield_xsk_relay::handover::Handover;
use p4shield_xsk_relay::sleep::{LevelSignal, PumpSide, QueueSleepers, SleepLimit, StandbyThread};

/// For three threads with many steps: interleavings with at most three preemptions.
fn model_three(check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(check);
}

/// Two threads write and then request a round. Loom checks that no two threads are inside at once; a
/// round that another thread does sees the writes of the thread that requested it.
#[test]
fn one_thread_is_inside_and_no_request_is_lost() {
    loom::model(|| {
        let shared = Arc::new((Handover::new(0_u32), AtomicU32::new(0)));
        let writers: Vec<_> = (0..2)
            .map(|_| {
                let shared = shared.clone();
                thread::spawn(move || {
                    shared.1.fetch_add(1, Relaxed);
                    shared.0.run(|seen| *seen = shared.1.load(Relaxed));
                })
            })
            .collect();
        for w in writers {
            w.join().unwrap();
        }
        let seen = shared.0.wait(|seen| *seen);
        assert_eq!(seen, 2, "the last round saw all writes before the last request");
    });
}

/// Closing waits for the thread inside; later rounds find the value closed.
#[test]
fn no_round_runs_after_closing() {
    loom::model(|| {
        let shared = Arc::new(Handover::new(Some(0_u32)));
        let other = shared.clone();
        let mover = thread::spawn(move || {
            other.run(|open| {
                if let Some(n) = open {
                    *n += 1;
                }
            });
        });
        shared.wait(Option::take);
        mover.join().unwrap();
        assert!(shared.wait(|open| open.is_none()));
    });
}

/// A frame that the application gives to two rings at once enters one of them.
#[test]
fn a_frame_is_claimed_once() {
    loom::model(|| {
        let geometry = UmemGeometry::new(4096, 4096, false).unwrap();
        let registry = Arc::new(RingRegistry::default());
        let history = std::sync::Arc::new(RingHistory::new(2, 0, || 0));
        let (fill, completion) =
            (registry.register(history.clone()).unwrap(), registry.register(history.clone()).unwrap());
        let ledger = Arc::new(Ledger::new(geometry));
        let (other, seen) = (ledger.clone(), registry.clone());
        let sender = thread::spawn(move || other.send(0, 60, completion, &seen.view()).is_ok());
        let filled = ledger.fill(0, fill, &history, &registry.view()).is_ok();
        let sent = sender.join().unwrap();
        assert!(filled != sent, "filled {filled}, sent {sent}");
    });
}

/// A queue as [`QueueSleepers`] see it: ready packets, and a P4 VM.
#[derive(Default)]
struct ModelRings {
    ready: u32,
    held: u32,
    /// Whether the P4 VM rings the doorbell of sleeping threads.
    rings: bool,
}

struct ModelQueue {
    /// Packets that the kernel has received and no thread has moved.
    arrived: AtomicU32,
    /// Whether packets go to the P4 VM.
    judged: bool,
    rings: Handover<ModelRings>,
    sleepers: QueueSleepers,
    bell: AtomicBool,
}

/// What a thread knows that is about to sleep until a doorbell rings.
struct Asleep {
    ready: u32,
    watched: u32,
}

impl ModelQueue {
    fn new(judged: bool) -> Arc<Self> {
        Arc::new(Self {
            arrived: AtomicU32::new(0),
            judged,
            rings: Handover::new(ModelRings::default()),
            sleepers: QueueSleepers::new(),
            bell: AtomicBool::new(false),
        })
    }

    /// The round of every thread that runs the pump.
    fn process(&self, rings: &mut ModelRings) {
        if self.sleepers.take_wake_state(PumpSide::Receive).no_sleeper {
            rings.rings = false;
        }
        let new = self.arrived.swap(0, Relaxed);
        *if self.judged { &mut rings.held } else { &mut rings.ready } += new;
        self.sleepers.update_held(PumpSide::Receive, rings.held > 0, new > 0);
        if new > 0 && self.sleepers.has_waiters() {
            self.bell.store(true, Relaxed);
        }
    }

    /// A packet comes, and a thread moves it. Returns whether the drain thread must come for it.
    fn packet(&self) -> bool {
        self.arrived.fetch_add(1, Relaxed);
        // Otherwise the thread inside moves it and checks.
        self.rings.run(|rings| self.process(rings)) && self.sleepers.is_unattended()
    }

    /// A thread goes to sleep. `None` if it sleeps only briefly.
    fn sleep(&self) -> Option<Asleep> {
        self.sleepers.enter_sleep();
        let mut asleep = None;
        self.rings.run(|rings| {
            self.process(rings);
            rings.rings |= rings.held > 0;
            self.sleepers.set_watched(PumpSide::Receive, true);
            asleep = Some(Asleep { ready: rings.ready, watched: rings.held });
        });
        asleep
    }
}

/// A thread waits for packets, and another moves one: the first sees it or its event is signalled.
#[test]
fn waiting_threads_wake_for_packets_of_other_threads() {
    loom::model(|| {
        let queue = ModelQueue::new(false);
        let other = queue.clone();
        let mover = thread::spawn(move || other.packet());
        queue.sleepers.begin_wait();
        let asleep = queue.sleep();
        mover.join().unwrap();
        if asleep.is_some_and(|a| a.ready == 0) {
            assert!(queue.bell.load(Relaxed), "it sleeps although a packet is there");
        }
    });
}

/// A thread goes to sleep while another submits a packet: the doorbell rings for the sleeper, or the
/// drain thread comes.
#[test]
fn new_held_packets_are_watched_or_left_to_the_drain() {
    loom::model(|| {
        let queue = ModelQueue::new(true);
        let other = queue.clone();
        let mover = thread::spawn(move || other.packet());
        let asleep = queue.sleep();
        let left = mover.join().unwrap();
        let rings = queue.rings.wait(|r| r.rings);
        let watched = asleep.is_some_and(|a| a.watched == 1);
        assert!(left || (watched && rings), "left {left}, watched {watched}, rings {rings}");
    });
}

/// One thread sleeps and watches nothing; another watches, and wakes, while a third submits a packet.
#[test]
fn waking_ends_the_watch_of_a_thread() {
    model_three(|| {
        let queue = ModelQueue::new(true);
        assert_eq!(queue.sleep().unwrap().watched, 0);
        let (other, third) = (queue.clone(), queue.clone());
        let mover = thread::spawn(move || other.packet());
        let passer = thread::spawn(move || {
            let _ = third.sleep();
            third.sleepers.leave_sleep(false);
            third.sleepers.is_unattended()
        });
        let (left, seen) = (mover.join().unwrap(), passer.join().unwrap());
        assert!(left || seen, "the packet is held, and no sleeping thread watches");
    });
}

/// Two threads leave work to the standby thread: it sees the work, is woken, or sleeps briefly.
#[test]
fn the_standby_thread_sees_all_work() {
    model_three(|| {
        let shared =
            Arc::new((StandbyThread::new(), [const { 0 }; 2].map(AtomicU32::new), AtomicBool::new(false)));
        let others: Vec<_> = (0..2)
            .map(|n| {
                let shared = shared.clone();
                thread::spawn(move || {
                    shared.1[n].store(1, Relaxed);
                    if shared.0.notify() {
                        shared.2.store(true, Relaxed);
                    }
                })
            })
            .collect();
        shared.0.mark_awake();
        let seen = [0, 1].map(|n| shared.1[n].load(Relaxed));
        let sleep = shared.0.mark_asleep(true);
        for other in others {
            other.join().unwrap();
        }
        let rang = shared.2.load(Relaxed);
        assert!(seen == [1, 1] || rang || sleep == SleepLimit::Short, "{seen:?}, {sleep:?}");
    });
}

/// Urgent work ends a short sleep too, and an ordinary notification does not hide it.
#[test]
fn urgent_work_ends_a_short_sleep() {
    model_three(|| {
        let shared = Arc::new((StandbyThread::new(), AtomicU32::new(0), AtomicBool::new(false)));
        let (other, third) = (shared.clone(), shared.clone());
        let urgent = thread::spawn(move || {
            other.1.store(1, Relaxed);
            if other.0.notify_urgently() {
                other.2.store(true, Relaxed);
            }
        });
        let notifier = thread::spawn(move || assert!(!third.0.notify(), "a short sleep ends by itself"));
        shared.0.mark_awake();
        let seen = shared.1.load(Relaxed);
        let sleep = shared.0.mark_asleep(false);
        urgent.join().unwrap();
        notifier.join().unwrap();
        assert!(seen == 1 || shared.2.load(Relaxed) || sleep == SleepLimit::NoSleep, "{sleep:?}");
    });
}

/// Two threads change the level, and each updates the signal.
#[test]
fn a_signal_shows_the_last_level() {
    loom::model(|| {
        let shared = Arc::new((LevelSignal::new(), AtomicU32::new(1), AtomicBool::new(false)));
        let show = |s: &(LevelSignal, AtomicU32, AtomicBool)| {
            s.0.update(|| s.1.load(Relaxed) > 0, |shown| s.2.store(shown, Relaxed));
        };
        show(&shared);
        let other = shared.clone();
        let adds = thread::spawn(move || {
            other.1.fetch_add(1, Relaxed);
            show(&other);
        });
        shared.1.fetch_sub(1, Relaxed);
        show(&shared);
        adds.join().unwrap();
        assert!(shared.2.load(Relaxed) && shared.0.shown(), "the level is 1");
    });
}
