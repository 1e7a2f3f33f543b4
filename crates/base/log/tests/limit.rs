//! The limit within a process's subscriber. The subscriber is the process's, so this file has one test.

use std::io::{self, Write};
use std::sync::Mutex;

use p4shield_log::Limit;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

static WRITTEN: Mutex<String> = Mutex::new(String::new());

struct Lines;

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        WRITTEN.lock().unwrap().push_str(std::str::from_utf8(bytes).unwrap());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_hostile_peer_cannot_fill_the_log() {
    tracing_subscriber::fmt().with_writer(|| Lines).with_ansi(false).finish().with(Limit::new()).init();
    for pid in 0..10_000 {
        tracing::warn!(event = "switch_refused", pid, "a switch is refused: attempt {pid}");
    }
    tracing::warn!(event = "p4vm_replaced", tenant = "alice", "the P4 VM is replaced");
    for round in 0..100 {
        tracing::info!(event = "problem_began", round, "limited elsewhere");
    }
    let written = WRITTEN.lock().unwrap().clone();
    let count = |what: &str| written.lines().filter(|line| line.contains(what)).count();
    assert_eq!(count("event=\"switch_refused\""), 20, "{written}");
    assert_eq!(count("event=\"lines_omitted\" of=\"switch_refused\" lines=1"), 1, "{written}");
    assert_eq!(count("event=\"p4vm_replaced\""), 1, "another cause is omitted");
    assert_eq!(count("event=\"problem_began\""), 100, "problems are omitted");
}
