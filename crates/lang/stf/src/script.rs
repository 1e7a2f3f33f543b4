//! A test script: what it says, line by line.
//!
//! Both dialects of the Simple Test Framework have one grammar; how names and numbers are meant is decided when a
//! command meets the program (see [`crate::names`]).

use num_bigint::BigUint;

use crate::pattern::Pattern;

/// The longest script that is read, in bytes.
pub const MAX_SCRIPT_BYTES: usize = 16 << 20;
/// The longest packet, in bytes.
pub const MAX_PACKET_BYTES: usize = 65_535;
/// The widest number, in bits.
pub const MAX_NUMBER_BITS: usize = 2048;

/// A number as the script writes it, digits that are `*` left open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Number {
    /// Its value, open digits as zeros.
    pub value: BigUint,
    /// Ones where a digit is given, zeros where it is open; `None` if no digit is open.
    pub mask: Option<BigUint>,
}

/// What a key of a table is matched against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyMatch {
    /// The key's name.
    pub key: String,
    /// What it matches.
    pub matched: Matched,
}

/// A value, a value with open digits, a prefix, or a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matched {
    /// The value.
    pub value: Number,
    /// Behind a slash: bits of a prefix.
    pub prefix: Option<u32>,
    /// Behind `..` or `->`: the end of a range.
    pub to: Option<BigUint>,
}

/// An action with its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionCall {
    /// The action's name.
    pub name: String,
    /// Names and values of its parameters.
    pub args: Vec<(String, BigUint)>,
}

/// How a counter is compared.
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
    /// Whether `a` compares so with `b`.
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

/// What a counter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Packets.
    Packets,
    /// Bytes.
    Bytes,
}

/// A command about copies of packets: multicast groups, and mirroring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replication {
    /// The command's word.
    pub command: String,
    /// Its numbers.
    pub numbers: Vec<u64>,
}

/// One command.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Adds an entry to a table.
    Add {
        /// The table.
        table: String,
        /// The entry's priority, where a greater one wins.
        priority: Option<u32>,
        /// Its keys; those that are not named match everything.
        matches: Vec<KeyMatch>,
        /// What it does.
        action: ActionCall,
        /// A name to remove it by.
        id: Option<String>,
    },
    /// Gives a group of a table's action selector its members. (Ours: `group TABLE NUMBER ACTION(...) ACTION(...)`;
    /// an entry names it as the action `$group(id: NUMBER)`.)
    Group {
        /// The table.
        table: String,
        /// The group.
        number: u32,
        /// What each member does.
        members: Vec<ActionCall>,
    },
    /// Adds a member to a parser value set: `pvs_add SET VALUE...`, as the reference switch's command line has it; values
    /// are written as in keys of a table where the set matches otherwise than exactly.
    AddValue {
        /// The set.
        set: String,
        /// What each part of a member matches.
        values: Vec<Matched>,
    },
    /// Takes all members out of a parser value set.
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
    /// A packet arrives.
    Packet {
        /// Where.
        port: u32,
        /// The packet.
        bytes: Vec<u8>,
    },
    /// A packet has to leave.
    Expect {
        /// Where.
        port: u32,
        /// The packet; `None` for any.
        pattern: Option<Pattern>,
    },
    /// No packet that is not expected otherwise has left so far.
    NoPacket,
    /// Waits for packets that are under way; here nothing ever is.
    Wait,
    /// Compares a counter.
    CheckCounter {
        /// The counter, or the table that has it.
        name: String,
        /// Its index, or the name of an entry.
        index: CounterIndex,
        /// What has to hold; without it the counter has to exist.
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
    /// Sets the rates of a meter: of one cell, of the entry that has it, or of all cells (`None`). Rates per microsecond
    /// and bursts.
    MeterRates {
        /// The meter.
        name: String,
        /// The cell.
        index: Option<CounterIndex>,
        /// Rate and burst, lower one first.
        rates: Vec<(f64, u64)>,
    },
    /// Mirroring and multicast.
    Replication(Replication),
}

/// Which counter of several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CounterIndex {
    /// By number.
    Number(u32),
    /// That of the entry with this name.
    Entry(String),
}

/// A command and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Statement {
    /// The line, from 1.
    pub line: usize,
    /// What it says.
    pub command: Command,
}

/// What is wrong with a script.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct ScriptError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong, and what would be right.
    pub message: String,
}
