//! Answers the requests of the switch's socket.

use crate::api::{Answer, Dropped, Entry, Group, GroupCopy, MAX_LINE, PortStatus, Request, Status};
use crate::order::{OrderError, Orders, Work};
use p4shield_abi::map::TYPE_ARRAY;
use p4shield_bpf::maps::{MapCopy, MapError, UpdateFlag};
use p4shield_socket::Endpoint;
use p4shield_switch::{Copy, Counts, DropReason, Groups};
use p4shield_tables::entry::{ActionText, MatchText};
use p4shield_tables::model::TableFacts;
use p4shield_tables::{Control, Described, DescribedError, Extent, ReadMap, Rows, show};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Rows after which a page ends.
const PAGE_ROWS: usize = 4096;

/// The endpoint of the socket.
#[derive(Debug)]
pub(crate) struct Desk {
    /// The program's file.
    pub(crate) program: String,
    pub(crate) described: Described,
    pub(crate) control: Result<Control, DescribedError>,
    /// Numbers and interfaces of the ports.
    pub(crate) ports: Vec<(u16, String)>,
    pub(crate) orders: Orders,
    /// Written by the packet thread when a port fails, and never while packets flow.
    pub(crate) problems: Arc<Mutex<Vec<String>>>,
    pub(crate) start: Instant,
}

impl Endpoint for Desk {
    type Answer = Answer;
    const MAX_CLIENTS: usize = 16;
    const MAX_LINE: u64 = MAX_LINE;

    fn admits(&self, uid: u32, _gid: u32) -> bool {
        uid == 0 || uid == rustix::process::geteuid().as_raw()
    }

    fn answer(&self, line: &[u8], _uid: u32) -> Answer {
        let answer = match serde_json::from_slice(line) {
            Ok(Request::Status) => self.status().map(Answer::Status),
            Ok(Request::Show(inspection)) => {
                let mut reader = Reader(&self.orders);
                show(&mut reader, &self.described, &inspection).map(|view| Answer::Shown(Box::new(view)))
            }
            Ok(Request::Add(entry)) => self.write(&entry, UpdateFlag::NoExist).map(|()| Answer::Done),
            Ok(Request::Set(entry)) => self.write(&entry, UpdateFlag::Any).map(|()| Answer::Done),
            Ok(Request::Delete { table, matches }) => self.delete(&table, &matches).map(|()| Answer::Done),
            Ok(Request::Default { table, action }) => {
                self.set_default(&table, &action).map(|()| Answer::Done)
            }
            Ok(Request::Groups) => self.groups().map(Answer::Groups),
            Ok(Request::SetGroup(group)) => self.set_group(group).map(|()| Answer::Done),
            Ok(Request::DeleteGroup { group }) => {
                let done = self.orders.execute(Work::DeleteGroup { group });
                done.and_then(|done| done.result.map_err(|e| e.to_string())).map(|()| Answer::Done)
            }
            Err(error) => Err(format!("the request cannot be parsed: {error}")),
        };
        answer.unwrap_or_else(Answer::Failed)
    }
}

impl Desk {
    fn status(&self) -> Result<Status, String> {
        let done = self.orders.execute(Work::Count(Counts::default()))?;
        let Work::Count(counts) = done.work else { return Err("no counts".to_owned()) };
        let ports = self.ports.iter().zip(&counts.ports).map(|((number, interface), count)| PortStatus {
            number: *number,
            interface: interface.clone(),
            received: count.received,
            received_bytes: count.received_bytes,
            sent: count.sent,
            sent_bytes: count.sent_bytes,
        });
        let dropped = DropReason::ALL
            .iter()
            .map(|reason| Dropped { reason: reason.name().to_owned(), packets: counts.dropped(*reason) });
        Ok(Status {
            program: self.program.clone(),
            digest: hex::encode(self.described.program),
            seconds: self.start.elapsed().as_secs(),
            ports: ports.collect(),
            replicated: counts.replicated,
            copies: counts.copies,
            dropped: dropped.collect(),
            problems: self.problems.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        })
    }

    fn table(&self, name: &str) -> Result<&TableFacts, String> {
        let control = self.control.as_ref().map_err(ToString::to_string)?;
        control.table(name).map_err(|e| e.to_string())
    }

