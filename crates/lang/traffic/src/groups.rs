//! Multicast groups: the copies that a switch makes of a packet.

use std::collections::BTreeMap;

/// Most copies of one packet.
pub const MAX_COPIES: usize = 4096;

/// A copy of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// The port by which it leaves.
    pub port: u16,
    /// Its replication id (`egress_rid` of v1model).
    pub replica: u16,
}

/// The reason why a group is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// Group 0 means "no group" to a program.
    #[error("a multicast group's number is 1 to 65535: 0 means that a packet goes to no group")]
    Zero,
    /// The group has too many copies.
    #[error("the group has {0} copies, and {MAX_COPIES} are the most; divide it")]
    TooMany(usize),
}

/// The multicast groups of a switch, by number.
#[derive(Clone, Debug, Default)]
pub struct Groups(BTreeMap<u16, Box<[Copy]>>);

impl Groups {
    /// Creates or replaces a group.
    ///
    /// # Errors
    /// [`GroupError`]; the group stays as it was.
    pub fn set(&mut self, group: u16, copies: Vec<Copy>) -> Result<(), GroupError> {
        if group == 0 {
            return Err(GroupError::Zero);
        }
        if copies.len() > MAX_COPIES {
            return Err(GroupError::TooMany(copies.len()));
        }
        self.0.insert(group, copies.into());
        Ok(())
    }

    /// Deletes a group. Returns false if there was none.
    pub fn delete(&mut self, group: u16) -> bool {
        self.0.remove(&group).is_some()
    }

    /// Returns the copies of a group, if it exists.
    #[must_use]
    pub fn get(&self, group: u16) -> Option<&[Copy]> {
        self.0.get(&group).map(|copies| &**copies)
    }

    /// Returns the groups with their copies.
    pub fn iter(&self) -> impl Iterator<Item = (u16, &[Copy])> {
        self.0.iter().map(|(number, copies)| (*number, &**copies))
    }

    /// Returns the copies of a group; none if it does not exist.
    #[must_use]
    pub fn copies(&self, group: u32) -> &[Copy] {
        u16::try_from(group).ok().and_then(|g| self.get(g)).unwrap_or(&[])
    }
}
