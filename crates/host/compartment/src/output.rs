//! The last lines that a process wrote to its standard error.

use p4shield_text::printable;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use std::io::{self, PipeReader, PipeWriter, Read};
use std::time::{Duration, Instant};

/// Lines that are kept.
const MAX_LINES: usize = 20;
/// Longest line that is kept, in bytes.
const MAX_LINE: usize = 400;

/// The last 20 lines of a process's standard error, each of at most 400 bytes. Control characters are
/// removed, as they could reach a terminal.
#[derive(Debug)]
pub struct OutputTail {
    pipe: PipeReader,
    lines: Vec<String>,
    partial: Vec<u8>,
}

impl OutputTail {
    /// Returns the reading end, and the end for the process.
    ///
    /// # Errors
    /// The system has no descriptors left.
    pub fn new() -> io::Result<(Self, PipeWriter)> {
        let (pipe, stderr) = io::pipe()?;
        rustix::fs::fcntl_setfl(&pipe, OFlags::NONBLOCK)?;
        Ok((Self { pipe, lines: Vec::new(), partial: Vec::new() }, stderr))
    }

    /// Reads the available output, up to 64 KiB: a process may write without end.
    pub fn read(&mut self) {
        let mut buffer = [0; 4096];
        for _ in 0..16 {
            let Ok(n @ 1..) = self.pipe.read(&mut buffer) else { return };
            for byte in &buffer[..n] {
                match byte {
                    b'\n' => self.end_line(),
                    _ if self.partial.len() < MAX_LINE => self.partial.push(*byte),
                    _ => {}
                }
            }
        }
    }

    /// Reads until all processes that may write have ended, or for this long.
    pub fn read_to_end(&mut self, longest: Duration) {
        let end = Instant::now() + longest;
        loop {
            let left = Timespec::try_from(end.saturating_duration_since(Instant::now())).ok();
            let mut fds = [PollFd::new(&self.pipe, PollFlags::IN)];
            let ready = poll(&mut fds, left.as_ref()).unwrap_or(0);
            let is_over = ready == 0 || fds[0].revents() == PollFlags::HUP;
            self.read();
            if is_over || Instant::now() >= end {
                return;
            }
        }
    }

    fn end_line(&mut self) {
        let line = printable(&String::from_utf8_lossy(&self.partial));
        self.partial.clear();
        if self.lines.len() == MAX_LINES {
            self.lines.remove(0);
        }
        self.lines.push(line);
    }

    /// Returns the lines in one, separated by slashes; empty if the process wrote nothing.
    pub fn last(&mut self) -> String {
        if !self.partial.is_empty() {
            self.end_line();
        }
        self.lines.join(" / ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn the_last_lines_are_kept_printable_and_short() {
        let (mut tail, mut stderr) = OutputTail::new().unwrap();
        for n in 0..MAX_LINES + 5 {
            writeln!(stderr, "line {n}\x1b[2J").unwrap();
        }
        write!(stderr, "{}", "x".repeat(2 * MAX_LINE)).unwrap();
        drop(stderr);
        tail.read_to_end(Duration::from_secs(10));
        let text = tail.last();
        assert!(!text.contains('\x1b') && text.starts_with("line 6"), "{text}");
        assert_eq!(text.matches(" / ").count(), MAX_LINES - 1);
        assert_eq!(text.rsplit(" / ").next().unwrap().len(), MAX_LINE);
    }
}