    fn write(&self, entry: &Entry, flag: UpdateFlag) -> Result<(), String> {
        let t = self.table(&entry.table)?;
        let encode = || Ok((t.entry_map()?, t.key_of(&entry.matches)?, t.value_of(&entry.action, false)?));
        let (map, key, value) = encode().map_err(text)?;
        self.change(t, Work::Update { map: map.to_owned(), key, value, flag })
    }

    fn delete(&self, table: &str, matches: &MatchText) -> Result<(), String> {
        let t = self.table(table)?;
        let encode = || Ok((t.entry_map()?, t.key_of(matches)?));
        let (map, key) = encode().map_err(text)?;
        self.change(t, Work::Delete { map: map.to_owned(), key })
    }

    fn set_default(&self, table: &str, action: &ActionText) -> Result<(), String> {
        let t = self.table(table)?;
        let encode = || Ok((t.default_action_map()?, t.value_of(action, true)?));
        let (map, value) = encode().map_err(text)?;
        self.change(t, Work::Update { map: map.to_owned(), key: vec![0; 4], value, flag: UpdateFlag::Any })
    }

    fn groups(&self) -> Result<Vec<Group>, String> {
        let done = self.orders.execute(Work::Groups(Groups::default()))?;
        let Work::Groups(groups) = done.work else { return Err("no groups".to_owned()) };
        let copy = |c: &Copy| GroupCopy { port: c.port, replica: c.replica };
        let group =
            |(group, copies): (u16, &[Copy])| Group { group, copies: copies.iter().map(copy).collect() };
        Ok(groups.iter().map(group).collect())
    }

    fn set_group(&self, Group { group, copies }: Group) -> Result<(), String> {
        let known = |port: u16| self.ports.iter().any(|(number, _)| *number == port);
        if let Some(copy) = copies.iter().find(|c| !known(c.port)) {
            let ports: Vec<_> = self.ports.iter().map(|(number, _)| number.to_string()).collect();
            return Err(format!("the switch has no port {}; it has {}", copy.port, ports.join(", ")));
        }
        let copies = copies.iter().map(|c| Copy { port: c.port, replica: c.replica }).collect();
        self.orders.execute(Work::SetGroup { group, copies })?.result.map_err(|e| e.to_string())
    }

    /// Has the packet thread change a map of a table.
    fn change(&self, t: &TableFacts, work: Work) -> Result<(), String> {
        self.orders.execute(work)?.result.map_err(|error| match error {
            OrderError::Map(MapError::Full) => format!(
                "{} is full: it has room for {} entries; delete some, or enlarge `size` in the program",
                t.name, t.size
            ),
            OrderError::Map(MapError::Exists) => format!(
                "{} has an entry that matches the same; `p4shield switch table set` replaces it",
                t.name
            ),
            OrderError::Map(MapError::NotFound) => {
                format!("{} has no such entry; `p4shield switch table list` shows those it has", t.name)
            }
            error => format!("{}: {error}", t.name),
        })
    }
}

fn text(error: p4shield_tables::entry::EntryTextError) -> String {
    error.to_string()
}

/// Reads maps part by part, each between two rounds of the packet thread.
struct Reader<'a>(&'a Orders);

impl ReadMap for Reader<'_> {
    fn read(&mut self, described: &Described, map: usize, extent: Extent) -> Result<Rows, String> {
        let (symbol, definition) = described.maps.get(map).ok_or("the program has no such map")?;
        let skips_zeros = definition.map_type == TYPE_ARRAY && !extent.zeros;
        let limit = extent.limit.unwrap_or(usize::MAX);
        let mut copy = MapCopy::new(definition, extent.from);
        let (mut rows, mut room) = (Rows::default(), extent.bytes);
        while copy.next().is_some() {
            if extent.limit.is_none() && (rows.entries.len() >= PAGE_ROWS || room == 0) {
                rows.next = copy.next();
                break;
            }
            let done = self.0.execute(Work::Copy { map: symbol.clone(), copy })?;
            let Work::Copy { copy: part, .. } = done.work else { return Err("no part of a map".to_owned()) };
            done.result.map_err(|_| "the program was replaced while it was read; read it again")?;
            for (key, value) in part.entries() {
                if skips_zeros && value.iter().all(|b| *b == 0) {
                    continue;
                }
                if rows.entries.len() < limit {
                    room = room.saturating_sub(key.len() + value.len());
                    rows.entries.push((key.to_vec(), value.to_vec()));
                } else {
                    rows.more += 1;
                }
            }
            copy = part;
        }
        Ok(rows)
    }
}
