//! What a thread sleeps for: descriptors and a time limit.

use std::os::fd::RawFd;

use libc::{c_int, nfds_t, pollfd, sigset_t, timespec};

use crate::next_libc;

/// The number of descriptors that need no heap memory.
const INLINE: usize = 16;
const UNUSED: pollfd = pollfd { fd: -1, events: 0, revents: 0 };

/// The descriptors and the time limit of one `ppoll`.
#[derive(Debug)]
pub(crate) struct PollSet {
    inline: [pollfd; INLINE],
    /// All entries, once there are more than [`INLINE`].
    heap: Vec<pollfd>,
    len: usize,
    /// Nanoseconds that the thread may sleep; `None` without a limit.
    pub(crate) timeout: Option<u64>,
}

impl PollSet {
    /// Creates an empty set.
    pub(crate) const fn new(timeout: Option<u64>) -> Self {
        Self { inline: [UNUSED; INLINE], heap: Vec::new(), len: 0, timeout }
    }

    /// Shortens the time limit to `nanoseconds` if it is longer.
    pub(crate) fn limit(&mut self, nanoseconds: u64) {
        self.timeout = Some(self.timeout.map_or(nanoseconds, |t| t.min(nanoseconds)));
    }

    /// Adds a descriptor and the events to wait for.
    pub(crate) fn watch(&mut self, fd: RawFd, events: i16) {
        let entry = pollfd { fd, events, revents: 0 };
        if let Some(free) = self.inline.get_mut(self.len) {
            *free = entry;
        } else {
            if self.heap.is_empty() {
                self.heap.extend_from_slice(&self.inline);
            }
            self.heap.push(entry);
        }
        self.len += 1;
    }

    /// Returns all entries, in the order in which they were added.
    pub(crate) fn entries(&mut self) -> &mut [pollfd] {
        if self.heap.is_empty() { &mut self.inline[..self.len] } else { &mut self.heap }
    }

    /// Calls `ppoll` and returns its result.
    pub(crate) fn poll(&mut self, mask: Option<&sigset_t>) -> c_int {
        let timeout = self.timeout.map(|t| timespec {
            tv_sec: (t / 1_000_000_000) as libc::time_t,
            tv_nsec: (t % 1_000_000_000) as libc::c_long,
        });
        let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let mask = mask.map_or(std::ptr::null(), std::ptr::from_ref);
        let set = self.entries();
        // SAFETY: a slice of entries, and a timeout and a mask that are null or live.
        unsafe { next_libc::ppoll()(set.as_mut_ptr(), set.len() as nfds_t, timeout, mask) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_descriptors_is_kept_in_order() {
        let mut set = PollSet::new(None);
        for fd in 0..3 * INLINE as RawFd {
            set.watch(fd, libc::POLLIN);
            assert!(set.entries().iter().map(|p| p.fd).eq(0..=fd));
        }
        set.limit(7);
        set.limit(9);
        assert_eq!(set.timeout, Some(7));
    }
}
