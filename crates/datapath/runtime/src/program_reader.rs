//! Reading of programs' maps for the host, without a pause for packets.
//!
//! The worker copies a part of a map, of a few kilobytes, between two batches. This thread allocates the
//! memory, waits for the part and pauses before the next one, so that the worker mostly judges packets,
//! however large the map is and however often the host reads.

use crate::program::{MapReading, ProgramDetails};
use crate::worker::{ProgramRunner, WorkerAnswer, WorkerCommand};
use p4shield_abi::map::{MapDefinition, TYPE_ARRAY};
use p4shield_bpf::maps::{COPY_BYTES, COPY_SLOTS, MapCopy};
use p4shield_control::{MAX_PART, MapDescription, MapPart, MapQuery, ProgramDescription, ProgramSlot, Reply};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pause between two parts. The kernel adds about as much.
const PAUSE: Duration = Duration::from_micros(50);
/// Time after which a reply is sent with what was read until then.
const LONGEST: Duration = Duration::from_millis(20);
/// Most bytes that the encoding adds to an entry, or to a map in a description.
const OVERHEAD: usize = 40;

/// What the control thread knows about the programs that run.
#[derive(Default)]
pub(crate) struct ProgramReader {
    programs: HashMap<ProgramSlot, Arc<ProgramDetails>>,
}

impl ProgramReader {
    /// Notes that a program runs.
    pub(crate) fn note(&mut self, slot: ProgramSlot, details: Arc<ProgramDetails>) {
        self.programs.insert(slot, details);
    }

    /// Notes that no program runs.
    pub(crate) fn forget(&mut self, slot: ProgramSlot) {
        self.programs.remove(&slot);
    }

    /// Returns whether a VM has a program.
    pub(crate) fn has_programs(&self, vm: u16) -> bool {
        self.programs.keys().any(|slot| slot.vm == vm)
    }

    /// Notes that a VM is gone.
    pub(crate) fn forget_vm(&mut self, vm: u16) {
        self.programs.retain(|slot, _| slot.vm != vm);
    }

    fn details(&self, slot: ProgramSlot) -> Result<&ProgramDetails, String> {
        self.programs.get(&slot).map(Arc::as_ref).ok_or_else(|| "no program runs there".to_owned())
    }

    /// Describes a program from these numbers of maps and bytes of its schema on, as far as a message
    /// reaches.
    pub(crate) fn describe(&self, slot: ProgramSlot, maps: u32, schema: u32) -> Result<Reply, String> {
        let details = self.details(slot)?;
        let mut room = MAX_PART / 2;
        let fits = |map: &MapDescription| {
            room.checked_sub(map.name.len() + OVERHEAD).map(|left| room = left).is_some()
        };
        let described = details.maps.iter().skip(maps as usize).map(|(name, d)| MapDescription::new(name, d));
        let bytes = details.schema.as_deref().and_then(|s| s.get(schema as usize..)).unwrap_or_default();
        Ok(Reply::Description(Box::new(ProgramDescription {
            program: details.digest,
            map_count: details.maps.len() as u32,
            maps: described.take_while(fits).collect(),
            schema_len: details.schema.as_ref().map(|s| s.len() as u32),
            schema: bytes[..bytes.len().min(MAX_PART / 2)].to_vec(),
        })))
    }

    /// Reads a map, as far as a message and [`LONGEST`] reach.
    pub(crate) fn read(&self, worker: &impl ProgramRunner, query: &MapQuery) -> Result<Reply, String> {
        let details = self.details(query.slot)?;
        let map = query.map as usize;
        let (_, definition) = details.maps.get(map).ok_or("the program has no such map")?;
        let copy = MapCopy::new(definition, query.from);
        let mut reading = Box::new(MapReading { program: query.program, map, copy });
        let mut part = MapPart::default();
        let (end, most, mut left) = (Instant::now() + LONGEST, most_of_a_part(definition), MAX_PART);
        let skips_zeros = definition.map_type == TYPE_ARRAY && !query.zeros;
        while reading.copy.next().is_some() && left >= most {
            reading = copy_part(worker, query.slot, reading)?;
            for (key, value) in reading.copy.entries() {
                if skips_zeros && value.iter().all(|b| *b == 0) {
                    continue;
                }
                if part.entries.len() < query.rows as usize {
                    left = left.saturating_sub(key.len() + value.len() + OVERHEAD);
                    part.entries.push((key.to_vec(), value.to_vec()));
                } else {
                    part.more += 1;
                }
            }
            if Instant::now() >= end {
                break;
            }
            std::thread::sleep(PAUSE);
        }
        part.next = reading.copy.next();
        Ok(Reply::MapPart(part))
    }
}

/// Returns the most bytes that a part takes in a message.
fn most_of_a_part(definition: &MapDefinition) -> usize {
    let entry = definition.entry_key_size() as usize + definition.value_size as usize;
    entry.max(COPY_BYTES) + COPY_SLOTS as usize * OVERHEAD
}

fn copy_part(
    worker: &impl ProgramRunner,
    slot: ProgramSlot,
    reading: Box<MapReading>,
) -> Result<Box<MapReading>, String> {
    match worker.send(WorkerCommand::CopyMap(slot, reading)) {
        Some(WorkerAnswer::Copied(reading, Ok(()))) => Ok(reading),
        Some(WorkerAnswer::Copied(_, Err(e))) => Err(e.to_string()),
        Some(WorkerAnswer::Failed(why)) => Err(why),
        Some(_) => Err("the worker gave another answer".to_owned()),
        None => Err("the worker has ended".to_owned()),
    }
}
