//! Writes tables and groups: one change, or all of a file.

use crate::api::Answer;
use crate::change::{Change, ChangeError, Changes};
use crate::desk::Desk;
use crate::order::{Done, Work};
use crate::program::Named;
use p4shield_bpf::maps::{MapError, UpdateFlag};
use p4shield_entries::{Format, Located, read};
use p4shield_switch::QueueLimits;
use p4shield_tables::Control;
use p4shield_tables::entry::EntryTextError;
use p4shield_tables::model::TableFacts;
use p4shield_tables::write::{CloneSession, Entry, Group, Write};
use p4shield_traffic::{Copy, Session};
use std::sync::{MutexGuard, PoisonError};

/// Changes that the packet thread applies between two rounds.
const PART: usize = 64;

/// Changes that belong together: those of each packet thread that has a program of its own.
type Part = Vec<Changes>;

/// A change failed: its index, and the reason; those before it are undone.
type Failed = (usize, String);

impl Desk {
    pub(crate) fn write(&self, write: &Write) -> Result<(), String> {
        let program = self.program();
        let _alone = self.alone();
        let changes = self.encode(&program, write, &[])?;
        self.apply(&program, changes, |_| write).map_err(|(_, why)| why)
    }

    /// Loads a file. Packets see its changes one by one, and after a failure those from before.
    pub(crate) fn load(&self, format: &Format, text: &str, replace: bool) -> Result<Answer, String> {
        let program = self.program();
        let refused = |line, why| Ok(Answer::Refused { line, why });
        let mut writes = match read(program.control()?, format, text) {
            Ok(writes) => writes,
            Err(error) => return refused(error.line, error.problem.to_string()),
        };
        if replace {
            writes.iter_mut().for_each(Located::replace);
        }
        let _alone = self.alone();
        // The write of each change.
        let (mut changes, mut of) = (Vec::with_capacity(writes.len()), Vec::with_capacity(writes.len()));
        for (at, Located { line, write }) in writes.iter().enumerate() {
            match self.encode(&program, write, &changes) {
                Ok(encoded) => changes.extend(encoded),
                Err(why) => return refused(*line, why),
            }
            of.resize(changes.len(), at);
        }
        match self.apply(&program, changes, |change| &writes[of[change]].write) {
            Ok(()) => Ok(Answer::Loaded { writes: writes.len() }),
            Err((change, why)) => refused(writes[of[change]].line, why),
        }
    }

    /// Keeps the writes of other clients out until it is dropped.
    fn alone(&self) -> MutexGuard<'_, ()> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Encodes a write that comes after the changes `before`. Most are one change; those of whole arrays are
    /// as many as keep each one short.
    fn encode(&self, program: &Named, write: &Write, before: &[Change]) -> Result<Vec<Change>, String> {
        let control = program.control()?;
        let table = |name: &str| control.table(name).map_err(|e| e.to_string());
        let change = match write {
            Write::Add(entry) => put(table(&entry.table)?, entry, UpdateFlag::NoExist).map_err(text)?,
            Write::Set(entry) => put(table(&entry.table)?, entry, UpdateFlag::Any).map_err(text)?,
            Write::Delete { table: name, matches } => {
                let t = table(name)?;
                let map = t.entry_map().map_err(text)?.to_owned();
                Change::Remove { map, key: t.key_of(matches).map_err(text)? }
            }
            Write::Default { table: name, action } => {
                let t = table(name)?;
                let map = t.default_action_map().map_err(text)?.to_owned();
                let value = t.value_of(action, true).map_err(text)?;
                Change::Put { map, key: vec![0; 4], value, flag: UpdateFlag::Any }
            }
            Write::SetMembers { table: name, group, members } => {
                let t = table(name)?;
                let maps = t.group_maps().map_err(text)?.clone();
                let values =
                    members.iter().map(|m| t.value_of(m, false)).collect::<Result<_, _>>().map_err(text)?;
                Change::Members { maps, group: *group, values }
            }
            Write::AddValue { set, values } => {
                let set = control.value_set(set).map_err(text)?;
                let (key, value) = set.member_of(values).map_err(text)?;
                Change::Put { map: set.map.clone(), key, value, flag: UpdateFlag::Any }
            }
            Write::DeleteValue { set, values } => {
                let set = control.value_set(set).map_err(text)?;
                let (key, _) = set.member_of(values).map_err(text)?;
                Change::Remove { map: set.map.clone(), key }
            }
            Write::SetGroup(group) => self.set_group(group)?,
            Write::DeleteGroup { group } => Change::Group { group: *group, copies: None },
            Write::SetSession(CloneSession { session, port, group }) => {
                port.map_or(Ok(()), |port| self.ports.has(port))?;
                let target = Session { port: *port, group: *group };
                Change::Session { number: *session, session: Some(target) }
            }
            Write::SetQueue { port, packets, bits, depth } => {
                let limits = QueueLimits { packets: *packets, bits: *bits, depth: *depth };
                port.map_or(Ok(()), |port| self.ports.has(port))?;
                let all = self.ports.all().into_iter().map(|p| p.number);
                let ports = all.filter(|number| port.is_none_or(|port| port == *number));
                return Ok(ports.map(|port| Change::LimitQueue { port, limits }).collect());
            }
            Write::DeleteQueue { port } => Change::Queue { port: *port, limits: None },
            Write::DeleteSession { session } => Change::Session { number: *session, session: None },
            Write::Register { .. }
            | Write::Counter { .. }
            | Write::Meter { .. }
            | Write::EntryCounter { .. }
            | Write::EntryMeter { .. } => return self.encode_cells(program, write, before),
        };
        Ok(vec![change])
    }

