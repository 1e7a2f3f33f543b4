//! How threads share the queues of a port: each has some of them for itself.

use crate::numbers::Way;

/// The threads that share a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The number of threads, at least one.
    pub threads: usize,
    /// The thread of the first queue. Another one for each port lets ports with fewer queues than there are
    /// threads keep all of them busy.
    pub first: usize,
}

impl Share {
    /// One thread has everything.
    pub const ALONE: Self = Self { threads: 1, first: 0 };

    /// Returns how many threads get queues, if there are this many to receive from.
    #[must_use]
    pub fn receivers(self, queues: usize) -> usize {
        self.threads.min(queues).max(1)
    }

    /// Returns the thread with a place among those that get queues: that of queue `n` has place `n` modulo
    /// their number.
    #[must_use]
    pub const fn thread(self, place: usize) -> usize {
        (self.first + place) % self.threads
    }

    /// Returns the place of a thread among those that get queues, or behind them.
    #[must_use]
    pub const fn place(self, thread: usize) -> usize {
        (thread + self.threads - self.first % self.threads) % self.threads
    }

    /// Returns the way of each thread to the port, with this many threads that receive and this many queues
    /// to send by.
    #[must_use]
    pub fn ways(self, receivers: usize, transmit_queues: usize) -> Vec<Way> {
        let senders = receivers.min(transmit_queues).max(1);
        let way = |thread: usize| {
            let place = self.place(thread);
            let other = u8::try_from(self.thread(place % senders)).ok();
            Way { thread: other.filter(|_| place >= senders), has_queue: place == 0 }
        };
        (0..self.threads).map(way).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the thread to which each one hands packets.
    fn others(share: Share, receive: usize, transmit: usize) -> Vec<Option<u8>> {
        share.ways(share.receivers(receive), transmit).iter().map(|way| way.thread).collect()
    }

    #[test]
    fn each_thread_sends_by_a_queue_of_its_own_if_there_is_one() {
        let share = |threads, first| Share { threads, first };
        assert_eq!(others(Share::ALONE, 8, 8), [None]);
        assert_eq!(others(share(2, 0), 2, 2), [None, None]);
        assert_eq!(others(share(2, 0), 1, 1), [None, Some(0)]);
        assert_eq!(others(share(2, 3), 1, 1), [Some(1), None]);
        assert_eq!(others(share(4, 1), 2, 2), [Some(2), None, None, Some(1)]);
        assert_eq!(others(share(3, 0), 8, 1), [None, Some(0), Some(0)]);
        assert_eq!(others(share(2, 1), 4, 0), [Some(1), None]);
    }

    #[test]
    fn one_thread_serves_the_queue_of_a_port() {
        for (threads, first) in [(1, 0), (2, 1), (5, 9)] {
            let ways = Share { threads, first }.ways(1, 1);
            let own: Vec<_> = ways.iter().map(|w| w.has_queue && w.thread.is_none()).collect();
            assert_eq!(own.iter().position(|own| *own), Some(first % threads));
            assert_eq!(own.iter().filter(|own| **own).count(), 1);
        }
    }
}
