//! A trial start of a machine: it boots to its P4 VM's first message, its memory is searched, and it ends.

use crate::command::Machine;
use crate::error::VmmError;
use crate::guest::Guest;
use crate::qmp::QmpError;
use crate::{console, finish, launch};
use memchr::memmem::Finder;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Text of every Linux kernel. No file of an image has it: kernels are compressed until they run.
const KERNEL_TEXT: &[u8] = b"Kernel panic - not syncing";
/// User of QEMU in a trial: that of processes without a user of their own.
const USER: u32 = 65534;
/// Bytes of memory that are read at once.
const CHUNK: usize = 1 << 20;

/// The results of a trial.
#[derive(Debug)]
pub(crate) struct Trial {
    /// Time from the start to the P4 VM's first message.
    pub(crate) boot: Duration,
    /// True if text of the guest's kernel is in the memory of QEMU's process. An error if this process may
    /// not read that memory.
    pub(crate) exposes_kernel: io::Result<bool>,
}

/// Starts a machine, searches its memory once it has booted, and ends it. Words of its kernel and of QEMU
/// go to standard error.
pub(crate) fn trial(machine: &Machine) -> Result<Trial, VmmError> {
    let begun = Instant::now();
    let launched = launch::launch(machine, USER)?;
    let mut child = launched.child;
    let pid = child.id();
    let trial = (|| {
        console::pass_on(launched.console).map_err(VmmError::Thread)?;
        let _guest = Guest::boot(launched.messages)?;
        Ok(Trial { boot: begun.elapsed(), exposes_kernel: contains(pid, KERNEL_TEXT) })
    })();
    drop((launched.rings, launched.qmp));
    let status = finish(&mut child, crate::POWER_OFF);
    match trial {
        Err(VmmError::Ended(_) | VmmError::Qemu(QmpError::Ended)) => Err(VmmError::Ended(status)),
        other => other,
    }
}

/// Returns whether the writable memory of a process contains a text.
fn contains(pid: u32, text: &[u8]) -> io::Result<bool> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let memory = File::open(format!("/proc/{pid}/mem"))?;
    let finder = Finder::new(text);
    Ok(maps.lines().filter_map(writable).any(|range| is_in(&memory, &range, &finder)))
}

/// Returns the addresses of a line of `/proc/PID/maps`, if the process may write there.
fn writable(line: &str) -> Option<Range<u64>> {
    let mut words = line.split(' ');
    let (addresses, access) = (words.next()?, words.next()?);
    let (start, end) = addresses.split_once('-')?;
    let address = |text| u64::from_str_radix(text, 16).ok();
    access.starts_with("rw").then_some(address(start)?..address(end)?)
}

/// Searches a range. Parts that cannot be read, such as those of a device, have no text for the host.
fn is_in(memory: &File, range: &Range<u64>, finder: &Finder<'_>) -> bool {
    let mut buffer = vec![0; CHUNK + finder.needle().len()];
    let starts = range.clone().step_by(CHUNK);
    starts.into_iter().any(|start| {
        // A chunk overlaps the next one by the text's length.
        let len = usize::try_from(range.end - start).unwrap_or(usize::MAX).min(buffer.len());
        let read = memory.read_at(&mut buffer[..len], start).unwrap_or(0);
        finder.find(&buffer[..read]).is_some()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_found_across_the_borders_of_chunks() {
        let text: Vec<u8> = (0..40).map(|n| n ^ 0xa5).collect();
        let mut held = vec![0_u8; 3 * CHUNK];
        let memory = File::open("/proc/self/mem").unwrap();
        let start = held.as_ptr() as u64;
        let range = start..start + held.len() as u64;
        for at in [0, CHUNK - 39, CHUNK - 1, CHUNK, 2 * CHUNK - 20, 3 * CHUNK - text.len()] {
            held[at..at + text.len()].copy_from_slice(&text);
            assert!(is_in(&memory, &range, &Finder::new(&text)), "at {at}");
            held[at..at + text.len()].fill(0);
        }
        assert!(!is_in(&memory, &range, &Finder::new(&text)), "the text is gone");
    }

    #[test]
    fn text_is_found_in_a_process_that_has_it() {
        let text = "a text that no other process has";
        let [has, lacks] = [text, "another"].map(|value| {
            let mut sleep = std::process::Command::new("sleep");
            let mut child = sleep.arg("100").env("TEXT", value).spawn().unwrap();
            let found = contains(child.id(), text.as_bytes());
            child.kill().unwrap();
            child.wait().unwrap();
            found.unwrap()
        });
        assert!(has && !lacks);
        assert!(contains(u32::MAX, text.as_bytes()).is_err(), "no such process");
    }

    #[test]
    fn only_writable_memory_is_searched() {
        let line = "7f00-7fff rw-p 00000000 00:00 0 [heap]";
        assert_eq!(writable(line), Some(0x7f00..0x7fff));
        for other in ["7f00-7fff r--p 0 00:00 0", "7f00-7fff ---p", "7f00 rw-p", "x-y rw-p", ""] {
            assert_eq!(writable(other), None, "{other}");
        }
    }
}
