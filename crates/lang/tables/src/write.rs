//! Writes: what people, scripts and files change of a running program.

use crate::element::Rate;
use crate::entry::{ActionText, MatchText, Named};
use serde::{Deserialize, Serialize};

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "write", rename_all = "snake_case", deny_unknown_fields)]
pub enum Write {
    /// Adds an entry to a table; refused if the table has one that matches the same.
    Add(Entry),
    /// Adds an entry to a table, or replaces the one that matches the same.
    Set(Entry),
    /// Deletes an entry.
    Delete {
        /// The table.
        table: String,
        /// The packets that the entry matches.
        matches: MatchText,
    },
    /// Sets the default action of a table.
    Default {
        /// The table.
        table: String,
        /// The action.
        action: ActionText,
    },
    /// Sets the members of a group of a table's action selector. Without members, the group has no effect.
    SetMembers {
        /// The table.
        table: String,
        /// The group's number, to which entries refer by the action `$group`.
        group: u32,
        /// The actions of its members.
        members: Vec<ActionText>,
    },
    /// Adds a member to a parser value set.
    AddValue {
        /// The set's name, in full or its last parts.
        set: String,
        /// The member, a value for each key.
        values: Vec<Named>,
    },
    /// Removes a member from a parser value set.
    DeleteValue {
        /// The set's name.
        set: String,
        /// The member.
        values: Vec<Named>,
    },
    /// Creates or replaces a multicast group.
    SetGroup(Group),
    /// Deletes a multicast group.
    DeleteGroup {
        /// Its number.
        group: u16,
    },
    /// Creates or replaces a clone session.
    SetSession(CloneSession),
    /// Deletes a clone session.
    DeleteSession {
        /// Its number.
        session: u16,
    },
    /// Sets the queue of a port. What is left out stays as it is.
    SetQueue {
        /// The port; every port if left out.
        #[serde(default)]
        port: Option<u16>,
        /// Packets a second.
        #[serde(default)]
        packets: Option<u64>,
        /// Bits a second.
        #[serde(default)]
        bits: Option<u64>,
        /// Most packets that wait.
        #[serde(default)]
        depth: Option<u32>,
    },
    /// Removes the queue of a port, which then has no rate.
    DeleteQueue {
        /// The port.
        port: u16,
    },
    /// Sets elements of a register.
    Register {
        /// The register's name, in full or its last parts.
        register: String,
        /// The element; all if left out.
        #[serde(default)]
        index: Option<u32>,
        /// The value.
        value: String,
    },
    /// Sets elements of a counter, or the counters in all entries of a table.
    Counter {
        /// The counter's name, in full or its last parts.
        counter: String,
        /// The element; all if left out.
        #[serde(default)]
        index: Option<u32>,
        /// Packets, or the added amounts.
        packets: u64,
        /// Bytes, if the counter has them.
        bytes: u64,
    },
    /// Sets the rates of elements of a meter, or of the meters in all entries of a table.
    Meter {
        /// The meter's name, in full or its last parts.
        meter: String,
        /// The element; all if left out.
        #[serde(default)]
        index: Option<u32>,
        /// The committed rate, then the peak rate; none make every packet green.
        rates: Vec<Rate>,
    },
    /// Sets the counter in an entry of a table.
    EntryCounter {
        /// The counter's name, in full or its last parts.
        counter: String,
        /// The packets that the entry matches.
        matches: MatchText,
        /// Packets.
        packets: u64,
        /// Bytes, if the counter has them.
        bytes: u64,
    },
    /// Sets the rates of the meter in an entry of a table.
    EntryMeter {
        /// The meter's name, in full or its last parts.
        meter: String,
        /// The packets that the entry matches.
        matches: MatchText,
        /// The committed rate, then the peak rate; none make every packet green.
        rates: Vec<Rate>,
    },
}

/// An entry of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The table's name, in full or its last parts.
    pub table: String,
    /// The packets that it matches.
    pub matches: MatchText,
    /// Its action.
    pub action: ActionText,
}

/// A multicast group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Its number, 1 to 65535.
    pub group: u16,
    /// The copies that the switch makes of a packet.
    pub copies: Vec<GroupCopy>,
}

/// A copy of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupCopy {
    /// The port by which it leaves.
    pub port: u16,
    /// Its number (`egress_rid` of v1model).
    #[serde(default)]
    pub replica: u16,
}

/// A clone session: where the clones go that a program makes for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CloneSession {
    /// Its number, 0 to 32767.
    pub session: u16,
    /// The port of one clone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// A multicast group, with one clone for each copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<u16>,
}
