//! `p4shield switch counter`, `register` and `meter`.

use clap::Subcommand;
use p4shield_console::Exit;
use p4shield_tables::element::Rate;
use p4shield_tables::view::{ObjectKind, What};
use p4shield_tables::write::Write;

use super::table::{Keys, Listing};
use super::{Socket, completion, write};

/// Show and set the counters of the program, also those in the entries of tables
///
/// Examples:
///
///   p4shield switch counter list
///   p4shield switch counter list flows --watch 0.5
///   p4shield switch counter set flows 3 --packets 0 --bytes 0
///   p4shield switch counter reset flows
///   p4shield switch counter entry hits 10.0.1.0/24           a counter of a table, to zero
///
/// A counter in the entries of a table starts anew with its entry.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Counter {
    #[command(subcommand)]
    command: CounterCommand,
}

#[derive(Debug, Subcommand)]
enum CounterCommand {
    /// Show counters
    List(List),
    /// Set an element, or all
    Set {
        /// The counter
        #[arg(add = completion::object())]
        name: String,
        /// The element, or `all`
        #[arg(value_parser = index)]
        index: Index,
        /// Packets, or what the program added
        #[arg(long, default_value_t = 0)]
        packets: u64,
        /// Bytes, if it counts them
        #[arg(long, default_value_t = 0)]
        bytes: u64,
        #[command(flatten)]
        socket: Socket,
    },
    /// Set the counter in an entry of a table
    Entry {
        /// The counter
        #[arg(add = completion::object())]
        name: String,
        #[command(flatten)]
        keys: Keys,
        /// Packets
        #[arg(long, default_value_t = 0)]
        packets: u64,
        /// Bytes, if it counts them
        #[arg(long, default_value_t = 0)]
        bytes: u64,
        #[command(flatten)]
        socket: Socket,
    },
    /// Set an element, or all, to zero
    Reset(Reset),
}

/// Show and set the registers of the program
///
/// Examples:
///
///   p4shield switch register list
///   p4shield switch register set threshold 0 1000
///   p4shield switch register set seen all 1
///   p4shield switch register reset seen
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Register {
    #[command(subcommand)]
    command: RegisterCommand,
}

#[derive(Debug, Subcommand)]
enum RegisterCommand {
    /// Show registers
    List(List),
    /// Set an element, or all
    Set {
        /// The register
        #[arg(add = completion::object())]
        name: String,
        /// The element, or `all`
        #[arg(value_parser = index)]
        index: Index,
        /// The value: a number or an address
        #[arg(allow_hyphen_values = true)]
        value: String,
        #[command(flatten)]
        socket: Socket,
    },
    /// Set an element, or all, to zero
    Reset(Reset),
}

/// Show and set the meters of the program, also those in the entries of tables
///
/// A meter has a committed and a peak rate (RFC 2698): packets above the first are yellow, those above the
/// second red. A rate is RATE:BURST: packets or bytes in a second, and at once.
///
/// Examples:
///
///   p4shield switch meter list
///   p4shield switch meter set police 0 1000:100           red above 1000 a second
///   p4shield switch meter set police all 1000:100 2e3:200
///   p4shield switch meter reset police                    every packet is green
///   p4shield switch meter entry limit 10.0.1.0/24 --rates 1000:100   a meter of a table
///
/// A meter in the entries of a table has no rates until they are set: an entry that comes later is green.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Meter {
    #[command(subcommand)]
    command: MeterCommand,
}

#[derive(Debug, Subcommand)]
enum MeterCommand {
    /// Show meters; their rates are in 1000 seconds
    List(List),
    /// Set the rates of an element, or of all
    Set {
        /// The meter
        #[arg(add = completion::object())]
        name: String,
        /// The element, or `all`
        #[arg(value_parser = index)]
        index: Index,
        /// The committed rate, then the peak rate (the same if left out)
        #[arg(value_name = "RATE:BURST", required = true, num_args = 1..=2, value_parser = rate)]
        rates: Vec<Rate>,
        #[command(flatten)]
        socket: Socket,
    },
    /// Set the rates of the meter in an entry of a table, or remove them
    Entry {
        /// The meter
        #[arg(add = completion::object())]
        name: String,
        #[command(flatten)]
        keys: Keys,
        /// The committed rate, then the peak rate (the same if left out); none without this option
        #[arg(long, value_name = "RATE:BURST", num_args = 1..=2, value_parser = rate)]
        rates: Vec<Rate>,
        #[command(flatten)]
        socket: Socket,
    },
    /// Remove the rates of an element, or of all
    Reset(Reset),
}

