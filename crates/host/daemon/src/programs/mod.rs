//! Programs that a command loaded. They replace those of the configuration, also after a reload, a restart
//! and a crash, until a command reverts them.
//!
//! ```text
//!   STATE/programs/TENANT+VM+DIRECTION.json    the record in force, and the last records
//!   STATE/programs/SHA256.o                    an object
//! ```
//!
//! Objects are written before the record that names them, and each file under another name first, so that a
//! crash leaves the old or the new program. A file that was damaged is refused by its digest. Temporary
//! programs are kept in memory only.

pub(crate) mod bundle_files;
mod object_files;
mod record;
pub(crate) mod refusal;

pub use record::{ObjectRecord, ProgramAction, ProgramRecord, ProgramSource};

pub(crate) use object_files::read_objects;

use p4shield_abi::Direction;
use p4shield_text::chain;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Subfolder of the state folder.
const FOLDER: &str = "programs";
/// What to do about a stored program that cannot be read.
const REMEDY: &str = "load the program again, or run `p4shield program revert`";
/// Most records of a direction's history.
const MAX_HISTORY: usize = 100;

/// The objects of a program.
type Objects = Vec<Vec<u8>>;

/// A direction of a VM, by names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ProgramKey(String);

impl ProgramKey {
    /// Names contain no `+`, so different directions have different keys, and no key leaves the folder.
    pub(crate) fn new(tenant: &str, vm: &str, direction: Direction) -> Self {
        Self(format!("{tenant}+{vm}+{}", direction.name()))
    }
}

/// The lasting record in force, and the history; the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    current: Option<ProgramRecord>,
    history: Vec<ProgramRecord>,
}

/// What is known of a direction.
#[derive(Clone, Debug)]
struct Slot {
    /// Reason why the stored record cannot be read. Until a command replaces it, its program is refused: a
    /// direction that had a program must not pass packets like one without.
    unreadable: Option<String>,
    entry: Entry,
    /// The objects of the lasting record.
    lasting: Result<Objects, String>,
    temporary: Option<(ProgramRecord, Objects)>,
}

impl Slot {
    const fn new(entry: Entry, lasting: Result<Objects, String>) -> Self {
        Self { unreadable: None, entry, lasting, temporary: None }
    }

    /// Returns the record in force.
    fn in_force(&self) -> Option<&ProgramRecord> {
        self.temporary.as_ref().map(|(record, _)| record).or(self.entry.current.as_ref())
    }

    /// Returns the objects in force; `None`: those that the configuration names.
    fn objects(&self) -> Option<Result<Objects, String>> {
        let temporary = self.temporary.as_ref().map(|(_, objects)| Ok(objects.clone()));
        temporary.or_else(|| self.lasting_objects())
    }

    /// Returns the objects in force without temporary programs; `None`: those that the configuration names.
    fn lasting_objects(&self) -> Option<Result<Objects, String>> {
        let unreadable = self.unreadable.clone().map(Err);
        unreadable.or_else(|| self.entry.current.is_some().then(|| self.lasting.clone()))
    }

    fn expects_program(&self) -> Option<bool> {
        let record = self.in_force().map(|record| record.action == ProgramAction::Load);
        record.or_else(|| self.unreadable.as_ref().map(|_| true))
    }
}

type Slots = BTreeMap<ProgramKey, Slot>;

/// The programs of all directions that commands changed.
pub(crate) struct ProgramStore {
    /// `None`: the daemon has no state folder.
    folder: Option<PathBuf>,
    slots: Mutex<Slots>,
}

impl ProgramStore {
    /// Reads what earlier daemons stored below `state`. What cannot be read is a refused program.
    pub(crate) fn open(state: Option<&Path>) -> Self {
        let folder = state.map(|state| state.join(FOLDER));
        let slots = folder.as_deref().map(read_all).unwrap_or_default();
        Self { folder, slots: Mutex::new(slots) }
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the objects of a direction: a command's, or else those that the configuration names.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(crate) fn objects(&self, key: &ProgramKey, configured: &[PathBuf]) -> Result<Objects, String> {
        let stored = self.slots().get(key).and_then(Slot::objects);
        stored.unwrap_or_else(|| read_objects(configured))
    }

