//! Why a command of a script fails.

use num_bigint::BigUint;
use p4shield_bpf::maps::MapError;
use p4shield_tables::model::EntryError;

use p4shield_tables::names::NameError;

/// Reason why a command failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// A name cannot be resolved.
    #[error(transparent)]
    Name(#[from] NameError),
    /// An entry does not fit its table.
    #[error(transparent)]
    Entry(#[from] EntryError),
    /// The map refuses the operation.
    #[error("{what}: {source}")]
    Map {
        /// Object that the command changes.
        what: String,
        /// The cause.
        source: MapError,
    },
    /// The entries of the table have no such counter or meter.
    #[error("the entry has no {what} {name}")]
    NoDirect {
        /// Name in the script.
        name: String,
        /// Counter or meter.
        what: &'static str,
    },
    /// The table does not support groups.
    #[error("table {0} has no groups: it has no action selector or no selector keys")]
    NoGroups(String),
    /// The entries of the table, or its default action, are constant.
    #[error("{0} is constant in the program")]
    Constant(String),
    /// A key has two matches.
    #[error("key {0} occurs twice")]
    TwiceKey(String),
    /// A counter differs from the expected value.
    #[error("{name}: expected {unit} {wanted}, got {got}")]
    Counter {
        /// The counter.
        name: String,
        /// Packets or bytes.
        unit: &'static str,
        /// Actual value.
        got: u64,
        /// Expected value with the operator.
        wanted: String,
    },
    /// The array has no element with this index.
    #[error("{name} has no element {index}")]
    Index {
        /// The array.
        name: String,
        /// Index of the element.
        index: u32,
    },
    /// The value does not fit the element.
    #[error("{value} does not fit the {width} bits of {name}")]
    Value {
        /// The array.
        name: String,
        /// The value.
        value: BigUint,
        /// Width of an element in bits.
        width: u32,
    },
}
