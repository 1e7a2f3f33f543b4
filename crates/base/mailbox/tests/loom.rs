//! The flag of a sleeping thread, with every interleaving and every value that the memory model lets a load
//! return.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p p4shield-mailbox --test loom --release`.
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use loom::thread;
use p4shield_mailbox::Doze;

/// Two threads queue something for one that may fall asleep.
#[test]
fn a_thread_that_sleeps_is_woken_for_all_it_did_not_see() {
    loom::model(|| {
        let shared = Arc::new((Doze::default(), [AtomicBool::new(false), AtomicBool::new(false)]));
        let bells = Arc::new(AtomicU32::new(0));
        let pushers: Vec<_> = (0..2)
            .map(|n| {
                let (shared, bells) = (shared.clone(), bells.clone());
                thread::spawn(move || {
                    shared.1[n].store(true, Relaxed);
                    if shared.0.end() {
                        bells.fetch_add(1, Relaxed);
                    }
                })
            })
            .collect();
        shared.0.begin();
        let sleeps = shared.1.iter().all(|queued| !queued.load(Relaxed));
        pushers.into_iter().for_each(|p| p.join().unwrap());
        let rung = bells.load(Relaxed);
        assert!(!sleeps || rung == 1, "asleep, and {rung} bells rang");
    });
}