    /// Returns the objects that a reload puts in force: [`Self::objects`] without temporary programs.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(crate) fn lasting_objects(
        &self,
        key: &ProgramKey,
        configured: &[PathBuf],
    ) -> Result<Objects, String> {
        let stored = self.slots().get(key).and_then(Slot::lasting_objects);
        stored.unwrap_or_else(|| read_objects(configured))
    }

    fn in_force(&self, key: &ProgramKey) -> Option<ProgramRecord> {
        self.slots().get(key).and_then(Slot::in_force).cloned()
    }

    /// Returns whether a direction should have a program; `configured`: whether the configuration names one.
    pub(crate) fn expects(&self, key: &ProgramKey, configured: bool) -> bool {
        self.slots().get(key).and_then(Slot::expects_program).unwrap_or(configured)
    }

    /// Returns where the program of a direction comes from.
    pub(crate) fn source(&self, key: &ProgramKey) -> ProgramSource {
        self.in_force(key).map_or(ProgramSource::Configuration, ProgramSource::Command)
    }

    /// Returns the records of a direction, the newest first.
    pub(crate) fn history(&self, key: &ProgramKey) -> Vec<ProgramRecord> {
        self.slots().get(key).map(|s| s.entry.history.iter().rev().cloned().collect()).unwrap_or_default()
    }

    /// Records a command. Objects of a program that is not temporary are stored.
    ///
    /// # Errors
    /// Reason why the program will not survive a restart. It is in force all the same.
    pub(crate) fn record(
        &self,
        key: &ProgramKey,
        record: ProgramRecord,
        objects: Objects,
    ) -> Result<(), String> {
        let mut slots = self.slots();
        let empty = || Slot::new(Entry::default(), Ok(Vec::new()));
        let slot = slots.entry(key.clone()).or_insert_with(empty);
        slot.entry.history.push(record.clone());
        let excess = slot.entry.history.len().saturating_sub(MAX_HISTORY);
        slot.entry.history.drain(..excess);
        let lasts = !record.temporary && record.action != ProgramAction::Revert;
        if record.temporary {
            slot.temporary = Some((record, objects));
        } else {
            (slot.temporary, slot.unreadable) = (None, None);
            slot.entry.current = (record.action != ProgramAction::Revert).then_some(record);
            slot.lasting = Ok(objects);
        }
        match &self.folder {
            // A temporary program does not replace what may still be repaired.
            Some(_) if slot.unreadable.is_some() => {}
            Some(folder) => {
                let stored = write(folder, key, slot);
                stored.map_err(|e| format!("it cannot be stored in {}: {}", folder.display(), chain(&e)))?;
                remove_unused(folder, &slots);
            }
            None if lasts => return Err("the daemon has no state folder; set daemon.state".to_owned()),
            None => {}
        }
        Ok(())
    }

    /// Forgets temporary programs: a reload replaces them.
    pub(crate) fn forget_temporary(&self) {
        self.slots().values_mut().for_each(|slot| slot.temporary = None);
    }
}

/// Reads all directions.
fn read_all(folder: &Path) -> Slots {
    let Ok(files) = std::fs::read_dir(folder) else { return Slots::new() };
    let read = |file: std::fs::DirEntry| {
        let path = file.path();
        let key = path.file_name()?.to_str()?.strip_suffix(".json")?.to_owned();
        let text = std::fs::read_to_string(&path).map_err(|e| e.to_string());
        let entry = text.and_then(|t| serde_json::from_str::<Entry>(&t).map_err(|e| e.to_string()));
        let slot = match entry {
            Ok(entry) => {
                let stored = entry.current.as_ref().map(|r| read_stored(folder, r));
                Slot::new(entry, stored.unwrap_or_else(|| Ok(Vec::new())))
            }
            Err(error) => {
                let file = path.display();
                tracing::error!(event = "stored_program_lost", %file, "its program is refused: {error}");
                let why = format!("the stored record {file} cannot be read: {error}; {REMEDY}");
                Slot { unreadable: Some(why), ..Slot::new(Entry::default(), Ok(Vec::new())) }
            }
        };
        Some((ProgramKey(key), slot))
    };
    files.flatten().filter_map(read).collect()
}

/// Reads the objects of a record.
fn read_stored(folder: &Path, record: &ProgramRecord) -> Result<Objects, String> {
    let read = |object: &ObjectRecord| {
        let path = object_path(folder, &object.sha256);
        let objects = read_objects(std::slice::from_ref(&path))?;
        let intact = objects.first().is_some_and(|bytes| digest(bytes) == object.sha256);
        if intact { Ok(objects) } else { Err(format!("the stored object {} is damaged", path.display())) }
    };
    let objects = record.objects.iter().map(read).collect::<Result<Vec<_>, _>>();
    objects.map(|o| o.into_iter().flatten().collect()).map_err(|why| format!("{why}; {REMEDY}"))
}

/// Returns the digest of an object, hexadecimal.
pub(crate) fn digest(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

fn object_path(folder: &Path, sha256: &str) -> PathBuf {
    // A digest that was tampered with leads to no other folder.
    let plain: String = sha256.chars().filter(char::is_ascii_hexdigit).collect();
    folder.join(format!("{plain}.o"))
}

/// Writes the objects of the lasting record, then the entry.
fn write(folder: &Path, key: &ProgramKey, slot: &Slot) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let objects = slot.entry.current.iter().flat_map(|record| &record.objects);
    for (object, bytes) in objects.zip(slot.lasting.iter().flatten()) {
        replace(folder, &object_path(folder, &object.sha256), bytes)?;
    }
    replace(folder, &folder.join(format!("{}.json", key.0)), &serde_json::to_vec_pretty(&slot.entry)?)
}

/// Replaces a file by one that is complete on disk.
fn replace(folder: &Path, path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    // Readable for the daemon only: a program may show what a tenant protects.
    let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    std::fs::File::open(folder)?.sync_all()
}

/// Removes objects that no lasting record names, unless an unreadable one may name them.
fn remove_unused(folder: &Path, slots: &Slots) {
    if slots.values().any(|slot| slot.unreadable.is_some()) {
        return;
    }
    let records = slots.values().filter_map(|slot| slot.entry.current.as_ref());
    let used: BTreeSet<_> =
        records.flat_map(|r| &r.objects).map(|object| object_path(folder, &object.sha256)).collect();
    let Ok(files) = std::fs::read_dir(folder) else { return };
    for path in files.flatten().map(|file| file.path()) {
        if path.extension().is_some_and(|e| e == "o") && !used.contains(&path) {
            // A file that stays is removed after the next command.
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests;
