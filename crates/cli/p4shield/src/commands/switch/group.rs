//! `p4shield switch group`.

use clap::Subcommand;
use p4shield_console::Exit;
use p4shield_p4switch::api;
use p4shield_tables::write::{Group, GroupCopy, Write};

use super::{Socket, show, write};
use crate::commands::program_state::columns;

/// Show and set multicast groups
///
/// A program for v1model sends a packet to a group by `mcast_grp`. The switch makes each copy of the group:
/// egress processing sees the copy's port as `egress_port` and its number as `egress_rid`.
///
/// Examples:
///
///   p4shield switch group set 1 1 2 3         copies for ports 1, 2 and 3
///   p4shield switch group set 7 2:100 3:101   with numbers 100 and 101
///   p4shield switch group list
///   p4shield switch group delete 7
///
/// Exit code 3 if the switch refuses the group; it is then as before.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Groups {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the groups with their copies
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        socket: Socket,
    },
    /// Create or replace a group
    Set {
        /// The group's number, 1 to 65535
        group: u16,
        /// A copy: its port, and its number (0 if left out)
        #[arg(value_name = "PORT[:NUMBER]", required = true, value_parser = copy)]
        copies: Vec<GroupCopy>,
        #[command(flatten)]
        socket: Socket,
    },
    /// Delete a group
    Delete {
        /// The group's number
        group: u16,
        #[command(flatten)]
        socket: Socket,
    },
}

fn copy(text: &str) -> Result<GroupCopy, String> {
    let (port, replica) = text.split_once(':').unwrap_or((text, "0"));
    let number = |text: &str| text.parse().map_err(|_| "write PORT or PORT:NUMBER, such as 2:100".to_owned());
    Ok(GroupCopy { port: number(port)?, replica: number(replica)? })
}

impl Groups {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let (change, socket) = match self.command {
            Command::List { json, socket } => {
                return show(json, &api::groups(&socket.socket)?, |all| text(all));
            }
            Command::Set { group, copies, socket } => (Write::SetGroup(Group { group, copies }), socket),
            Command::Delete { group, socket } => (Write::DeleteGroup { group }, socket),
        };
        write(&socket, change)
    }
}

fn text(groups: &[Group]) -> String {
    if groups.is_empty() {
        return "no groups\n".to_owned();
    }
    let copies = |g: &Group| {
        let copies: Vec<_> = g.copies.iter().map(|c| format!("{}:{}", c.port, c.replica)).collect();
        vec![g.group.to_string(), copies.join(" ")]
    };
    let header = vec!["group".to_owned(), "copies (port:number)".to_owned()];
    let mut out = String::new();
    columns(&mut out, &std::iter::once(header).chain(groups.iter().map(copies)).collect::<Vec<_>>());
    out
}
