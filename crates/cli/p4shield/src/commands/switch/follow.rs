//! Messages of a switch, as they come: digests, and packets to the controller.

use std::io::Write as _;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use p4shield_console::{Exit, output, signals};
use p4shield_p4switch::api::ApiError;

use super::recorded::failed;

/// Pause between two requests.
const PAUSE: Duration = Duration::from_millis(50);

/// When a command ends that follows messages.
#[derive(Debug, clap::Args)]
pub(super) struct Limits {
    /// End after so many
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// End after so many seconds
    #[arg(long = "for", value_name = "SECONDS")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: Option<u64>,
}

/// A client's place among the messages.
pub(super) struct Place {
    /// The place with which to continue.
    pub(super) next: u64,
    /// Messages before it that were overwritten.
    pub(super) missed: u64,
}

/// Asks for messages until the limits are reached, or until SIGINT or SIGTERM. `started` is
/// called once the switch has answered; `each` returns whether the message counts.
pub(super) fn follow<T>(
    limits: &Limits,
    what: &str,
    ask: impl Fn(Option<u64>) -> Result<(Vec<T>, Place), ApiError>,
    started: impl FnOnce() -> anyhow::Result<()>,
    mut each: impl FnMut(&T) -> anyhow::Result<bool>,
) -> anyhow::Result<Exit> {
    let stop = signals::stop_flag()?;
    let (_, Place { mut next, mut missed }) = ask(None).map_err(failed)?;
    started()?;
    let end = limits.seconds.map(|s| Instant::now() + Duration::from_secs(s));
    let mut left = limits.count.unwrap_or(u64::MAX);
    while left > 0 {
        // What came before the end is still shown.
        let last = stop.load(Ordering::Relaxed) || end.is_some_and(|end| Instant::now() >= end);
        let (messages, place) = ask(Some(next)).map_err(failed)?;
        for message in &messages {
            if left > 0 && each(message)? {
                left -= 1;
            }
        }
        (next, missed) = (place.next, missed + place.missed);
        if last {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    if missed > 0 {
        output::note(format_args!("{missed} {what} more, which came faster than they were read"));
    }
    Ok(Exit::Done)
}

/// Prints a line, at once, for readers behind a pipe.
pub(super) fn print(line: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}
