//! The commands of test scripts.
//!
//! Both dialects of the Simple Test Framework have one grammar. Names and numbers are resolved when a
//! command is executed on a program (see [`p4shield_tables::names`]).

use num_bigint::BigUint;

use crate::pattern::Pattern;

/// Maximum size of a script in bytes.
pub const MAX_SCRIPT_BYTES: usize = 16 << 20;
/// Maximum size of a packet in bytes.
pub const MAX_PACKET_BYTES: usize = 65_535;
/// Maximum width of a number in bits.
pub const MAX_NUMBER_BITS: usize = 2048;

/// A number of a script, in which some digits may be open (`*`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Number {
    /// Value, with zeros for open digits.
    pub value: BigUint,
    /// Ones for given digits, zeros for open ones; `None` if no digit is open.
    pub mask: Option<BigUint>,
}

/// A match of one table key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyMatch {
    /// The key's name.
    pub key: String,
    /// Value that the key has to match.
    pub matched: MatchValue,
}

/// A value, a value with open digits, a prefix, or a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchValue {
    /// The value.
    pub value: Number,
    /// Prefix length, after a slash.
    pub prefix: Option<u32>,
    /// End of a range, after `..` or `->`.
    pub to: Option<BigUint>,
}

/// An action with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionCall {
    /// The action's name.
    pub name: String,
    /// Names and values of its parameters.
    pub args: Vec<(String, BigUint)>,
}

/// A comparison operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// `==`
    Eq,
    /// `!=`
    Ne,
    /// `<=`
    Le,
    /// `<`
    Lt,
    /// `>=`
    Ge,
    /// `>`
    Gt,
}

impl std::fmt::Display for Compare {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Eq => "==",
            Self::Ne => "!=",
            Self::Le => "<=",
            Self::Lt => "<",
            Self::Ge => ">=",
            Self::Gt => ">",
        })
    }
}

impl Compare {
    /// Returns whether the comparison of `a` with `b` holds.
    #[must_use]
    pub const fn holds(self, a: u64, b: u64) -> bool {
        match self {
            Self::Eq => a == b,
            Self::Ne => a != b,
            Self::Le => a <= b,
            Self::Lt => a < b,
            Self::Ge => a >= b,
            Self::Gt => a > b,
        }
    }
}

/// The unit of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Packets.
    Packets,
    /// Bytes.
    Bytes,
}

/// A multicast or mirroring command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replication {
    /// Name of the command.
    pub command: String,
    /// Arguments.
    pub numbers: Vec<u64>,
}

/// A command.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Adds an entry to a table.
    Add {
        /// The table.
        table: String,
        /// Priority; the highest one wins.
        priority: Option<u32>,
        /// Matches of its keys; keys without a match accept everything.
        matches: Vec<KeyMatch>,
        /// The action.
        action: ActionCall,
        /// Name for removing the entry.
        id: Option<String>,
    },
    /// Sets the members of a group of a table's action selector. An extension of ours: `group TABLE NUMBER
    /// ACTION(...) ACTION(...)`. An entry refers to the group by the action `$group(id: NUMBER)`.
    Group {
        /// The table.
        table: String,
        /// Number of the group.
        number: u32,
        /// Actions of the members.
        members: Vec<ActionCall>,
    },
    /// Adds a member to a parser value set: `pvs_add SET VALUE...`, as in the reference switch's command
    /// line. If the set does not match exactly, values are written like table keys.
    AddValue {
        /// The set.
        set: String,
        /// Values of the parts of the member.
        values: Vec<MatchValue>,
    },
    /// Removes all members of a parser value set.
    ClearValues(String),
    /// Sets a table's default action.
    SetDefault {
        /// The table.
        table: String,
        /// The action.
        action: ActionCall,
    },
    /// Removes one entry by its name, or all entries (`None`).
    Remove(Option<String>),
    /// Sends a packet to the device.
    Packet {
        /// Input port.
        port: u32,
        /// The packet.
        bytes: Vec<u8>,
    },
    /// Expects a packet from the device.
    Expect {
        /// Output port.
        port: u32,
        /// Pattern of the packet; `None` for any packet.
        pattern: Option<Pattern>,
    },
    /// Checks that no unexpected packet has left so far.
    NoPacket,
    /// Waits for packets in transit; this device has none.
    Wait,
    /// Checks a counter.
    CheckCounter {
        /// The counter, or the table that has it.
        name: String,
        /// Its index, or the name of an entry.
        index: CounterIndex,
        /// Condition; without it the counter only has to exist.
        test: Option<(Unit, Compare, u64)>,
    },
    /// Shows an element of a register.
    RegisterRead {
        /// The register.
        name: String,
        /// The element.
        index: u32,
    },
    /// Sets an element of a register.
    RegisterWrite {
        /// The register.
        name: String,
        /// The element.
        index: u32,
        /// Its new value.
        value: BigUint,
    },
    /// Sets all elements of a register to zero.
    RegisterReset(String),
    /// Shows a counter.
    CounterRead {
        /// The counter.
        name: String,
        /// Its index.
        index: u32,
    },
    /// Sets a counter.
    CounterWrite {
        /// The counter.
        name: String,
        /// Its index.
        index: u32,
        /// Packets, then bytes.
        values: [u64; 2],
    },
    /// Sets the rates per microsecond and the bursts of a meter: of one cell, of the entry that contains it,
    /// or of all cells (`None`).
    MeterRates {
        /// The meter.
        name: String,
        /// The cell.
        index: Option<CounterIndex>,
        /// Rates and bursts, the lower rate first.
        rates: Vec<(f64, u64)>,
    },
    /// A multicast or mirroring command.
    Replication(Replication),
}

/// Selects an element of a counter or meter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CounterIndex {
    /// By number.
    Number(u32),
    /// The element of the entry with this name.
    Entry(String),
}

/// A command with its line.
#[derive(Clone, Debug, PartialEq)]
pub struct Statement {
    /// The line, from 1.
    pub line: usize,
    /// The command.
    pub command: Command,
}

/// A syntax error in a script.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct ScriptError {
    /// The line, from 1.
    pub line: usize,
    /// The error and the expected syntax.
    pub message: String,
}
