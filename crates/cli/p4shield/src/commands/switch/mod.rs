//! `p4shield switch`.

mod array;
mod batches;
mod capture;
mod completion;
mod digest;
mod follow;
mod group;
mod load;
mod machine;
mod mirror;
mod packet;
mod port;
mod program;
mod queue;
mod recorded;
mod replace;
mod run;
mod selector;
mod status;
mod table;
mod trace;
mod value;

use std::path::PathBuf;

use clap::Subcommand;
use p4shield_console::{Exit, Refused, output};
use p4shield_p4switch::api::{self, ApiError};
use p4shield_tables::write::Write;

use super::watch::Watch;

/// Run a P4 switch: the program is the data plane
///
/// The switch forwards packets between network interfaces through AF_XDP, as a program for v1model
/// decides. A program for ebpf_model or ubpf_model filters what passes between two ports; the latter may
/// redirect a packet to a port. Entries of tables are written while packets flow.
///
/// Examples:
///
///   p4shield switch run router.p4 --port 1=veth1 --port 2=veth2
///   p4shield switch table add routes 10.0.1.0/24 --action forward next_hop=02:00:00:00:00:01 port=1
///   p4shield switch table list routes
///   p4shield switch status
///   p4shield switch trace --port 1
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

// No comments on the variants whose arguments have help of their own.
#[derive(Debug, Subcommand)]
enum Command {
    Run(Box<run::Run>),
    Load(replace::Replace),
    Status(status::Status),
    Trace(trace::Trace),
    Capture(capture::Capture),
    Batches(batches::Batches),
    Port(port::Ports),
    Table(table::Table),
    Group(group::Groups),
    Mirror(mirror::Mirrors),
    Queue(queue::Queues),
    Selector(selector::Selectors),
    Value(value::Values),
    Counter(array::Counter),
    Register(array::Register),
    Meter(array::Meter),
    Digest(digest::Digests),
    Packet(packet::Packets),
}

/// The socket of a switch, unless another one is named.
const SOCKET: &str = "/run/p4shield/switch.sock";

/// The switch's socket.
#[derive(Debug, clap::Args)]
struct Socket {
    /// The switch's socket; two switches on a machine need two
    #[arg(long, value_name = "PATH", default_value = SOCKET)]
    socket: PathBuf,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        match self.command {
            Command::Run(a) => a.run(),
            Command::Load(a) => a.run(),
            Command::Status(a) => a.run(),
            Command::Trace(a) => a.run(),
            Command::Capture(a) => a.run(),
            Command::Batches(a) => a.run(),
            Command::Port(a) => a.run(),
            Command::Table(a) => a.run(),
            Command::Group(a) => a.run(),
            Command::Mirror(a) => a.run(),
            Command::Queue(a) => a.run(),
            Command::Selector(a) => a.run(),
            Command::Value(a) => a.run(),
            Command::Counter(a) => a.run(),
            Command::Register(a) => a.run(),
            Command::Meter(a) => a.run(),
            Command::Digest(a) => a.run(),
            Command::Packet(a) => a.run(),
        }
    }
}

/// Prints an answer as JSON, or as text.
fn show<T: serde::Serialize>(json: bool, answer: &T, text: impl Fn(&T) -> String) -> anyhow::Result<Exit> {
    if json {
        output::json(answer)?;
    } else {
        output::text(&text(answer));
    }
    Ok(Exit::Done)
}

/// Shows an answer once, or again and again, also while the switch fails to give it.
fn watch<T: serde::Serialize>(
    watch: &Watch,
    ask: impl Fn() -> anyhow::Result<T>,
    text: impl Fn(&T) -> String,
) -> anyhow::Result<T> {
    watch.show(ask, text, |error| match error.downcast_ref() {
        Some(ApiError::Failed(why)) => Some(why.clone()),
        _ => None,
    })
}

/// Writes a table, group, session, queue or array.
fn write(socket: &Socket, write: Write) -> anyhow::Result<Exit> {
    written(api::write(&socket.socket, write))
}

/// Ends with exit code 3 if the switch refused a change.
fn written(result: Result<(), ApiError>) -> anyhow::Result<Exit> {
    match result {
        Ok(()) => Ok(Exit::Done),
        Err(ApiError::Failed(why)) => Err(Refused(why).into()),
        Err(e) => Err(e.into()),
    }
}
