//! The log of a switch.

use p4shield_text::printable;
use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::time::{Duration, Instant};

/// Most lines of the switch's log in a second.
const MAX_LINES: u32 = 100;
/// Longest line of the switch's log, in bytes.
const MAX_LINE: u64 = 4096;

/// Copies the lines of a switch's log or console to standard error, printable and not too many, until it
/// ends.
pub fn copy_lines(log: impl Read) {
    let mut log = BufReader::new(log);
    let mut line = Vec::new();
    let (mut second, mut lines) = (Instant::now(), 0);
    while log.by_ref().take(MAX_LINE).read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
        if second.elapsed() >= Duration::from_secs(1) {
            (second, lines) = (Instant::now(), 0);
        }
        lines += 1;
        let text = match lines {
            ..MAX_LINES => printable(String::from_utf8_lossy(&line).trim_end()),
            MAX_LINES => "p4shield: the switch logs too much; lines are left out".to_owned(),
            _ => String::new(),
        };
        if !text.is_empty() {
            // A closed standard error loses the log, and not the switch.
            let _ = writeln!(io::stderr(), "{text}");
        }
        line.clear();
    }
}
