//! Recording starts and ends. Events of the program need its *twin*: the same program, compiled for
//! tracing. It runs while events are recorded, with the entries and registers of the plain one.

use crate::io::PacketIo;
use crate::record::{RecordFilter, Recorder, Records};
use crate::switch::{Recording, Switch, Twin};
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
        std::mem::replace(&mut self.twin, twin)
    }

    /// Starts to record up to `most` packets, with the events of the program if it has a twin and `traced`
    /// says so. Another recording ends. It ends by itself if no client takes records for so long.
    pub fn record(&mut self, filter: RecordFilter, most: u64, traced: bool, lasts: Duration) {
        self.stop_recording();
        let traced = traced && self.twin.is_some();
        if traced {
            self.exchange_twin();
        }
        self.recording =
            Some(Recording { recorder: Recorder::new(filter, most), until_ns: self.after(lasts), traced });
    }

    /// Returns true while packets are recorded.
    pub const fn is_recording(&self) -> bool {
        self.recording.is_some()
    }

    /// Returns what was recorded since the last call, and whether nothing else follows. The recording goes on
    /// for so long, unless it is complete. `None` if there is none.
    pub fn take_records(&mut self, lasts: Duration) -> Option<(Records, bool)> {
        let until_ns = self.after(lasts);
        let recording = self.recording.as_mut()?;
        recording.until_ns = until_ns;
        Some(recording.recorder.take())
    }

    /// Ends the recording, if there is one. The plain program runs then.
    pub fn stop_recording(&mut self) {
        if self.recording.take().is_some_and(|r| r.traced) {
            self.exchange_twin();
        }
    }

    /// Ends a recording whose client has gone.
    pub(crate) fn stop_late_recording(&mut self) {
        let now = self.now_ns();
        if self.recording.as_ref().is_some_and(|r| r.until_ns <= now) {
            self.stop_recording();
        }
    }

    /// Judges a packet as if it had arrived at a port, which counts it as received.
    ///
    /// # Errors
    /// [`InjectError`].
    pub fn inject(&mut self, port: u16, bytes: &[u8]) -> Result<(), InjectError> {
        let index = self.exit.indexes.get(usize::from(port)).copied().flatten();
        let index = index.ok_or(InjectError::NoPort(port))?;
        let Some(slot) = self.batch.first_mut().filter(|_| bytes.len() <= MAX_HEADER_BYTES as usize) else {
            return Err(InjectError::TooLong(bytes.len()));
        };
        slot.packet.reset(bytes, bytes.len() as u32);
        slot.original.clear();
        slot.original.extend_from_slice(bytes);
        let counts = &mut self.exit.counts.ports[index];
        counts.received += 1;
        counts.received_bytes += bytes.len() as u64;
        self.judge(index, 1);
        // A device that is gone is reported by the next round.
        let _ = self.exit.io.flush();
        Ok(())
    }

    /// Runs the twin instead of the program, or the program again instead of its twin.
    fn exchange_twin(&mut self) {
        let Some(Twin { program, traits, maps }) = self.twin.take() else { return };
        let before = self.traits;
        let program = self.exchange(program, traits, &maps);
        self.twin = Some(Twin { program, traits: before, maps });
    }

    fn after(&self, lasts: Duration) -> u64 {
        self.now_ns().saturating_add(u64::try_from(lasts.as_nanos()).unwrap_or(u64::MAX))
    }
}
