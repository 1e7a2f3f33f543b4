//! Notes of batches, for `p4shield switch batches`.
//!
//! A client starts the notes, and then takes them again and again: each time the desk exchanges the log of
//! each packet thread and an empty one. The notes end [`LEASE`] after the last time, so that a client
//! that was killed leaves nothing behind.

use crate::api::{BatchesView, ThreadBatches};
use crate::desk::Desk;
use crate::noting::Noting;
use crate::order::Work;
use crate::recorder::LEASE;
use p4shield_switch::{BatchLog, BatchTimes, TakenBatches, Ticks};
use std::sync::{MutexGuard, PoisonError};
use std::time::Instant;

/// The reason why a client gets no notes.
const BUSY: &str = "another client takes the batches; try again when it has ended";
const LATE: &str = "the notes have ended: no client took them";

impl Desk {
    /// Starts to note batches.
    pub(crate) fn note_batches(&self) -> Result<(), String> {
        let mut noting = self.noting();
        let now = Instant::now();
        if noting.as_ref().is_some_and(|noting| now < noting.until) {
            return Err(BUSY.to_owned());
        }
        let mut begun = Noting::new(Ticks::calibrated(), self.threads.count(), now + LEASE);
        if let Err(why) = self.give_logs(|| Some(begun.log())) {
            // The others do without, too.
            let _ = self.give_logs(|| None);
            return Err(why);
        }
        *noting = Some(begun);
        Ok(())
    }

    /// Takes what was noted since the last time.
    pub(crate) fn take_batches(&self) -> Result<BatchesView, String> {
        let mut current = self.noting();
        let noting = current.as_mut().ok_or(LATE)?;
        noting.until = Instant::now() + LEASE;
        let mut threads = Vec::with_capacity(self.threads.count());
        for thread in 0..self.threads.count() {
            let work = Work::Batches(Some(noting.log()));
            let Work::Batches(Some(mut log)) = self.threads.execute_on(thread, work)?.work else {
                return Err(LATE.to_owned());
            };
            threads.push(view(&log.take()));
            noting.keep(log);
        }
        Ok(BatchesView { threads })
    }

    /// Ends the notes.
    pub(crate) fn stop_notes(&self) -> Result<(), String> {
        *self.noting() = None;
        self.give_logs(|| None)
    }

    /// Ends the notes if their client is gone.
    pub(crate) fn end_late_notes(&self) {
        let mut noting = self.noting();
        if noting.as_ref().is_some_and(|noting| noting.until <= Instant::now()) {
            // The switch is about to end if a packet thread does not answer.
            let _ = self.give_logs(|| None);
            *noting = None;
        }
    }

    fn noting(&self) -> MutexGuard<'_, Option<Noting>> {
        self.noting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives each thread another log, or none.
    fn give_logs(&self, mut next: impl FnMut() -> Option<Box<BatchLog>>) -> Result<(), String> {
        (0..self.threads.count())
            .try_for_each(|thread| self.threads.execute_on(thread, Work::Batches(next())).map(drop))
    }
}

fn view(taken: &TakenBatches) -> ThreadBatches {
    let nanoseconds = |micros: f64| (micros * 1e3).round() as u64;
    let short = |micros: f64| u32::try_from(nanoseconds(micros)).unwrap_or(u32::MAX);
    let batch = |b: &BatchTimes| [b.packets, short(b.receive), short(b.process), short(b.send)];
    ThreadBatches {
        batches: taken.batches.iter().map(batch).collect(),
        span_ns: nanoseconds(taken.span),
        empty_ns: nanoseconds(taken.empty),
        missed: taken.missed,
    }
}
