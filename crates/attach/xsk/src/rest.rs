//! What a thread sleeps for: descriptors, and a time.

use std::os::fd::RawFd;

use libc::pollfd;

/// Descriptors that need no memory from the heap.
const FEW: usize = 16;
const NOBODY: pollfd = pollfd { fd: -1, events: 0, revents: 0 };

/// Gathered from all that a thread sleeps for.
#[derive(Debug)]
pub(crate) struct Rest {
    few: [pollfd; FEW],
    /// All of them, once there are more than few.
    many: Vec<pollfd>,
    len: usize,
    /// Nanoseconds that it may sleep; none is for good.
    pub(crate) time: Option<u64>,
}

impl Rest {
    /// At most this long; none is for good.
    pub(crate) const fn new(time: Option<u64>) -> Self {
        Self { few: [NOBODY; FEW], many: Vec::new(), len: 0, time }
    }

    /// No longer than this.
    pub(crate) fn at_most(&mut self, time: u64) {
        self.time = Some(self.time.map_or(time, |t| t.min(time)));
    }

    /// Until there is one of these events, too.
    pub(crate) fn watch(&mut self, fd: RawFd, events: i16) {
        let entry = pollfd { fd, events, revents: 0 };
        if let Some(free) = self.few.get_mut(self.len) {
            *free = entry;
        } else {
            if self.many.is_empty() {
                self.many.extend_from_slice(&self.few);
            }
            self.many.push(entry);
        }
        self.len += 1;
    }

    /// All descriptors, in the order in which they came, for `poll`.
    pub(crate) fn entries(&mut self) -> &mut [pollfd] {
        if self.many.is_empty() { &mut self.few[..self.len] } else { &mut self.many }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_descriptors_is_kept_in_order() {
        let mut rest = Rest::new(None);
        for fd in 0..3 * FEW as RawFd {
            rest.watch(fd, libc::POLLIN);
            assert!(rest.entries().iter().map(|p| p.fd).eq(0..=fd));
        }
        rest.at_most(7);
        rest.at_most(9);
        assert_eq!(rest.time, Some(7));
    }
}
