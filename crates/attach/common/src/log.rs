//! Logging from inside a switch's process, without making the switch wait.
//!
//! Lines go to standard error. If that is /dev/null, as in a daemon in the background such as Open
//! vSwitch, they go to the system's log.
//!
//! A thread of its own writes the lines. A full pipe blocks only this thread; lines beyond its queue
//! are dropped.

use crate::process;
use p4shield_log::Limit;
use std::ffi::CString;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;

/// Environment variable of the log's filter: a level, or `target=level` pairs, by commas. Default: `info`.
const FILTER: &str = "P4SHIELD_LOG";
/// The most queued lines.
const WAITING: usize = 512;

static QUEUE: OnceLock<SyncSender<Vec<u8>>> = OnceLock::new();
/// Lines that are queued and not written.
static PENDING: AtomicUsize = AtomicUsize::new(0);

/// Starts logging this process's `tracing` events, filtered by the environment's `P4SHIELD_LOG`.
///
/// The library calls this once the process no longer forks into the background. Later calls do
/// nothing, and a process that has a subscriber keeps it.
pub fn start() {
    let (sender, receiver) = sync_channel(WAITING);
    if QUEUE.set(sender).is_err() {
        return;
    }
    if process::spawn_without_signals("p4shield-log", move || write(&receiver)).is_err() {
        return; // No thread is left: lines are dropped.
    }
    process::at_exit(finish);
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        .with_ansi(false)
        .with_target(false)
        .with_writer(|| Line)
        .finish()
        .with(Limit::new())
        .with(filter(std::env::var(FILTER).ok().as_deref()));
    // An error means that the process has a subscriber.
    let _ = tracing::subscriber::set_global_default(subscriber);
}

/// Parses a filter; one that is missing or invalid means `info`. Unlike `EnvFilter` this needs no
/// regular expressions, which are a third of a megabyte.
fn filter(text: Option<&str>) -> Targets {
    text.and_then(|t| t.parse().ok()).unwrap_or_else(|| Targets::new().with_default(LevelFilter::INFO))
}

fn write(lines: &Receiver<Vec<u8>>) {
    for line in lines {
        let line = [b"p4shield: ", line.as_slice()].concat();
        if goes_nowhere(io::stderr()) {
            if let Ok(line) = CString::new(line.trim_ascii_end()) {
                process::system_log(&line);
            }
        } else {
            // An error here cannot be reported.
            let _ = io::stderr().write_all(&line);
        }
        PENDING.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Returns whether this is /dev/null.
fn goes_nowhere(descriptor: impl AsFd) -> bool {
    let null = rustix::fs::stat("/dev/null").map(|s| s.st_rdev);
    rustix::fs::fstat(descriptor).is_ok_and(|s| Ok(s.st_rdev) == null)
}

/// Waits a bounded time for the last lines.
extern "C" fn finish() {
    for _ in 0..400 {
        if PENDING.load(Ordering::Acquire) == 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Writer that queues one line.
struct Line;

impl Write for Line {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if let Some(queue) = QUEUE.get() {
            PENDING.fetch_add(1, Ordering::AcqRel);
            if queue.try_send(line.to_vec()).is_err() {
                PENDING.fetch_sub(1, Ordering::AcqRel);
            }
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    #[test]
    fn a_filter_is_a_level_or_levels_of_targets() {
        assert!(
            filter(None).would_enable("any", &Level::INFO)
                && !filter(None).would_enable("any", &Level::DEBUG)
        );
        assert!(filter(Some("debug")).would_enable("any", &Level::DEBUG));
        let pairs = filter(Some("warn,p4shield_attach=trace"));
        assert!(pairs.would_enable("p4shield_attach::session", &Level::TRACE));
        assert!(!pairs.would_enable("p4shield_dpdk", &Level::INFO));
        assert!(filter(Some("a=b=c")).would_enable("any", &Level::INFO), "invalid: the default");
    }

    #[test]
    fn a_daemons_standard_error_is_known() {
        assert!(goes_nowhere(std::fs::File::open("/dev/null").expect("it is always there")));
        assert!(!goes_nowhere(std::fs::File::open("/dev/zero").expect("it is always there")));
        let (reader, _writer) = io::pipe().expect("a pipe");
        assert!(!goes_nowhere(reader));
    }
}