    fn set_group(&self, Group { group, copies }: &Group) -> Result<Change, String> {
        copies.iter().try_for_each(|c| self.ports.has(c.port))?;
        let copies = copies.iter().map(|c| Copy { port: c.port, replica: c.replica }).collect();
        Ok(Change::Group { group: *group, copies: Some(copies) })
    }

    /// Has the packet thread apply changes: all, or none. The caller is [alone](Self::alone).
    fn apply<'w>(
        &self,
        program: &Named,
        changes: Vec<Change>,
        write: impl Fn(usize) -> &'w Write,
    ) -> Result<(), Failed> {
        let mut changes = changes.into_iter();
        let mut applied: Vec<Part> = Vec::new();
        loop {
            let part: Vec<_> = changes.by_ref().take(PART).collect();
            if part.is_empty() {
                return Ok(());
            }
            let before = applied.len() * PART;
            let (part, result) = match self.change(self.part(program, part)) {
                Ok(changed) => changed,
                Err(why) => return Err((before, self.undo(applied, why))),
            };
            let at = before + part.first().map_or(0, |changes| changes.applied);
            applied.push(part);
            if let Err(error) = result {
                let why = program.reason(write(at), &error);
                return Err((at, self.undo(applied, why)));
            }
        }
    }

    /// Reverses what was applied, the last part first. Returns the reason why it is reversed, and says so if
    /// that fails.
    fn undo(&self, mut applied: Vec<Part>, why: String) -> String {
        while let Some(part) = applied.pop() {
            let undone = self.change(part.into_iter().map(Changes::reverse).collect());
            let failed = undone.and_then(|(_, result)| result.map_err(|e| e.to_string())).err();
            if let Some(failed) = failed {
                return format!("{why}; and what came before it cannot be undone: {failed}");
            }
        }
        why
    }

    /// Returns the part of each thread that has a program of its own.
    fn part(&self, program: &Named, changes: Vec<Change>) -> Part {
        let further = if program.is_own { self.threads.count() - 1 } else { 0 };
        let of_further = changes.iter().filter_map(Change::for_further_thread).collect();
        let mut part = vec![Changes::new(of_further); further];
        part.insert(0, Changes::new(changes));
        part
    }

    /// Has each thread apply its changes, until one fails. If a thread does not answer, nothing has changed.
    fn change(&self, part: Part) -> Result<(Part, Result<(), ChangeError>), String> {
        let (mut done, mut result) = (Part::new(), Ok(()));
        for (thread, changes) in part.into_iter().enumerate() {
            if result.is_err() {
                done.push(Changes::default());
                continue;
            }
            match self.change_on(thread, changes) {
                Ok((changes, applied)) => {
                    done.push(changes);
                    result = applied;
                }
                Err(why) => return Err(self.take_back(done, why)),
            }
        }
        Ok((done, result))
    }

    fn change_on(
        &self,
        thread: usize,
        changes: Changes,
    ) -> Result<(Changes, Result<(), ChangeError>), String> {
        let Done { work, result } = self.threads.execute_on(thread, Work::Change(changes))?;
        let Work::Change(changes) = work else { return Err("no changes".to_owned()) };
        Ok((changes, result))
    }

    /// Reverses what the first threads have applied, since a later one does not answer.
    fn take_back(&self, done: Part, why: String) -> String {
        for (thread, changes) in done.into_iter().enumerate() {
            if let Err(failed) = self.change_on(thread, changes.reverse()) {
                return format!("{why}; and what thread {} has changed stays: {failed}", thread + 1);
            }
        }
        why
    }
}

impl Named {
    pub(crate) fn control(&self) -> Result<&Control, String> {
        self.control.as_ref().map_err(ToString::to_string)
    }

    /// Returns why a write failed, and what to do.
    fn reason(&self, write: &Write, error: &ChangeError) -> String {
        let name = match write {
            Write::Add(Entry { table, .. }) | Write::Set(Entry { table, .. }) => table,
            Write::Delete { table, .. } | Write::Default { table, .. } => table,
            Write::SetMembers { table, .. } if matches!(error, ChangeError::Map(MapError::Full)) => {
                return format!("{table} has no room for so many members: enlarge its action_selector");
            }
            Write::AddValue { set, .. } if matches!(error, ChangeError::Map(MapError::Full)) => {
                return format!("{set} is full: delete a member, or enlarge the value_set in the program");
            }
            Write::DeleteValue { set, .. } if matches!(error, ChangeError::Map(MapError::NotFound)) => {
                return format!("{set} has no such member");
            }
            Write::EntryCounter { .. } | Write::EntryMeter { .. } => match self.cells_table(write) {
                Ok(table) => table,
                Err(why) => return why,
            },
            _ => return error.to_string(),
        };
        let Ok(t) = self.control().and_then(|c| c.table(name).map_err(|e| e.to_string())) else {
            return error.to_string();
        };
        match error {
            ChangeError::Map(MapError::Full) => format!(
                "{} is full: it has room for {} entries; delete some, or enlarge `size` in the program",
                t.name, t.size
            ),
            ChangeError::Map(MapError::Exists) => {
                format!(
                    "{} has an entry that matches the same; `set`, or `load --replace`, replaces it",
                    t.name
                )
            }
            ChangeError::Map(MapError::NotFound) => {
                format!("{} has no such entry; `p4shield switch table list` shows those it has", t.name)
            }
            error => format!("{}: {error}", t.name),
        }
    }
}

fn put(t: &TableFacts, entry: &Entry, flag: UpdateFlag) -> Result<Change, EntryTextError> {
    let map = t.entry_map()?.to_owned();
    let (key, value) = (t.key_of(&entry.matches)?, t.value_of(&entry.action, false)?);
    Ok(Change::Put { map, key, value, flag })
}

pub(crate) fn text(error: impl std::error::Error) -> String {
    error.to_string()
}
