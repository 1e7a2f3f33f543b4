//! `p4shield switch digest`.

use std::path::Path;

use clap::Subcommand;
use p4shield_console::{Exit, Refused, output};
use p4shield_p4switch::api::{self, DigestView, MessageView};

use super::follow::{Limits, Place, follow, print};
use super::recorded::failed;
use super::{Socket, show};

/// Show the digests that the program sends, and which it can send
///
/// A program for v1model sends a digest by `digest(receiver, data)`, for example to report an address that it
/// sees for the first time. Several clients may watch; each gets all digests. The switch keeps the last 1024
/// of them, and the program never waits.
///
/// Examples:
///
///   p4shield switch digest list
///   p4shield switch digest watch                 as they come
///   p4shield switch digest watch learn_t --json  those that carry learn_t, one JSON line for each
///
/// Exit code 3 if the program sends no digests.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Digests {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the kinds of digests with their fields
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        socket: Socket,
    },
    /// Show digests as they come
    Watch {
        /// Show digests that carry this struct, instead of all
        name: Option<String>,
        #[command(flatten)]
        limits: Limits,
        /// Print JSON, one line for each digest
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        socket: Socket,
    },
}

impl Digests {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        match self.command {
            Command::List { json, socket } => {
                let kinds = api::digests(&socket.socket, None).map_err(failed)?.kinds;
                show(json, &kinds, |kinds| kinds.iter().map(line).collect())
            }
            Command::Watch { name, limits, json, socket } => watch(&socket.socket, name, &limits, json),
        }
    }
}

fn watch(socket: &Path, name: Option<String>, limits: &Limits, json: bool) -> anyhow::Result<Exit> {
    let ask = |from| {
        let answer = api::digests(socket, from)?;
        Ok((answer.digests, Place { next: answer.next, missed: answer.missed }))
    };
    let started = || {
        if let Some(name) = &name {
            check(name, &api::digests(socket, None).map_err(failed)?.kinds)?;
        }
        output::note("watching digests; Ctrl-C ends it");
        Ok(())
    };
    follow(limits, "digests", ask, started, |digest: &DigestView| {
        if name.as_ref().is_some_and(|name| *name != digest.name) {
            return Ok(false);
        }
        print(&if json { serde_json::to_string(digest)? } else { text(digest) })?;
        Ok(true)
    })
}

/// Returns an error if no digest has this name.
fn check(name: &str, kinds: &[MessageView]) -> anyhow::Result<()> {
    if kinds.iter().any(|k| k.name == name) {
        return Ok(());
    }
    let kinds: Vec<_> = kinds.iter().map(|k| k.name.as_str()).collect();
    Err(Refused(format!("no digest carries {name}; the program sends {}", kinds.join(", "))).into())
}

fn line(kind: &MessageView) -> String {
    let fields: Vec<_> = kind.fields.iter().map(|(name, width)| format!("{name} bit<{width}>")).collect();
    format!("{}: {}\n", kind.name, fields.join(", "))
}

fn text(digest: &DigestView) -> String {
    let values: Vec<_> = digest.values.iter().map(|(name, value)| format!("{name}={value}")).collect();
    format!("{} {}", digest.name, values.join(" "))
}