#[derive(Debug, clap::Args)]
struct List {
    #[command(flatten)]
    list: Listing,
    #[command(flatten)]
    socket: Socket,
}

#[derive(Debug, clap::Args)]
struct Reset {
    /// The counter, register or meter
    #[arg(add = completion::object())]
    name: String,
    /// The element; all if left out
    #[arg(value_parser = index)]
    index: Option<Index>,
    #[command(flatten)]
    socket: Socket,
}

/// An element, or all.
#[derive(Clone, Copy, Debug)]
struct Index(Option<u32>);

fn index(text: &str) -> Result<Index, String> {
    if text == "all" {
        return Ok(Index(None));
    }
    text.parse().map(|n| Index(Some(n))).map_err(|_| "write the number of an element, or `all`".to_owned())
}

fn rate(text: &str) -> Result<Rate, String> {
    let form = || "write RATE:BURST, such as 1000:100 or 0.5:1".to_owned();
    let (rate, burst) = text.split_once(':').ok_or_else(form)?;
    let (rate, burst) = (rate.parse().map_err(|_| form())?, burst.parse().map_err(|_| form())?);
    Rate::of(rate, 1, burst).ok_or_else(form)
}

impl List {
    fn run(self, what: What, kinds: &[ObjectKind]) -> anyhow::Result<Exit> {
        self.list.run(what, kinds, &self.socket.socket)
    }
}

impl Reset {
    /// Returns name, element and socket.
    fn parts(self) -> (String, Option<u32>, Socket) {
        (self.name, self.index.and_then(|index| index.0), self.socket)
    }
}

impl Counter {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let (counter, index, packets, bytes, socket) = match self.command {
            CounterCommand::List(list) => return list.run(What::Counters, &[]),
            CounterCommand::Set { name, index, packets, bytes, socket } => {
                (name, index.0, packets, bytes, socket)
            }
            CounterCommand::Entry { name, keys, packets, bytes, socket } => {
                let matches = keys.text();
                return write(&socket, Write::EntryCounter { counter: name, matches, packets, bytes });
            }
            CounterCommand::Reset(reset) => {
                let (name, index, socket) = reset.parts();
                (name, index, 0, 0, socket)
            }
        };
        write(&socket, Write::Counter { counter, index, packets, bytes })
    }
}

impl Register {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let (register, index, value, socket) = match self.command {
            RegisterCommand::List(list) => return list.run(What::Registers, &[ObjectKind::Register]),
            RegisterCommand::Set { name, index, value, socket } => (name, index.0, value, socket),
            RegisterCommand::Reset(reset) => {
                let (name, index, socket) = reset.parts();
                (name, index, "0".to_owned(), socket)
            }
        };
        write(&socket, Write::Register { register, index, value })
    }
}

impl Meter {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let (meter, index, rates, socket) = match self.command {
            MeterCommand::List(list) => {
                return list.run(What::Registers, &[ObjectKind::Meter, ObjectKind::DirectMeter]);
            }
            MeterCommand::Set { name, index, rates, socket } => (name, index.0, rates, socket),
            MeterCommand::Entry { name, keys, rates, socket } => {
                let matches = keys.text();
                return write(&socket, Write::EntryMeter { meter: name, matches, rates });
            }
            MeterCommand::Reset(reset) => {
                let (name, index, socket) = reset.parts();
                (name, index, Vec::new(), socket)
            }
        };
        write(&socket, Write::Meter { meter, index, rates })
    }
}
