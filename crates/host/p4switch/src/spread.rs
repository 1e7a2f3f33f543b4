//! Gives each packet thread the program for itself, and takes it back.
//!
//! ```text
//!   shared:  threads 1 to N ──► pipeline, in turn           any program
//!   own:     thread 1 ──► pipeline 1 … thread N ──► N       programs that only count
//! ```
//!
//! A switch begins shared. It spreads such a program over its threads, and gathers it to replace it, or to
//! record packets. Entries are written to all then, and a counter is the sum of all. No packet is lost on the
//! way, no entry and no count.

use crate::change::{Change, Changes};
use crate::counters::Counters;
use crate::desk::Desk;
use crate::order::Work;
use crate::program::Named;
use p4shield_bpf::Program;
use p4shield_bpf::maps::{Map, UpdateFlag};
use p4shield_switch::PipelineHandle;
use p4shield_tables::{Extent, ReadMap};
use std::ops::Range;
use std::sync::PoisonError;

/// Changes that an order has.
const PART: usize = 64;

impl Desk {
    /// Gives each packet thread the program for itself, if it is one for that and nothing is recorded. If a
    /// step fails, the threads share it, as before.
    pub(crate) fn spread(&self) {
        if self.threads.count() == 1 {
            return;
        }
        let is_shared = |running: &Named| !running.is_own && running.counters.is_ok();
        if !is_shared(&self.program()) {
            return;
        }
        let mut running = self.program.write().unwrap_or_else(PoisonError::into_inner);
        if !is_shared(&running) || self.is_recording() {
            return;
        }
        if let Err(why) = self.spread_program(&mut running) {
            tracing::warn!(event = "program_not_spread", "the packet threads share the program: {why}");
        }
    }

    fn spread_program(&self, running: &mut Named) -> Result<(), String> {
        let Ok(counters) = running.counters.clone() else { return Ok(()) };
        let groups = self.copied_groups()?;
        let sessions = self.copied_sessions()?;
        let mut pipelines = Vec::new();
        for _ in 1..self.threads.count() {
            let mut program = (running.again)()?;
            self.fill(running, &counters, &mut program)?;
            let traits = running.traits;
            pipelines.push(PipelineHandle::new(program, traits, groups.clone(), sessions.clone()));
        }
        // From here on nothing fails, but for a thread that does not answer.
        running.is_own = true;
        for (thread, pipeline) in (1..).zip(pipelines) {
            if let Err(why) = self.threads.execute_on(thread, Work::Pipeline(Some(pipeline))) {
                self.gather_program(running)?;
                return Err(why);
            }
        }
        Ok(())
    }

    /// Has the threads share the program, whose counters are the sums of all then.
    ///
    /// # Errors
    /// A packet thread does not answer.
    pub(crate) fn gather_program(&self, running: &mut Named) -> Result<(), String> {
        if !running.is_own {
            return Ok(());
        }
        let counters = running.counters.clone().unwrap_or_default();
        let done = self.threads.execute(Work::Handle(None))?;
        let Work::Handle(Some(shared)) = done.work else { return Err("no pipeline".to_owned()) };
        for thread in 1..self.threads.count() {
            let work = Work::Pipeline(Some(shared.clone()));
            let done = self.threads.execute_on(thread, work)?;
            // A thread may share it already, if another one did not answer the last time.
            if let Work::Pipeline(Some(own)) = done.work
                && !own.is(&shared)
            {
                self.add_counts(&own, &counters)?;
            }
        }
        running.is_own = false;
        Ok(())
    }

    /// Gathers the program before something that only a shared one can do.
    ///
    /// # Errors
    /// A packet thread does not answer.
    pub(crate) fn gather(&self) -> Result<(), String> {
        self.gather_program(&mut self.program.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds the counters of a pipeline that no thread runs any more to those of the first thread.
    fn add_counts(&self, own: &PipelineHandle, counters: &Counters) -> Result<(), String> {
        let mut changes = Vec::new();
        let mut pipeline = own.lock();
        for (symbol, range) in counters.iter().filter(|(_, range)| !range.is_empty()) {
            let Some(map) = pipeline.program().maps().and_then(|maps| maps.get(symbol)) else { continue };
            changes.extend(map.iter().filter_map(|(key, value)| count(symbol, range, key, &value)));
        }
        drop(pipeline);
        let mut changes = changes.into_iter().peekable();
        while changes.peek().is_some() {
            let part = Changes::new(changes.by_ref().take(PART).collect());
            self.threads.execute(Work::Change(part))?.result.map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    /// Gives a program the entries of the one that runs on the first thread. Its counters stay zero.
    fn fill(&self, running: &Named, counters: &Counters, program: &mut Program) -> Result<(), String> {
        let described = &running.described;
        for (index, (symbol, _)) in described.maps.iter().enumerate() {
            let Some(range) = counters.get(symbol) else { continue };
            let Some(map) = program.maps_mut().and_then(|maps| maps.get_mut(symbol)) else { continue };
            clear(map);
            let mut next = Some(0);
            while let Some(from) = next {
                let extent = Extent { from, limit: None, bytes: usize::MAX, zeros: true };
                let page = self.reader(running).read(described, index, extent)?;
                for (key, mut value) in page.entries {
                    if let Some(counters) = value.get_mut(range.clone()) {
                        counters.fill(0);
                    }
                    map.update(&key, &value, UpdateFlag::Any).map_err(|e| e.to_string())?;
                }
                next = page.next;
            }
        }
        Ok(())
    }
}

/// Deletes the entries of a map; those of an array stay.
fn clear(map: &mut Map) {
    let keys: Vec<_> = map.iter().map(|(key, _)| key).collect();
    for key in keys {
        // An array's elements are overwritten.
        let _ = map.delete(&key);
    }
}

/// Returns the change that adds the counters of an entry, unless all are zero.
fn count(symbol: &str, range: &Range<usize>, key: Vec<u8>, value: &[u8]) -> Option<Change> {
    let counts: Vec<u64> =
        value.get(range.clone())?.as_chunks().0.iter().map(|cell| u64::from_le_bytes(*cell)).collect();
    let counted = counts.iter().any(|count| *count > 0);
    counted.then(|| Change::Count { map: symbol.to_owned(), key, at: range.start, counts })
}
