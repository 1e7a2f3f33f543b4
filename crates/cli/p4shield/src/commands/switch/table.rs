//! `p4shield switch table`, and what shows counters, registers and meters alike.

use std::path::Path;

use clap::Subcommand;
use p4shield_console::{Exit, Refused};
use p4shield_p4switch::api::{self, ApiError};
use p4shield_tables::entry::{ActionText, MatchText, Named};
use p4shield_tables::view::{DirectionView, Inspection, ObjectKind, What};
use p4shield_tables::write::{Entry, Write};

use super::load::Load;
use super::{Socket, completion, write};
use crate::commands::program_state::{complete_objects, show_objects};
use crate::commands::watch::Watch;

/// Show and write the tables of a switch while packets flow
///
/// Names are those of the program, in full or their last parts: routes is ingress.routes if no other table
/// ends so. A key or parameter is NAME=VALUE, or VALUE alone in the program's order.
///
/// Values: numbers (10, 0xa, 0b1010) and addresses (10.0.0.1, fd00::1, 02:00:00:00:00:01).
/// Keys also: 10.0.1.0/24 (prefix), 0x0800/0xff00 (mask), 80..443 (range), _ (any). A key that is left out
/// matches every value, unless it is exact.
///
/// Examples:
///
///   p4shield switch table list
///   p4shield switch table list routes --watch
///   p4shield switch table add routes 10.0.1.0/24 --action forward next_hop=02:00:00:00:00:01 port=1
///   p4shield switch table add acl dst_port=80..443 --priority 10 --action drop
///   p4shield switch table set routes 10.0.1.0/24 --action drop
///   p4shield switch table delete routes 10.0.1.0/24
///   p4shield switch table default routes --action drop
///   p4shield switch table load s1-commands.txt
///
/// Exit code 3 if the switch refuses the entry; the table is then as before.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Table {
    #[command(subcommand)]
    command: Command,
}

// No comment on the variant whose arguments have help of their own.
#[derive(Debug, Subcommand)]
enum Command {
    /// Show tables with their entries and default actions
    List {
        #[command(flatten)]
        list: Listing,
        #[command(flatten)]
        socket: Socket,
    },
    /// Add an entry; refused if the table has one that matches the same
    Add {
        #[command(flatten)]
        matches: Matches,
        #[command(flatten)]
        action: Action,
        #[command(flatten)]
        socket: Socket,
    },
    /// Add an entry, or replace the one that matches the same
    Set {
        #[command(flatten)]
        matches: Matches,
        #[command(flatten)]
        action: Action,
        #[command(flatten)]
        socket: Socket,
    },
    /// Delete the entry that matches this
    Delete {
        #[command(flatten)]
        matches: Matches,
        #[command(flatten)]
        socket: Socket,
    },
    Load(Load),
    /// Set the action for packets that no entry matches
    Default {
        /// The table
        #[arg(add = completion::object())]
        table: String,
        #[command(flatten)]
        action: Action,
        #[command(flatten)]
        socket: Socket,
    },
}

/// The packets that an entry matches.
#[derive(Debug, clap::Args)]
struct Matches {
    /// The table
    #[arg(add = completion::object())]
    table: String,
    #[command(flatten)]
    keys: Keys,
}

/// The keys of an entry.
#[derive(Debug, clap::Args)]
pub(super) struct Keys {
    /// The keys: VALUE in the program's order, or NAME=VALUE
    #[arg(value_name = "KEY", add = completion::keys())]
    keys: Vec<String>,
    /// The priority, where several entries may match; the greatest wins
    #[arg(long)]
    priority: Option<u32>,
}

impl Keys {
    pub(super) fn text(&self) -> MatchText {
        let keys = self.keys.iter().map(|key| Named::parse(key)).collect();
        MatchText { keys, priority: self.priority }
    }
}

/// An action.
#[derive(Debug, clap::Args)]
struct Action {
    /// The action, then its parameters: VALUE in the program's order, or NAME=VALUE
    #[arg(long, num_args = 1.., value_names = ["NAME", "PARAMETER"], required = true)]
    #[arg(add = completion::action())]
    action: Vec<String>,
}

impl Action {
    fn text(&self) -> ActionText {
        let (name, params) = self.action.split_first().map_or(("", &[][..]), |(n, p)| (n.as_str(), p));
        ActionText { name: name.to_owned(), params: params.iter().map(|p| Named::parse(p)).collect() }
    }
}

/// The objects to show.
#[derive(Debug, clap::Args)]
pub(super) struct Listing {
    /// Only what has this name in P4, in full or its last parts
    #[arg(add = completion::object())]
    name: Option<String>,
    /// The most rows of each object
    #[arg(long, value_name = "ROWS", default_value_t = 100)]
    limit: u32,
    /// Show all rows
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    /// Show zeros also in arrays of more than 16 elements
    #[arg(long)]
    zeros: bool,
    #[command(flatten)]
    watch: Watch,
}

impl Table {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let entry = |matches: &Matches, action: &Action| Entry {
            table: matches.table.clone(),
            matches: matches.keys.text(),
            action: action.text(),
        };
        let (change, socket) = match self.command {
            Command::List { list, socket } => return list.run(What::Tables, &[], &socket.socket),
            Command::Load(load) => return load.run(),
            Command::Add { matches, action, socket } => (Write::Add(entry(&matches, &action)), socket),
            Command::Set { matches, action, socket } => (Write::Set(entry(&matches, &action)), socket),
            Command::Delete { matches, socket } => {
                (Write::Delete { table: matches.table.clone(), matches: matches.keys.text() }, socket)
            }
            Command::Default { table, action, socket } => {
                (Write::Default { table, action: action.text() }, socket)
            }
        };
        write(&socket, change)
    }
}

impl Listing {
    /// Shows what there is, or only objects of these kinds.
    pub(super) fn run(self, what: What, kinds: &[ObjectKind], socket: &Path) -> anyhow::Result<Exit> {
        let text = |view: &DirectionView| match view.objects.is_empty() && kinds.contains(&ObjectKind::Meter)
        {
            true => "the program has no meters\n".to_owned(),
            false => text(view, what),
        };
        super::watch(&self.watch, || self.ask(what, kinds, socket), text)?;
        Ok(Exit::Done)
    }

    fn ask(&self, what: What, kinds: &[ObjectKind], socket: &Path) -> anyhow::Result<DirectionView> {
        let (name, limit) = (self.name.clone(), (!self.all).then_some(self.limit));
        let inspection = Inspection { what, name, limit, zeros: self.zeros, ..Inspection::default() };
        let mut view = api::show(socket, &inspection)?;
        view.objects.retain(|object| kinds.is_empty() || kinds.contains(&object.kind));
        let page = |name: &str, from| {
            let page = Inspection { name: Some(name.to_owned()), from, ..inspection.clone() };
            api::show(socket, &page).map(|view| view.objects)
        };
        if !complete_objects(&mut view.objects, page)? {
            let why = "the program was replaced while it was read; try again";
            return Err(ApiError::Failed(why.to_owned()).into());
        }
        match &self.name {
            Some(name) if view.objects.is_empty() => {
                Err(Refused(format!("the program has no {name}; without a name, all are shown")).into())
            }
            _ => Ok(view),
        }
    }
}

fn text(view: &DirectionView, what: What) -> String {
    let mut out = String::new();
    view.notes.iter().for_each(|note| out.push_str(&format!("note: {note}\n")));
    show_objects(&mut out, view, what);
    // An empty line comes before each object, here also before the first.
    out.trim_start_matches('\n').to_owned()
}
