//! How long a thread sleeps that polls devices which receive nothing.

use std::time::Duration;

/// Rounds without a packet after which a thread sleeps: about a tenth of a millisecond.
const BUSY: u32 = 1024;
/// Its sleep. The kernel may add as much again.
const PAUSE: Duration = Duration::from_micros(50);
/// The rounds since a packet was received.
#[derive(Debug, Default)]
pub(crate) struct Idle {
    rounds: u32,
}

impl Idle {
    /// Notes that so many packets were received.
    #[inline]
    pub(crate) const fn note(&mut self, received: usize) {
        if received > 0 {
            self.rounds = 0;
        }
    }

    /// Returns how long the thread may sleep after another round without a packet. Packets that a device has
    /// not taken keep it awake only at first, too: the device may never take them.
    pub(crate) const fn pause(&mut self, has_staged: bool) -> Duration {
        self.rounds = self.rounds.saturating_add(1);
        let busy = if has_staged { 2 * BUSY } else { BUSY };
        if self.rounds < busy { Duration::ZERO } else { PAUSE }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_thread_sleeps_until_a_packet_comes() {
        let mut idle = Idle::default();
        let awake = (0..).take_while(|_| idle.pause(false).is_zero()).count();
        assert_eq!(awake as u32, BUSY - 1);
        assert_eq!(idle.pause(false), PAUSE);
        idle.note(0);
        assert_eq!(idle.pause(false), PAUSE);
        idle.note(1);
        assert!(idle.pause(false).is_zero());
    }

    #[test]
    fn staged_packets_do_not_keep_a_thread_awake_for_ever() {
        let mut idle = Idle::default();
        assert_eq!((0..).take_while(|_| idle.pause(true).is_zero()).count() as u32, 2 * BUSY - 1);
    }
}
