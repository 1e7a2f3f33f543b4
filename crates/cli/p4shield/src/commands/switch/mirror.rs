//! `p4shield switch mirror`.

use clap::Subcommand;
use p4shield_console::Exit;
use p4shield_p4switch::api;
use p4shield_tables::write::{CloneSession, Write};

use super::{Socket, show, write};
use crate::commands::program_state::columns;

/// Show and set clone sessions
///
/// A program for v1model clones a packet to a session: `clone(CloneType.I2E, 5)` makes a copy of the packet
/// for each target of session 5. A clone passes egress processing, where `instance_type` is 1 (from ingress)
/// or 2 (from egress).
///
/// Examples:
///
///   p4shield switch mirror set 5 --port 4     one clone, for port 4
///   p4shield switch mirror set 6 --group 7    a clone for each copy of multicast group 7
///   p4shield switch mirror list
///   p4shield switch mirror delete 5
///
/// Exit code 3 if the switch refuses the session; it is then as before.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Mirrors {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the sessions with their targets
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        socket: Socket,
    },
    /// Create or replace a session
    Set {
        /// The session's number, 0 to 32767
        session: u16,
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        socket: Socket,
    },
    /// Delete a session
    Delete {
        /// The session's number
        session: u16,
        #[command(flatten)]
        socket: Socket,
    },
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = true)]
struct Target {
    /// The port of a clone
    #[arg(long)]
    port: Option<u16>,
    /// A multicast group: a clone for each of its copies
    #[arg(long)]
    group: Option<u16>,
}

impl Mirrors {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let (change, socket) = match self.command {
            Command::List { json, socket } => {
                return show(json, &api::sessions(&socket.socket)?, |all| text(all));
            }
            Command::Set { session, target: Target { port, group }, socket } => {
                (Write::SetSession(CloneSession { session, port, group }), socket)
            }
            Command::Delete { session, socket } => (Write::DeleteSession { session }, socket),
        };
        write(&socket, change)
    }
}

fn text(sessions: &[CloneSession]) -> String {
    if sessions.is_empty() {
        return "no clone sessions\n".to_owned();
    }
    let number = |n: Option<u16>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
    let row = |s: &CloneSession| vec![s.session.to_string(), number(s.port), number(s.group)];
    let header = ["session", "port", "group"].map(str::to_owned).to_vec();
    let mut out = String::new();
    columns(&mut out, &std::iter::once(header).chain(sessions.iter().map(row)).collect::<Vec<_>>());
    out
}
