//! Packets go on behind their calls of functions in a compartment.

use crate::calls::{CallSettings, Caller, From};
use crate::counts::DropReason;
use crate::exit::Leaving;
use crate::io::PacketIo;
use crate::pipeline::Pipeline;
use crate::queues::Queues;
use crate::record::Step;
use crate::switch::{Local, Slot, Switch};
use p4shield_abi::schema::Architecture;
use p4shield_traffic::{Run, Traffic};
use std::time::Duration;

impl<I: PacketIo> Switch<I> {
    /// Sets the way of this thread to the compartment, or replaces it, and returns the one before. Packets
    /// that wait for the old one's answers get none.
    pub fn set_calls(&mut self, settings: Option<Box<CallSettings>>) -> Option<Box<CallSettings>> {
        self.local.calls.set(settings)
    }

    /// Goes on with packets whose answers are there, and receives none. Returns their number.
    ///
    /// # Errors
    /// As [`Switch::round`].
    pub fn round_of_answers(&mut self) -> Result<usize, I::Error> {
        let answered = self.answer();
        self.local.exit.links.wake();
        self.local.calls.publish();
        self.local.exit.io.flush()?;
        Ok(answered)
    }

    /// Returns true while packets wait for answers: the thread must not sleep.
    pub fn awaits_answers(&self) -> bool {
        self.local.calls.waiting() > 0
    }

    /// Goes on with packets whose answers are there. Returns their number.
    pub(crate) fn answer(&mut self) -> usize {
        // Answers without a packet are taken, too: they make room for further messages.
        if self.local.calls.is_idle() {
            return 0;
        }
        let (mut pipeline, mut queues) = (self.pipeline.lock(), self.queues.lock_any());
        self.local.answer(&mut pipeline, queues.as_deref_mut())
    }
}

impl<I: PacketIo> Local<I> {
    /// Goes on with packets whose answers are there. Returns their number.
    fn answer(&mut self, pipeline: &mut Pipeline, mut queues: Option<&mut Queues>) -> usize {
        let now_ns = self.now_ns();
        self.calls.take(now_ns);
        let mut gone = 0;
        while let Some((place, caller)) = self.calls.next() {
            gone += 1;
            self.exit.counts.waiting = self.exit.counts.waiting.wrapping_sub(1);
            self.go_on(pipeline, queues.as_deref_mut(), &caller, now_ns);
            self.calls.done(place, caller);
        }
        gone
    }

    /// Lets the packets that wait go on, before the program is replaced. Waits for answers, but not long for
    /// a packet that calls again and again.
    pub(crate) fn drain_calls(&mut self, pipeline: &mut Pipeline, queues: &mut Queues) {
        let until_ns = self.after(self.calls.patience());
        while self.calls.waiting() > 0 {
            self.calls.publish();
            if self.now_ns() > until_ns {
                self.calls.end(true);
            }
            if self.answer(pipeline, Some(queues)) == 0 {
                std::thread::yield_now();
            }
        }
        self.calls.end(false);
    }

    fn go_on(&mut self, pipeline: &mut Pipeline, queues: Option<&mut Queues>, caller: &Caller, now_ns: u64) {
        let Self { exit, batch, info, calls, .. } = self;
        let Pipeline { program, traffic, traits, recording, series, .. } = pipeline;
        let mut recorder = recording.as_mut().map(|r| &mut r.recorder);
        let time = Duration::from_nanos(now_ns.saturating_sub(caller.since_ns));
        if let (Some(recorder), Some(id)) = (&mut recorder, caller.record) {
            recorder.resume(id, Step::Answered { time }, program);
        }
        let waits_before = traits.reads_queues && queues.as_ref().is_some_and(|q| q.exist());
        let arrived_at = exit.place_of(caller.meta.input_port as u16);
        let next = From { flow: caller.flow, series: *series, ..From::default() };
        let architecture = traits.architecture;
        let mut leaving = Leaving {
            exit,
            queues,
            from: arrived_at.as_ref().copied().unwrap_or_default(),
            architecture,
            waits_before,
            now_ns,
            recorder,
            calls: Some(calls),
            caller: next,
        };
        let Some(Slot { packet, .. }) = batch.first_mut() else { return };
        let mut run = Run { program, packet, meta: &caller.meta, info };
        if caller.series != *series || !caller.goes_on() {
            leaving.drop_packet(DropReason::Unanswered);
        } else if arrived_at.is_err() && architecture != Architecture::V1model {
            // Its program names no port: it would leave beside the one that is not there any more.
            leaving.drop_packet(DropReason::NoPort);
        } else if let Some(result) = &caller.result {
            run.packet.restore(&caller.left);
            if traits.divided && Traffic::asks(result) {
                run.program.write_block(caller.block.bytes());
                traffic.follow(&mut run, caller.entry, caller.bytes.bytes(), result, &mut leaving);
            } else {
                leaving.send(run.packet, result);
            }
        } else if caller.was_behind() {
            traffic.resume(&mut run, caller.ready(), &mut leaving);
        } else {
            traffic.answer(&mut run, caller.ready(), &mut leaving);
        }
        if let Some(recorder) = &mut leaving.recorder {
            recorder.end();
        }
    }
}
