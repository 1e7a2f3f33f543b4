//! Bytes between this process and a command that is not trusted: it gets neither this process's terminal nor
//! another descriptor, and goes on no longer than its first process.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Child;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Context;
use p4shield_console::signals;
use p4shield_text::printable_output;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, pidfd_open, waitid,
};

/// Bytes that are read at once: as many as a pipe has by default.
const CHUNK: usize = 64 << 10;
/// Most chunks that are read after the command's end: as many as it can have left in a pipe. Processes that
/// outlive it may write without end.
const LAST_CHUNKS: usize = 16;

/// Relays until the command ends, and ends what it left in its process group. Returns its exit code, or 128
/// plus the number of its signal.
pub(super) fn until_end(mut child: Child) -> anyhow::Result<u8> {
    let pid = Pid::from_child(&child);
    let process = pidfd_open(pid, PidfdFlags::empty()).context("cannot watch the command")?;
    // Its number, which is its own until it is reaped.
    let running = Arc::new(Mutex::new(Some(pid)));
    let target = Arc::clone(&running);
    signals::pass_on(move |signal| {
        if let (Some(signal), Some(pid)) = (Signal::from_named_raw(signal), *locked(&target)) {
            // It may have just ended.
            let _ = send(pid, signal);
        }
    })?;
    if let Some(mut input) = child.stdin.take() {
        // The thread may wait for input when this process ends.
        let relay = move || io::copy(&mut io::stdin(), &mut input);
        std::thread::Builder::new().spawn(relay).context("cannot start a thread")?;
    }
    let mut outputs = [
        Output::new(child.stdout.take().map(OwnedFd::from), io::stdout()),
        Output::new(child.stderr.take().map(OwnedFd::from), io::stderr()),
    ];
    while !is_ready(&process, &mut outputs, None)? {}
    for _ in 0..LAST_CHUNKS {
        is_ready(&process, &mut outputs, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    }
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    let status = waitid(WaitId::Pid(pid), options).context("cannot wait for the command")?;
    locked(&running).take();
    let _ = kill_process_group(pid, Signal::KILL);
    // An unreaped process would count for the compartment's limit.
    child.wait().context("cannot wait for the command")?;
    let code = status.and_then(|s| s.exit_status().or(s.terminating_signal().map(|signal| 128 + signal)));
    Ok(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends a signal to a command's process group, as a terminal does.
fn send(pid: Pid, signal: Signal) -> rustix::io::Result<()> {
    // It has a group of its own once it is in its sandbox.
    kill_process_group(pid, signal).or_else(|_| kill_process(pid, signal))
}

/// Waits for output or the command's end, and relays a chunk of each output that has one. Returns whether the
/// command has ended.
fn is_ready(process: &OwnedFd, outputs: &mut [Output; 2], limit: Option<&Timespec>) -> anyhow::Result<bool> {
    let mut waiting = vec![PollFd::new(process, PollFlags::IN)];
    for output in outputs.iter() {
        waiting.extend(output.from.iter().map(|from| PollFd::new(from, PollFlags::IN)));
    }
    match poll(&mut waiting, limit) {
        Err(rustix::io::Errno::INTR) => return Ok(false),
        polled => polled.context("cannot wait for the command")?,
    };
    let mut ready = waiting.iter().map(|one| !one.revents().is_empty()).collect::<Vec<_>>().into_iter();
    let ended = ready.next() == Some(true);
    for output in outputs.iter_mut().filter(|output| output.from.is_some()) {
        if ready.next() == Some(true) {
            output.relay();
        }
    }
    Ok(ended)
}

/// An output of the command.
struct Output {
    /// The pipe from it, until it has no writer or this process's own output no reader.
    from: Option<File>,
    to: Box<dyn Write>,
    /// Present if `to` is a terminal.
    clean: Option<Cleaner>,
}

impl Output {
    fn new(from: Option<OwnedFd>, to: impl Write + IsTerminal + AsFd + 'static) -> Self {
        let clean = to.is_terminal().then(Cleaner::default);
        Self { from: from.map(File::from), to: Box::new(to), clean }
    }

    /// Relays a chunk; the command gets SIGPIPE if it cannot be written.
    fn relay(&mut self) {
        let mut chunk = vec![0; CHUNK];
        let read = self.from.as_mut().map_or(Ok(0), |from| from.read(&mut chunk)).unwrap_or(0);
        let chunk = &chunk[..read];
        let written = match &mut self.clean {
            None => self.to.write_all(chunk),
            Some(cleaner) => self.to.write_all(cleaner.clean(chunk).as_bytes()),
        };
        if read == 0 || written.and_then(|()| self.to.flush()).is_err() {
            self.from = None;
        }
    }
}

/// Makes text of the command harmless for a terminal.
#[derive(Default)]
struct Cleaner {
    /// The beginning of a character whose other bytes have not come yet.
    rest: Vec<u8>,
}

impl Cleaner {
    fn clean(&mut self, chunk: &[u8]) -> String {
        let mut bytes = std::mem::take(&mut self.rest);
        bytes.extend_from_slice(chunk);
        let mut whole = 0;
        while let Err(e) = std::str::from_utf8(&bytes[whole..]) {
            whole += e.valid_up_to();
            let Some(wrong) = e.error_len() else {
                self.rest = bytes.split_off(whole);
                break;
            };
            whole += wrong;
        }
        printable_output(&String::from_utf8_lossy(&bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::Cleaner;

    #[test]
    fn a_terminal_gets_whole_characters_and_no_controls() {
        let mut cleaner = Cleaner::default();
        assert_eq!(cleaner.clean(b"a\tb\x1b[2J\n\xc3"), "a\tb\u{fffd}[2J\n");
        assert_eq!(cleaner.clean(b"\xa4\xff\xff-\xe2\x80"), "ä\u{fffd}\u{fffd}-");
        assert_eq!(cleaner.clean(b"\xae\xc2"), "\u{fffd}", "a mark that reverses a line");
        assert_eq!(cleaner.clean(b"\x9b2J"), "\u{fffd}2J");
    }
}
