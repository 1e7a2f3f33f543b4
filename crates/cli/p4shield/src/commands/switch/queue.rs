//! `p4shield switch queue`.

use clap::Subcommand;
use p4shield_console::Exit;
use p4shield_p4switch::api;
use p4shield_tables::write::Write;

use super::{Socket, write};
use crate::commands::program_state::columns;
use crate::commands::watch::Watch;

/// Show and set the queues of ports
///
/// A port with a rate has a queue, first in, first out. Packets wait there, and one that finds it full is
/// dropped. A program for v1model may give packets a priority, 0 to 7: the greater ones leave first, and take
/// the place of lesser ones in a full queue. One that reads enq_qdepth, deq_qdepth, deq_timedelta or
/// enq_timestamp has its packets wait between ingress and egress. A port without a queue sends at once.
///
/// Examples:
///
///   p4shield switch queue set 3 --bits 500k               half a megabit a second, 64 packets
///   p4shield switch queue set 3 --packets 1000 --depth 20
///   p4shield switch queue list
///   p4shield switch queue delete 3
///
/// Exit code 3 if the switch refuses the queue; it is then as before.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Queues {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the queues with the packets that wait, and those that found a queue full
    List {
        #[command(flatten)]
        watch: Watch,
        #[command(flatten)]
        socket: Socket,
    },
    /// Make the queue of a port, or change what is named of it; packets that wait leave at once
    Set {
        /// The port's number
        port: u16,
        #[command(flatten)]
        limits: Limits,
        #[command(flatten)]
        socket: Socket,
    },
    /// Delete the queue of a port; packets that wait leave at once
    Delete {
        /// The port's number
        port: u16,
        #[command(flatten)]
        socket: Socket,
    },
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = true)]
struct Limits {
    /// Most packets a second, such as 1000 or 2k
    #[arg(long, value_name = "RATE", value_parser = amount)]
    packets: Option<u64>,
    /// Most bits a second, such as 500k or 10M
    #[arg(long, value_name = "RATE", value_parser = amount)]
    bits: Option<u64>,
    /// Most packets that wait, 1 to 1024 (64 if never set)
    #[arg(long)]
    depth: Option<u32>,
}

fn amount(text: &str) -> Result<u64, String> {
    let units = [('k', 1_000_u64), ('M', 1_000_000), ('G', 1_000_000_000)];
    let (number, unit) = units
        .iter()
        .find_map(|(suffix, unit)| text.strip_suffix(*suffix).map(|number| (number, *unit)))
        .unwrap_or((text, 1));
    let amount = number.parse::<u64>().ok().and_then(|n| n.checked_mul(unit));
    amount.ok_or_else(|| "write a number, such as 1000, 500k, 10M or 1G".to_owned())
}

impl Queues {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let (change, socket) = match self.command {
            Command::List { watch, socket } => {
                super::watch(&watch, || Ok(api::queues(&socket.socket)?), |all| text(all))?;
                return Ok(Exit::Done);
            }
            Command::Set { port, limits: Limits { packets, bits, depth }, socket } => {
                (Write::SetQueue { port: Some(port), packets, bits, depth }, socket)
            }
            Command::Delete { port, socket } => (Write::DeleteQueue { port }, socket),
        };
        write(&socket, change)
    }
}

fn text(queues: &[api::QueueStatus]) -> String {
    if queues.is_empty() {
        return "no queues\n".to_owned();
    }
    let rate = |n: Option<u64>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
    let row = |q: &api::QueueStatus| {
        let counts = [u64::from(q.depth), q.waiting, q.dropped].map(|n| n.to_string());
        [q.port.to_string(), rate(q.packets), rate(q.bits)].into_iter().chain(counts).collect()
    };
    let header = ["port", "packets/s", "bits/s", "depth", "waiting", "dropped"].map(str::to_owned).to_vec();
    let mut out = String::new();
    columns(&mut out, &std::iter::once(header).chain(queues.iter().map(row)).collect::<Vec<_>>());
    out
}
