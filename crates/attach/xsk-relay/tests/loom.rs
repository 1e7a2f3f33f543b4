//! The hand-over of rings between threads, what they tell each other before they sleep, and the claim of a frame,
//! model-checked: every interleaving, every value that the memory model lets a load see.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p p4shield-xsk-relay --test loom --release`.
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use loom::thread;
use p4shield_xsk_relay::frames::{Ledger, Seats, Shape, Track};
use p4shield_xsk_relay::handover::HandOver;
use p4shield_xsk_relay::sleep::{Side, Signal, Sleep, Sleepers, Standby};

/// For three threads with much to do: interleavings in which threads lose their core three times at most.
fn model_three(check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(check);
}

/// Three threads, two of which write something and then want a round. Loom watches that no two are inside at once (the
/// value is its cell); whoever was told that another does it finds it done with its own writing seen.
#[test]
fn work_is_done_by_one_and_no_note_is_lost() {
    loom::model(|| {
        let shared = Arc::new((HandOver::new(0_u32), AtomicU32::new(0)));
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
        assert_eq!(seen, 2, "the last round saw all that was written before the last note");
    });
}

/// Closing waits for whoever is inside, and the next round finds it closed.
#[test]
fn closing_shuts_out_a_round() {
    loom::model(|| {
        let shared = Arc::new(HandOver::new(Some(0_u32)));
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

/// A frame that the application gives to two rings at once goes into one.
#[test]
fn a_frame_is_claimed_once() {
    loom::model(|| {
        let shape = Shape::new(4096, 4096, false).unwrap();
        let seats = Arc::new(Seats::default());
        let track = std::sync::Arc::new(Track::new(2, 0, || 0));
        let (fill, completion) = (seats.take(track.clone()).unwrap(), seats.take(track.clone()).unwrap());
        let ledger = Arc::new(Ledger::new(shape));
        let (other, seen) = (ledger.clone(), seats.clone());
        let sender = thread::spawn(move || other.sent(0, 60, completion, &seen.view()).is_ok());
        let filled = ledger.fill(0, fill, &track, &seats.view()).is_ok();
        let sent = sender.join().unwrap();
        assert!(filled != sent, "filled {filled}, sent {sent}");
    });
}

/// A queue as [`Sleepers`] see it: what is ready in it, and a judge.
#[derive(Default)]
struct Rings {
    ready: u32,
    held: u32,
    /// Whether the judge rings for those who sleep.
    rings: bool,
}

struct Queue {
    /// What the kernel has received, and whoever comes by moves.
    arrived: AtomicU32,
    /// Whether it goes to the judge.
    judged: bool,
    rings: HandOver<Rings>,
    sleepers: Sleepers,
    bell: AtomicBool,
}

/// What somebody who is about to sleep for good, unless a bell rings, knows of.
struct Asleep {
    ready: u32,
    told: u32,
}

impl Queue {
    fn new(judged: bool) -> Arc<Self> {
        Arc::new(Self {
            arrived: AtomicU32::new(0),
            judged,
            rings: HandOver::new(Rings::default()),
            sleepers: Sleepers::new(),
            bell: AtomicBool::new(false),
        })
    }

    /// The round that everybody does who comes by.
    fn round(&self, rings: &mut Rings) {
        if self.sleepers.woken(Side::Receive).nobody {
            rings.rings = false;
        }
        let new = self.arrived.swap(0, Relaxed);
        *if self.judged { &mut rings.held } else { &mut rings.ready } += new;
        self.sleepers.keep(Side::Receive, rings.held > 0, new > 0);
        if new > 0 && self.sleepers.someone_waits() {
            self.bell.store(true, Relaxed);
        }
    }

    /// A packet comes, and somebody comes by. Returns whether another is to come for it.
    fn packet(&self) -> bool {
        self.arrived.fetch_add(1, Relaxed);
        // Who is inside does it, and asks.
        self.rings.run(|rings| self.round(rings)) && self.sleepers.left_alone()
    }

    /// Somebody goes to sleep. None if only for a moment.
    fn sleep(&self) -> Option<Asleep> {
        self.sleepers.announced();
        let mut asleep = None;
        self.rings.run(|rings| {
            self.round(rings);
            rings.rings |= rings.held > 0;
            self.sleepers.tell(Side::Receive, true);
            asleep = Some(Asleep { ready: rings.ready, told: rings.held });
        });
        asleep
    }
}

/// A thread waits for packets, and another finds one: the first sees it, or hears the bell.
#[test]
fn a_thread_that_waits_is_woken_for_what_another_finds() {
    loom::model(|| {
        let queue = Queue::new(false);
        let other = queue.clone();
        let mover = thread::spawn(move || other.packet());
        queue.sleepers.wait();
        let asleep = queue.sleep();
        mover.join().unwrap();
        if asleep.is_some_and(|a| a.ready == 0) {
            assert!(queue.bell.load(Relaxed), "it sleeps, and a packet is there");
        }
    });
}

/// A thread goes to sleep while another gives a packet to a judge: the judge rings for it, or somebody is to come.
#[test]
fn what_is_new_to_judges_is_told_to_a_sleeper_or_left_to_somebody() {
    loom::model(|| {
        let queue = Queue::new(true);
        let other = queue.clone();
        let mover = thread::spawn(move || other.packet());
        let asleep = queue.sleep();
        let left = mover.join().unwrap();
        let rings = queue.rings.wait(|r| r.rings);
        let told = asleep.is_some_and(|a| a.told == 1);
        assert!(left || (told && rings), "left {left}, told {told}, rings {rings}");
    });
}

/// One sleeps who was told of nothing, and another comes by, is told and wakes up, while a packet goes to a judge.
#[test]
fn who_wakes_takes_along_what_it_was_told() {
    model_three(|| {
        let queue = Queue::new(true);
        assert_eq!(queue.sleep().unwrap().told, 0);
        let (other, third) = (queue.clone(), queue.clone());
        let mover = thread::spawn(move || other.packet());
        let passer = thread::spawn(move || {
            let _ = third.sleep();
            third.sleepers.slept(false);
            third.sleepers.left_alone()
        });
        let (left, seen) = (mover.join().unwrap(), passer.join().unwrap());
        assert!(left || seen, "the packet is held, and nobody who sleeps knows");
    });
}

/// Two threads leave something to one that stands by: it sees it, or is woken, or sleeps for a moment only.
#[test]
fn what_is_left_to_the_one_who_stands_by_is_seen() {
    model_three(|| {
        let shared = Arc::new((Standby::new(), [const { 0 }; 2].map(AtomicU32::new), AtomicBool::new(false)));
        let others: Vec<_> = (0..2)
            .map(|n| {
                let shared = shared.clone();
                thread::spawn(move || {
                    shared.1[n].store(1, Relaxed);
                    if shared.0.nudge() {
                        shared.2.store(true, Relaxed);
                    }
                })
            })
            .collect();
        shared.0.awake();
        let seen = [0, 1].map(|n| shared.1[n].load(Relaxed));
        let sleep = shared.0.asleep(true);
        for other in others {
            other.join().unwrap();
        }
        let rang = shared.2.load(Relaxed);
        assert!(seen == [1, 1] || rang || sleep == Sleep::Short, "{seen:?}, {sleep:?}");
    });
}

/// What is left at once wakes it from short sleep, too, and another's nudge does not hide it.
#[test]
fn what_is_left_at_once_wakes_the_one_who_stands_by() {
    model_three(|| {
        let shared = Arc::new((Standby::new(), AtomicU32::new(0), AtomicBool::new(false)));
        let (other, third) = (shared.clone(), shared.clone());
        let urger = thread::spawn(move || {
            other.1.store(1, Relaxed);
            if other.0.urge() {
                other.2.store(true, Relaxed);
            }
        });
        let nudger = thread::spawn(move || assert!(!third.0.nudge(), "short sleep is left to end by itself"));
        shared.0.awake();
        let seen = shared.1.load(Relaxed);
        let sleep = shared.0.asleep(false);
        urger.join().unwrap();
        nudger.join().unwrap();
        assert!(seen == 1 || shared.2.load(Relaxed) || sleep == Sleep::Not, "{sleep:?}");
    });
}

/// Two threads change a level, and each shows it.
#[test]
fn a_signal_shows_the_last_level() {
    loom::model(|| {
        let shared = Arc::new((Signal::new(), AtomicU32::new(1), AtomicBool::new(false)));
        let show = |s: &(Signal, AtomicU32, AtomicBool)| {
            s.0.show(|| s.1.load(Relaxed) > 0, |shown| s.2.store(shown, Relaxed));
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
        assert!(shared.2.load(Relaxed) && shared.0.shown(), "one is left");
    });
}
