//! `p4shield switch digest`.

use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clap::Subcommand;
use p4shield_console::{Exit, Refused, output, signals};
use p4shield_p4switch::api::{self, DigestView, DigestsView, MessageView};

use super::recorded::failed;
use super::{Socket, show};

/// Pause between two requests.
const PAUSE: Duration = Duration::from_millis(50);

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
        /// End after so many digests
        #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
        count: Option<u64>,
        /// End after so many seconds
        #[arg(long = "for", value_name = "SECONDS")]
        #[arg(value_parser = clap::value_parser!(u64).range(1..=86_400))]
        seconds: Option<u64>,
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
            Command::Watch { name, count, seconds, json, socket } => {
                let end = seconds.map(|s| Instant::now() + Duration::from_secs(s));
                let shown = Shown { name, left: count.unwrap_or(u64::MAX), end, json };
                watch(&socket.socket, shown)
            }
        }
    }
}

/// The digests to show.
struct Shown {
    name: Option<String>,
    left: u64,
    end: Option<Instant>,
    json: bool,
}

impl Shown {
    fn check(&self, view: &DigestsView) -> anyhow::Result<()> {
        let Some(name) = &self.name else { return Ok(()) };
        if view.kinds.iter().any(|k| k.name == *name) {
            return Ok(());
        }
        let kinds: Vec<_> = view.kinds.iter().map(|k| k.name.as_str()).collect();
        Err(Refused(format!("no digest carries {name}; the program sends {}", kinds.join(", "))).into())
    }

    /// Prints a digest, at once, for readers behind a pipe.
    fn print(&mut self, digest: &DigestView) -> anyhow::Result<()> {
        if self.left == 0 || self.name.as_ref().is_some_and(|name| *name != digest.name) {
            return Ok(());
        }
        self.left -= 1;
        let text = if self.json { serde_json::to_string(digest)? } else { text(digest) };
        let mut out = std::io::stdout().lock();
        writeln!(out, "{text}")?;
        Ok(out.flush()?)
    }
}

fn watch(socket: &Path, mut shown: Shown) -> anyhow::Result<Exit> {
    let stop = signals::stop_flag()?;
    let first = api::digests(socket, None).map_err(failed)?;
    shown.check(&first)?;
    output::note("watching digests; Ctrl-C ends it");
    let (mut next, mut missed) = (first.next, 0);
    while shown.left > 0 {
        // What came before the end is still shown.
        let last = stop.load(Ordering::Relaxed) || shown.end.is_some_and(|end| Instant::now() >= end);
        let view = api::digests(socket, Some(next)).map_err(failed)?;
        view.digests.iter().try_for_each(|digest| shown.print(digest))?;
        (next, missed) = (view.next, missed + view.missed);
        if last {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    if missed > 0 {
        output::note(format_args!("{missed} digests more, which came faster than they were read"));
    }
    Ok(Exit::Done)
}

fn line(kind: &MessageView) -> String {
    let fields: Vec<_> = kind.fields.iter().map(|(name, width)| format!("{name} bit<{width}>")).collect();
    format!("{}: {}\n", kind.name, fields.join(", "))
}

fn text(digest: &DigestView) -> String {
    let values: Vec<_> = digest.values.iter().map(|(name, value)| format!("{name}={value}")).collect();
    format!("{} {}", digest.name, values.join(" "))
}
