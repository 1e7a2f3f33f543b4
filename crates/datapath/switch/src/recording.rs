//! Recording starts and ends. Events of the program need its *twin*: the same program, compiled for
//! tracing. It runs while events are recorded, with the entries and registers of the plain one.

use crate::io::PacketIo;
use crate::pipeline::{Pipeline, Recording, unique};
use crate::program::Twin;
use crate::queues::Queues;
use crate::record::{RecordFilter, Recorder, Records};
use crate::switch::{Local, Switch};
use p4shield_abi::channel::MAX_HEADER_BYTES;
use std::time::Duration;

/// The reason why a packet cannot be injected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InjectError {
    /// There is no such port.
    #[error("the switch has no port {0}")]
    NoPort(u16),
    /// The packet is too long.
    #[error("the packet has {0} bytes; {MAX_HEADER_BYTES} are the most")]
    TooLong(usize),
}

impl<I: PacketIo> Switch<I> {
    /// Installs the twin of the program, or removes it. Returns the one before. A recording ends.
    pub fn set_twin(&mut self, twin: Option<Twin>) -> Option<Twin> {
        self.stop_recording();
        std::mem::replace(&mut self.pipeline.lock().twin, twin)
    }

    /// Starts to record up to `most` packets, with the events of the program if it has a twin and `traced`
    /// says so. Another recording ends. It ends by itself if no client takes records for so long.
    pub fn record(&mut self, filter: RecordFilter, most: u64, traced: bool, lasts: Duration) {
        let (pipeline, queues) = (&mut *self.pipeline.lock(), &mut *self.queues.lock());
        self.local.stop_recording(pipeline, queues);
        let traced = traced && pipeline.twin.is_some();
        if traced {
            self.local.exchange_twin(pipeline, queues);
        }
        let recorder = Recorder::new(filter, most, unique());
        let until_ns = self.local.after(lasts);
        pipeline.recording = Some(Recording { recorder, until_ns, traced });
        self.pipeline.note(pipeline);
    }

    /// Returns true while packets are recorded.
    pub fn is_recording(&self) -> bool {
        self.pipeline.records()
    }

    /// Returns what was recorded since the last call, and whether nothing else follows. The recording goes on
    /// for so long, unless it is complete. `None` if there is none.
    pub fn take_records(&mut self, lasts: Duration) -> Option<(Records, bool)> {
        let until_ns = self.local.after(lasts);
        let mut pipeline = self.pipeline.lock();
        let recording = pipeline.recording.as_mut()?;
        recording.until_ns = until_ns;
        Some(recording.recorder.take())
    }

    /// Ends the recording, if there is one. The plain program runs then.
    pub fn stop_recording(&mut self) {
        let (pipeline, queues) = (&mut *self.pipeline.lock(), &mut *self.queues.lock());
        self.local.stop_recording(pipeline, queues);
        self.pipeline.note(pipeline);
    }

    /// Ends a recording whose client has gone.
    #[cold]
    pub(crate) fn stop_late_recording(&mut self) {
        let now = self.local.now_ns();
        let (pipeline, queues) = (&mut *self.pipeline.lock(), &mut *self.queues.lock());
        if pipeline.recording.as_ref().is_some_and(|r| r.until_ns <= now) {
            self.local.stop_recording(pipeline, queues);
        }
        self.pipeline.note(pipeline);
    }

    /// Judges a packet as if it had arrived at a port, which counts it as received.
    ///
    /// # Errors
    /// [`InjectError`].
    pub fn inject(&mut self, port: u16, bytes: &[u8]) -> Result<(), InjectError> {
        let Local { exit, batch, .. } = &mut self.local;
        let index = exit.place_of(port).map_err(|_| InjectError::NoPort(port))?;
        let Some(slot) = batch.first_mut().filter(|_| bytes.len() <= MAX_HEADER_BYTES as usize) else {
            return Err(InjectError::TooLong(bytes.len()));
        };
        slot.packet.reset(bytes, bytes.len() as u32);
        let counts = &mut exit.counts.ports[index];
        counts.received += 1;
        counts.received_bytes += bytes.len() as u64;
        let (mut pipeline, mut queues) = (self.pipeline.lock(), self.queues.lock_any());
        pipeline.injects(true);
        self.local.judge(&mut pipeline, queues.as_deref_mut(), index, 1);
        pipeline.injects(false);
        drop((pipeline, queues));
        self.local.exit.links.wake();
        // A device that is gone is reported by the next round.
        let _ = self.local.exit.io.flush();
        Ok(())
    }
}

impl<I: PacketIo> Local<I> {
    /// Ends the recording, if there is one.
    pub(crate) fn stop_recording(&mut self, pipeline: &mut Pipeline, queues: &mut Queues) {
        if pipeline.recording.take().is_some_and(|r| r.traced) {
            self.exchange_twin(pipeline, queues);
        }
    }

    /// Runs the twin instead of the program, or the program again instead of its twin.
    fn exchange_twin(&mut self, pipeline: &mut Pipeline, queues: &mut Queues) {
        let Some(Twin { program, traits, maps }) = pipeline.twin.take() else { return };
        let before = pipeline.traits;
        let program = self.exchange(pipeline, queues, program, traits, &maps);
        pipeline.twin = Some(Twin { program, traits: before, maps });
    }

    pub(crate) fn after(&self, lasts: Duration) -> u64 {
        self.now_ns().saturating_add(u64::try_from(lasts.as_nanos()).unwrap_or(u64::MAX))
    }
}
