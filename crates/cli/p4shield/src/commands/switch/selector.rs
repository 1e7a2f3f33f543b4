//! `p4shield switch selector`.

use clap::Subcommand;
use p4shield_console::Exit;
use p4shield_tables::entry::{ActionText, Named};
use p4shield_tables::write::Write;

use super::{Socket, completion, write};

/// Set the groups of action selectors
///
/// An entry of a table with an action_selector may refer to a group of actions by its number: `table add
/// TABLE KEY --action '$group' NUMBER`. A hash of the packet chooses one of the group's members.
///
/// Examples:
///
///   p4shield switch selector set ecmp 1 'forward port=2' 'forward port=3'
///   p4shield switch selector set ecmp 1                   without members: it has no effect
///
/// Exit code 3 if the switch refuses the group; it is then as before.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Selectors {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Set the members of a group of a table
    Set {
        /// The table, in full or the last parts of its name
        #[arg(add = completion::object())]
        table: String,
        /// The group's number
        group: u32,
        /// A member: an action and its parameters, by name or in their order
        #[arg(value_name = "ACTION [NAME=]VALUE ...", value_parser = member)]
        members: Vec<ActionText>,
        #[command(flatten)]
        socket: Socket,
    },
}

fn member(text: &str) -> Result<ActionText, String> {
    let mut words = text.split_whitespace();
    let name = words.next().ok_or_else(|| "write an action, such as 'forward port=2'".to_owned())?;
    Ok(ActionText { name: name.to_owned(), params: words.map(Named::parse).collect() })
}

impl Selectors {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let Command::Set { table, group, members, socket } = self.command;
        write(&socket, Write::SetMembers { table, group, members })
    }
}
