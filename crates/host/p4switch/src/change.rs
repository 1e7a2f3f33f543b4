//! Changes of maps, groups and clone sessions, which can be undone.

use p4shield_bpf::maps::{Map, MapError, UpdateFlag};
use p4shield_switch::{PacketIo, Pipeline, PortError, QueueError, QueueLimits, Switch};
use p4shield_tables::model::GroupFacts;
use p4shield_traffic::{Copy, GroupError, Session, SessionError};

/// The reason why a change is not applied.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChangeError {
    #[error(transparent)]
    Map(#[from] MapError),
    #[error(transparent)]
    Group(#[from] GroupError),
    #[error("there is no such group; `p4shield switch group list` shows those that exist")]
    NoGroup,
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error("there is no such clone session; `p4shield switch mirror list` shows those that exist")]
    NoSession,
    #[error(transparent)]
    Queue(#[from] QueueError),
    #[error(transparent)]
    Port(#[from] PortError),
    #[error("the port has no queue; `p4shield switch queue list` shows those that exist")]
    NoQueue,
}

/// A change. Once it is applied, it is its own reverse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Writes an entry of a map.
    Put { map: String, key: Vec<u8>, value: Vec<u8>, flag: UpdateFlag },
    /// Deletes an entry of a map.
    Remove { map: String, key: Vec<u8> },
    /// Writes elements of an array, from the first one on; their values are one behind the other.
    Fill { map: String, first: u32, values: Vec<u8>, counts: bool },
    /// Writes bytes of an entry's value, from this offset on.
    Patch { map: String, key: Vec<u8>, at: usize, bytes: Vec<u8>, counts: bool },
    /// Adds to counters in an entry's value, from this offset on.
    Count { map: String, key: Vec<u8>, at: usize, counts: Vec<u64> },
    /// Sets the members of a group of an action selector, by its number in two maps.
    Members { maps: GroupFacts, group: u32, values: Vec<Vec<u8>> },
    /// Creates or replaces a multicast group; without copies, deletes it.
    Group { group: u16, copies: Option<Vec<Copy>> },
    /// Creates or replaces a clone session; without targets, deletes it.
    Session { number: u16, session: Option<Session> },
    /// Sets limits of a port's queue, and leaves the others as they are.
    LimitQueue { port: u16, limits: QueueLimits },
    /// Sets the queue of a port exactly so, or removes it.
    Queue { port: u16, limits: Option<QueueLimits> },
}

impl Change {
    /// Applies the change and replaces it by its reverse. Packets of all threads see it at once.
    ///
    /// # Errors
    /// [`ChangeError`]; nothing has changed.
    fn apply<I: PacketIo>(&mut self, switch: &mut Switch<I>) -> Result<(), ChangeError> {
        let reverse = match self {
            Self::LimitQueue { port, limits } => {
                let before = switch.queue_limits(*port)?;
                switch.set_queue(*port, Some(limits.or(before.unwrap_or_default())))?;
                Self::Queue { port: *port, limits: before }
            }
            Self::Queue { port, limits } => {
                let before = switch.queue_limits(*port)?;
                if before.is_none() && limits.is_none() {
                    return Err(ChangeError::NoQueue);
                }
                switch.set_queue(*port, *limits)?;
                Self::Queue { port: *port, limits: before }
            }
            _ => return self.apply_to(&mut switch.pipeline()),
        };
        *self = reverse;
        Ok(())
    }

    /// Returns the change for a further thread that has the program for itself, if it is one for it. The sum
    /// of all threads' counters is to be the value: those of further threads start at zero.
    pub(crate) fn for_further_thread(&self) -> Option<Self> {
        let mut change = self.clone();
        match &mut change {
            Self::Fill { values, counts: true, .. } => values.fill(0),
            Self::Patch { bytes, counts: true, .. } => bytes.fill(0),
            Self::LimitQueue { .. } | Self::Queue { .. } | Self::Count { .. } => return None,
            _ => {}
        }
        Some(change)
    }

    fn apply_to(&mut self, pipeline: &mut Pipeline) -> Result<(), ChangeError> {
        let reverse = match self {
            Self::Put { map, key, value, flag } => {
                let before = before(pipeline, map, key)?;
                on(pipeline, map, |m| m.update(key, value, *flag))?;
                let (map, key) = (std::mem::take(map), std::mem::take(key));
                match before {
                    Some(value) => Self::Put { map, key, value, flag: UpdateFlag::Any },
                    None => Self::Remove { map, key },
                }
            }
            Self::Remove { map, key } => {
                let value = before(pipeline, map, key)?.ok_or(MapError::NotFound)?;
                on(pipeline, map, |m| m.delete(key))?;
                let (map, key) = (std::mem::take(map), std::mem::take(key));
                Self::Put { map, key, value, flag: UpdateFlag::Any }
            }
            Self::Fill { map, first, values, .. } => {
                return on(pipeline, map, |m| swap_elements(m, *first, values));
            }
            Self::Patch { map, key, at, bytes, .. } => {
                return on(pipeline, map, |m| swap_bytes(m, key, *at, bytes));
            }
            Self::Count { map, key, at, counts } => {
                return on(pipeline, map, |m| add_counts(m, key, *at, counts));
            }
            Self::Members { maps, group, values } => {
                let before = members(pipeline, maps, *group)?;
                if let Err(error) = set_members(pipeline, maps, *group, before.len(), values) {
                    set_members(pipeline, maps, *group, values.len(), &before)?;
                    return Err(error);
                }
                *values = before;
                return Ok(());
            }
            Self::Group { group, copies } => {
                let groups = &mut pipeline.traffic.groups;
                let before = groups.get(*group).map(<[Copy]>::to_vec);
                match copies.take() {
                    Some(copies) => groups.set(*group, copies)?,
                    None if groups.delete(*group) => {}
                    None => return Err(ChangeError::NoGroup),
                }
                Self::Group { group: *group, copies: before }
            }
            Self::Session { number, session } => {
                let sessions = &mut pipeline.traffic.sessions;
                let before = sessions.get((*number).into());
                match session {
                    Some(session) => sessions.set(*number, *session)?,
                    None if sessions.delete(*number) => {}
                    None => return Err(ChangeError::NoSession),
                }
                Self::Session { number: *number, session: before }
            }
            Self::LimitQueue { .. } | Self::Queue { .. } => return Ok(()),
        };
        *self = reverse;
        Ok(())
    }
}

/// Returns the members of a group of an action selector.
fn members(pipeline: &mut Pipeline, maps: &GroupFacts, group: u32) -> Result<Vec<Vec<u8>>, ChangeError> {
    let count = before(pipeline, &maps.groups, &group.to_le_bytes())?;
    let count = count.and_then(|n| n.try_into().ok()).map_or(0, u64::from_le_bytes);
    let all = (0..count).map(|at| before(pipeline, &maps.members, &member_key(group, at as u32)));
    all.filter_map(Result::transpose).collect()
}

/// Sets the members of a group that has had this many.
fn set_members(
    pipeline: &mut Pipeline,
    maps: &GroupFacts,
    group: u32,
    had: usize,
    values: &[Vec<u8>],
) -> Result<(), ChangeError> {
    for at in values.len()..had {
        match on(pipeline, &maps.members, |m| m.delete(&member_key(group, at as u32))) {
            // It was not there: an earlier attempt failed before it.
            Ok(()) | Err(ChangeError::Map(MapError::NotFound)) => {}
            Err(error) => return Err(error),
        }
    }
    for (at, value) in (0..).zip(values) {
        on(pipeline, &maps.members, |m| m.update(&member_key(group, at), value, UpdateFlag::Any))?;
    }
    let count = (values.len() as u64).to_le_bytes();
    on(pipeline, &maps.groups, |m| m.update(&group.to_le_bytes(), &count, UpdateFlag::Any))
}

fn member_key(group: u32, at: u32) -> Vec<u8> {
    [group.to_le_bytes(), at.to_le_bytes()].concat()
}

/// Exchanges elements of an array with the given values.
fn swap_elements(map: &mut Map, first: u32, values: &mut [u8]) -> Result<(), MapError> {
    let size = (map.definition().value_size as usize).max(1);
    for (index, value) in (first..).zip(values.chunks_exact_mut(size)) {
        let key = index.to_ne_bytes();
        let before = map.entry(&key)?;
        map.update(&key, value, UpdateFlag::Any)?;
        value.copy_from_slice(&before);
    }
    Ok(())
}

/// Exchanges bytes of an entry's value with the given ones.
fn swap_bytes(map: &mut Map, key: &[u8], at: usize, bytes: &mut [u8]) -> Result<(), MapError> {
    let mut value = map.entry(key)?;
    let end = at.saturating_add(bytes.len());
    value.get_mut(at..end).ok_or(MapError::Invalid)?.swap_with_slice(bytes);
    map.update(key, &value, UpdateFlag::Any)
}

/// Adds to counters in an entry's value, and replaces the amounts by what takes them back.
fn add_counts(map: &mut Map, key: &[u8], at: usize, counts: &mut [u64]) -> Result<(), MapError> {
    let mut value = map.entry(key)?;
    let cells = value.get_mut(at..).ok_or(MapError::Invalid)?.as_chunks_mut().0;
    for (cell, count) in cells.iter_mut().zip(counts) {
        *cell = u64::from_le_bytes(*cell).wrapping_add(*count).to_le_bytes();
        *count = count.wrapping_neg();
    }
    map.update(key, &value, UpdateFlag::Any)
}

/// Returns the value of an entry, if it exists.
fn before(pipeline: &mut Pipeline, map: &str, key: &[u8]) -> Result<Option<Vec<u8>>, ChangeError> {
    let mut value = None;
    on(pipeline, map, |m| match m.entry(key) {
        Ok(bytes) => {
            value = Some(bytes);
            Ok(())
        }
        Err(MapError::NotFound) => Ok(()),
        Err(error) => Err(error),
    })?;
    Ok(value)
}

/// Changes in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// The changes.
    pub(crate) all: Vec<Change>,
    /// How many have been applied, and are their own reverse now.
    pub(crate) applied: usize,
}

impl Changes {
    pub(crate) fn new(all: Vec<Change>) -> Self {
        Self { all, applied: 0 }
    }

    /// Returns what undoes the applied ones.
    pub(crate) fn reverse(mut self) -> Self {
        self.all.truncate(self.applied);
        self.all.reverse();
        Self::new(self.all)
    }

    /// Applies the changes until one fails.
    ///
    /// # Errors
    /// [`ChangeError`], of the change after the applied ones.
    pub(crate) fn apply<I: PacketIo>(&mut self, switch: &mut Switch<I>) -> Result<(), ChangeError> {
        for change in &mut self.all {
            change.apply(switch)?;
            self.applied += 1;
        }
        Ok(())
    }
}

/// Works on a map of the program.
pub(crate) fn on(
    pipeline: &mut Pipeline,
    name: &str,
    work: impl FnOnce(&mut Map) -> Result<(), MapError>,
) -> Result<(), ChangeError> {
    let map = pipeline.program().maps_mut().and_then(|maps| maps.get_mut(name));
    Ok(map.map_or(Err(MapError::NotFound), work)?)
}
