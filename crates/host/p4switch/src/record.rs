//! Records of packets, for `p4shield switch trace` and `capture`.
//!
//! A client starts a recording and then takes records again and again. The recording ends three seconds after
//! the last time, so that a client that was killed leaves nothing behind.

use crate::desk::Desk;
use crate::order::Work;
use crate::program::Named;
use crate::recorded::{RecordView, RecordsView, StepView, Wanted};
use crate::recorder::{BUSY, RecordWork};
use p4shield_switch::{Record, RecordFilter, Records, Step, Twin};
use p4shield_tables::Kept;
use p4shield_tables::names::NameError;
use p4shield_tables::trace::{self, PointKind, TracePoint};
use p4shield_traffic::Event;
use std::collections::BTreeSet;
use std::sync::PoisonError;
use std::time::SystemTime;

impl Desk {
    /// Starts a recording.
    pub(crate) fn record(&self, wanted: Wanted) -> Result<(), String> {
        if wanted.events {
            self.install_twin()?;
        }
        let program = self.program();
        let through = wanted.through.as_deref().map_or(Ok(Vec::new()), |name| program.through(name))?;
        for port in [wanted.port, wanted.leaves_by].into_iter().flatten() {
            self.ports.has(port)?;
        }
        drop(program);
        let Wanted { port, leaves_by, dropped, events, most, .. } = wanted;
        self.start_recording(
            RecordFilter { port, leaves_by, through, dropped, injected: false },
            most,
            events,
        )
    }

    fn start_recording(&self, filter: RecordFilter, most: u64, events: bool) -> Result<(), String> {
        let _held = self.hold();
        match self.recording(RecordWork::Start { filter, most, events, started: false })? {
            RecordWork::Start { started: true, .. } => {}
            _ => return Err(BUSY.to_owned()),
        }
        // The recording is the first thread's until the others share the program. They do not as long as it
        // goes on.
        self.gather()
    }

    /// Returns whether packets are recorded; also true if the packet thread does not answer.
    pub(crate) fn is_recording(&self) -> bool {
        !matches!(self.recording(RecordWork::Ask(true)), Ok(RecordWork::Ask(false)))
    }

    /// Takes what was recorded since the last time.
    pub(crate) fn records(&self) -> Result<RecordsView, String> {
        let program = self.program();
        match self.recording(RecordWork::Take(None))? {
            RecordWork::Take(Some((records, done))) => Ok(program.view(records, done)),
            _ => {
                Err("the recording has ended: the program was replaced, or no client took packets".to_owned())
            }
        }
    }

    pub(crate) fn stop_recording(&self) -> Result<(), String> {
        let _held = self.hold();
        self.recording(RecordWork::Stop).map(|_| ())
    }

    /// Judges a packet as if it had arrived, and returns what happened to it. If a copy of it waits in a
    /// queue, that is not done: the client takes the record later.
    pub(crate) fn inject(&self, port: u16, packet: &str) -> Result<RecordsView, String> {
        let bytes = hex::decode(packet).map_err(|e| format!("the packet is not hexadecimal: {e}"))?;
        self.install_twin()?;
        self.start_recording(RecordFilter { injected: true, ..RecordFilter::default() }, 1, true)?;
        let work = self.recording(RecordWork::Inject { port, bytes, judged: Ok(()) });
        let records = match work? {
            RecordWork::Inject { judged: Err(why), .. } => Err(why),
            _ => self.records(),
        };
        if !records.as_ref().is_ok_and(|records| !records.done) {
            self.stop_recording()?;
        }
        records
    }

    fn recording(&self, work: RecordWork) -> Result<RecordWork, String> {
        match self.threads.execute(Work::Record(work))?.work {
            Work::Record(work) => Ok(work),
            _ => Err("no recording".to_owned()),
        }
    }

    /// Verifies the program that was compiled for tracing, and hands it to the packet thread. That takes a
    /// while, and happens once for each program.
    fn install_twin(&self) -> Result<(), String> {
        let mut running = self.program.write().unwrap_or_else(PoisonError::into_inner);
        if running.points.is_some() {
            return Ok(());
        }
        let objects = running.traced.as_ref().map_err(Clone::clone)?;
        let points =
            objects.first().and_then(|o| o.trace_points()).ok_or("the program has no trace points")?;
        let points = trace::points(points).map_err(|e| format!("the trace points cannot be parsed: {e}"))?;
        let loaded = (self.loader)(&running.file, objects)
            .map_err(|why| format!("the program cannot be traced, since it is longer then: {why}"))?;
        let (program, traits, twin) = loaded.parts(Ok(Vec::new()));
        let Kept { maps, .. } = Kept::between(&running.described, &twin.described);
        let twin = Box::new(Twin { program, traits, maps });
        match self.recording(RecordWork::Twin { twin: Some(twin), installed: false })? {
            RecordWork::Twin { installed: true, .. } => {}
            _ => return Err(BUSY.to_owned()),
        }
        running.points = Some(points);
        Ok(())
    }
}

impl Named {
    /// Returns the numbers of the trace points with a name, full or as short as is clear.
    fn through(&self, name: &str) -> Result<Vec<u64>, String> {
        let points = self.points.as_deref().unwrap_or_default();
        let is = |p: &TracePoint| p.name == name || p.name.rsplit('.').next() == Some(name);
        let numbers: Vec<u64> = (1..).zip(points).filter(|(_, p)| is(p)).map(|(n, _)| n).collect();
        if numbers.is_empty() {
            let named = points.iter().filter(|p| p.kind != PointKind::Condition);
            let known: BTreeSet<&str> = named.map(|p| p.name.as_str()).collect();
            let known = known.into_iter().collect::<Vec<_>>().join(", ");
            let what = "state, control, table, action or extern";
            return Err(NameError::Unknown { what, name: name.to_owned(), known }.to_string());
        }
        Ok(numbers)
    }

    fn view(&self, records: Records, done: bool) -> RecordsView {
        let points = self.points.as_deref().unwrap_or_default();
        let packets = records.packets.iter().map(|r| view(r, points)).collect();
        RecordsView { packets, missed: records.missed, done }
    }
}

fn view(record: &Record, points: &[TracePoint]) -> RecordView {
    let since = record.at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    RecordView {
        time_ns: u64::try_from(since.as_nanos()).unwrap_or(u64::MAX),
        port: record.port,
        bytes: hex::encode(&record.bytes),
        steps: record.steps.iter().filter_map(|s| step(s, points)).collect(),
    }
}

fn step(step: &Step, points: &[TracePoint]) -> Option<StepView> {
    Some(match step {
        Step::Program(words) => StepView::Program(trace::event(points, words)?),
        Step::Sent { port, bytes } => StepView::Sent { port: *port, bytes: hex::encode(bytes) },
        Step::Queued { port } => StepView::Queued { port: *port },
        Step::Waited { port, time } => {
            StepView::Waited { port: *port, nanoseconds: u64::try_from(time.as_nanos()).unwrap_or(u64::MAX) }
        }
        Step::Called => StepView::Called,
        Step::Behind => StepView::Behind,
        Step::Answered { time } => {
            StepView::Answered { nanoseconds: u64::try_from(time.as_nanos()).unwrap_or(u64::MAX) }
        }
        Step::Dropped(reason) => StepView::Dropped { reason: reason.name().to_owned() },
        Step::Traffic(event) => StepView::Traffic(
            match event {
                Event::Replicated => "replicated",
                Event::Copied => "copied",
                Event::Resubmitted => "resubmitted",
                Event::Recirculated => "recirculated",
            }
            .to_owned(),
        ),
    })
}
