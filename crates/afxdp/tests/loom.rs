//! The hand-over of rings between threads and the claim of a frame, model-checked: every interleaving, every value that
//! the memory model lets a load see.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p p4shield-afxdp --test loom --release`.
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering::Relaxed};
use loom::thread;
use p4shield_afxdp::frames::{Ledger, Seats, Shape, Track};
use p4shield_afxdp::handover::HandOver;

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
