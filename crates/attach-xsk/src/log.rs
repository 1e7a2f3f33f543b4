//! Lines for an operator, on the application's standard error, in a way that cannot make it wait.
//!
//! A line is left for a thread of its own; a pipe that nobody reads stops that thread and nobody else. What it cannot
//! keep up with is left out.

use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;
use tracing_subscriber::EnvFilter;

/// Environment variable that says what is logged, in the syntax of `tracing`'s filters. Default: `info`.
const FILTER: &str = "P4SHIELD_LOG";
/// Lines that may wait.
const WAITING: usize = 512;

static QUEUE: OnceLock<SyncSender<Vec<u8>>> = OnceLock::new();
/// Lines that were left and not written yet.
static PENDING: AtomicUsize = AtomicUsize::new(0);

/// Starts to log. To be called when the application has become what it stays: after it went to the background.
pub(crate) fn start() {
    let (sender, receiver) = sync_channel(WAITING);
    if QUEUE.set(sender).is_err() {
        return;
    }
    if crate::thread::spawn("p4shield-log", move || write(&receiver)).is_err() {
        return; // Lines are left out; an application without threads to spare has other worries.
    }
    // SAFETY: registers a function without arguments that never unwinds.
    unsafe { libc::atexit(finish) };
    let filter = EnvFilter::try_from_env(FILTER).unwrap_or_else(|_| EnvFilter::new("info"));
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_target(false)
        .with_writer(|| Line);
    // An error means that it was done before.
    let _ = tracing::subscriber::set_global_default(subscriber.finish());
}

fn write(lines: &Receiver<Vec<u8>>) {
    for line in lines {
        // Nobody can be told that nobody can be told.
        let _ = io::stderr().write_all(&[b"p4shield: ", line.as_slice()].concat());
        PENDING.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Waits for the last lines, but not for ever.
extern "C" fn finish() {
    for _ in 0..100 {
        if PENDING.load(Ordering::Acquire) == 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Takes one line.
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
