//! `p4shield switch value`.

use clap::Subcommand;
use p4shield_console::Exit;
use p4shield_tables::entry::Named;
use p4shield_tables::write::Write;

use super::{Socket, completion, write};

/// Change parser value sets
///
/// A parser selects by the members of a value_set; `p4shield switch table list SET` shows them.
///
/// Examples:
///
///   p4shield switch value add types 0x0800
///   p4shield switch value delete types 0x0800
///
/// Exit code 3 if the switch refuses the value; the set is then as before.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Values {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Add a member
    Add(Member),
    /// Remove a member
    Delete(Member),
}

#[derive(Debug, clap::Args)]
struct Member {
    /// The set, in full or the last parts of its name
    #[arg(add = completion::object())]
    set: String,
    /// A value for each key, as a table's entries have them
    #[arg(value_name = "[NAME=]VALUE", required = true)]
    values: Vec<String>,
    #[command(flatten)]
    socket: Socket,
}

impl Values {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let (Command::Add(Member { set, values, socket }) | Command::Delete(Member { set, values, socket })) =
            &self.command;
        let (set, values) = (set.clone(), values.iter().map(|v| Named::parse(v)).collect());
        let change = match self.command {
            Command::Add(_) => Write::AddValue { set, values },
            Command::Delete(_) => Write::DeleteValue { set, values },
        };
        write(socket, change)
    }
}
