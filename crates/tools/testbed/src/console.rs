//! Dialogue with an interactive program: a test waits for text in everything that the program prints.
//!
//! A preloaded P4 Shield library logs to the same terminal from other threads, even into the middle of a
//! prompt. [`Console::of_a_host`] separates its lines.

use std::fs::File;
use std::io::{Read, Write};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::{Error, Result};

/// Both directions of an interactive program's terminal, pipe or socket.
#[derive(Debug)]
pub struct Console {
    writer: File,
    seen: Arc<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    state: Mutex<State>,
    more: Condvar,
}

/// Prefix of a preloaded library's lines.
const LOG: &[u8] = b"p4shield: ";

#[derive(Debug, Default)]
struct State {
    /// Output of the program.
    bytes: Vec<u8>,
    /// Log of a preloaded library.
    log: Vec<u8>,
    /// Incomplete line, of either.
    pending: Vec<u8>,
    ended: bool,
}

impl State {
    fn take(&mut self, read: &[u8], aside: bool) {
        if !aside {
            return self.bytes.extend_from_slice(read);
        }
        self.pending.extend_from_slice(read);
        while let Some(at) = find(&self.pending, LOG) {
            self.bytes.extend(self.pending.drain(..at));
            let Some(end) = self.pending.iter().position(|b| *b == b'\n') else { return };
            self.log.extend(self.pending.drain(..=end));
        }
        // The start of a log line may have arrived without its end.
        let open = (1..LOG.len()).rev().find(|n| self.pending.ends_with(&LOG[..*n])).unwrap_or(0);
        let sure = self.pending.len() - open;
        self.bytes.extend(self.pending.drain(..sure));
    }

    fn end(&mut self) {
        self.ended = true;
        self.bytes.append(&mut self.pending);
    }

    fn text(&self, from: usize) -> String {
        let said = [self.bytes.get(from..).unwrap_or_default(), &self.log].concat();
        String::from_utf8_lossy(&said).into_owned()
    }
}

impl Console {
    /// Starts to read from `reader`, on a thread that ends when the program closes its end.
    #[must_use]
    pub fn new(reader: File, writer: File) -> Self {
        Self::start(reader, writer, false)
    }

    /// As [`Self::new`], for a program with a preloaded P4 Shield library.
    #[must_use]
    pub fn of_a_host(reader: File, writer: File) -> Self {
        Self::start(reader, writer, true)
    }

    fn start(reader: File, writer: File, aside: bool) -> Self {
        let seen = Arc::new(Seen::default());
        let keep = Arc::clone(&seen);
        std::thread::spawn(move || keep.listen(reader, aside));
        Self { writer, seen }
    }

    /// Returns the number of bytes printed so far: a start for a later [`Console::wait_for`].
    #[must_use]
    pub fn position(&self) -> usize {
        self.seen.lock().bytes.len()
    }

    /// Returns everything printed so far, then the log of a preloaded library.
    #[must_use]
    pub fn transcript(&self) -> String {
        self.seen.lock().text(0)
    }

    /// Sends `text` and a newline.
    ///
    /// # Errors
    /// The program no longer reads.
    pub fn line(&mut self, text: &str) -> Result<()> {
        self.writer
            .write_all(format!("{text}\n").as_bytes())
            .and_then(|()| self.writer.flush())
            .map_err(Error::system(format!("type `{text}`")))
    }

    /// Waits until `mark` is printed at or after `from`. Returns the text between, and the position after the
    /// mark.
    ///
    /// # Errors
    /// [`Error::Failed`] with the text printed instead, after `seconds` or when the program has ended.
    pub fn wait_for(&self, from: usize, mark: &str, seconds: u64) -> Result<(String, usize)> {
        let end = Instant::now() + Duration::from_secs(seconds);
        let mut state = self.seen.lock();
        loop {
            let new = state.bytes.get(from..).unwrap_or_default();
            if let Some(at) = find(new, mark.as_bytes()) {
                return Ok((String::from_utf8_lossy(&new[..at]).into_owned(), from + at + mark.len()));
            }
            let left = end.saturating_duration_since(Instant::now());
            if state.ended || left.is_zero() {
                let what = if state.ended { "it ended before" } else { "in time it did not print" };
                let said = state.text(from);
                let why = format!("{what}; it said:\n{said}");
                return Err(Error::failed(format!("wait for {mark:?}"), why));
            }
            state = self.seen.more.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Seen {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn listen(&self, mut reader: File, aside: bool) {
        let mut buffer = [0; 4096];
        loop {
            let read = match reader.read(&mut buffer) {
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                // A terminal whose other end is closed reads as an error (EIO).
                Ok(0) | Err(_) => break,
                Ok(n) => n,
            };
            self.lock().take(&buffer[..read], aside);
            self.more.notify_all();
        }
        self.lock().end();
        self.more.notify_all();
    }
}

fn find(within: &[u8], what: &[u8]) -> Option<usize> {
    within.windows(what.len()).position(|w| w == what)
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn console() -> (Console, UnixStream) {
        let (mine, theirs) = UnixStream::pair().unwrap();
        let file = |s: UnixStream| File::from(OwnedFd::from(s));
        (Console::new(file(mine.try_clone().unwrap()), file(mine)), theirs)
    }

    #[test]
    fn text_is_found_across_reads_and_after_a_position() {
        let (mut console, mut program) = console();
        program.write_all(b"prompt> ").unwrap();
        let (_, at) = console.wait_for(0, "prompt> ", 10).unwrap();
        console.line("work").unwrap();
        let mut typed = [0; 5];
        program.read_exact(&mut typed).unwrap();
        assert_eq!(&typed, b"work\n");
        for piece in ["result\npro", "mpt", "> "] {
            program.write_all(piece.as_bytes()).unwrap();
        }
        assert_eq!(console.wait_for(at, "prompt> ", 10).unwrap().0, "result\n");
    }

    #[test]
    fn a_librarys_log_does_not_break_a_prompt() {
        let mut state = State::default();
        for piece in ["prom", "p4shield: a port", " is up\r\npt> ", "p4", "cube p", "4shield: b\n!"] {
            state.take(piece.as_bytes(), true);
        }
        assert_eq!(state.bytes, b"prompt> p4cube !");
        assert_eq!(state.log, b"p4shield: a port is up\r\np4shield: b\n");
        state.take(b"p4", true);
        state.end();
        assert!(state.bytes.ends_with(b"!p4"));
    }

    #[test]
    fn an_early_end_is_reported_with_the_last_output() {
        let (console, mut program) = console();
        program.write_all(b"out of memory").unwrap();
        drop(program);
        let error = console.wait_for(0, "prompt> ", 10).unwrap_err().to_string();
        assert!(error.contains("out of memory") && error.contains("ended"), "{error}");
    }
}
