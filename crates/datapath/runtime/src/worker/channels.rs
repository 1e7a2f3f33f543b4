//! The channels of a P4 VM, of which the quiet ones are polled less often.
//!
//! Each lane of a switch has a channel of its own to each tenant, and most channels are idle most of the
//! time. Polling an idle channel takes a cache line and a page that nothing else needs. A channel that has
//! been quiet for some rounds is therefore polled by turns: a few each round while other channels have
//! packets, all of them otherwise. Idle channels thus hardly delay the busy ones.

use super::serve::ServedChannel;
use p4shield_channel::Sleeper;
use p4shield_channel::futex::FutexWait;

/// Rounds without a packet after which a channel is quiet.
const QUIET: u8 = 32;
/// Fewest quiet channels polled in a round in which other channels have packets.
const MIN_PROBES: usize = 8;
/// Most rounds that the first packet of a quiet channel waits: each round polls at least this fraction of
/// them.
const MAX_PROBE_ROUNDS: usize = 16;

/// The channels.
#[derive(Default)]
pub(super) struct ServedChannels {
    pub(super) all: Vec<ServedChannel>,
    /// Indexes of the channels that are polled in each round.
    busy: Vec<usize>,
    /// The quiet channel that was polled last.
    probed: usize,
    /// Whether the worker announces its sleep at futexes rather than at doorbells.
    at_futexes: bool,
    /// Least header bytes of a channel since the last log record; `None` if there was no channel.
    least_header_bytes: Option<u32>,
}

impl ServedChannels {
    /// Returns an empty set with room for `most` channels.
    pub(super) fn with_capacity(most: usize) -> Self {
        let (all, busy) = (Vec::with_capacity(most), Vec::with_capacity(most));
        Self { all, busy, probed: 0, at_futexes: false, least_header_bytes: None }
    }

    /// Selects futexes or doorbells for the following announcements of sleep.
    pub(super) fn sleep_at_futexes(&mut self, at_futexes: bool) {
        self.at_futexes = at_futexes;
    }

    /// Returns the futexes at which sleep was announced.
    pub(super) fn futexes(&self) -> impl Iterator<Item = FutexWait<'_>> {
        self.all.iter().map(|c| c.responder.futex())
    }

    /// Adds a channel.
    pub(super) fn add(&mut self, channel: ServedChannel) {
        let header_bytes = channel.header_bytes();
        let least = self.least_header_bytes.map_or(header_bytes, |least| least.min(header_bytes));
        self.least_header_bytes = Some(least);
        self.all.push(channel);
        self.all_busy();
    }

    /// Returns the header bytes that the next log record states: the least of all channels since the last
    /// record, so that a host cannot attach a shorter one between two records; 0 without a channel.
    pub(super) fn header_bytes(&self) -> u32 {
        self.least_header_bytes.unwrap_or(0)
    }

    /// A record stated [`Self::header_bytes`].
    pub(super) fn header_bytes_recorded(&mut self) {
        self.least_header_bytes = self.all.iter().map(ServedChannel::header_bytes).min();
    }

    /// Removes a channel; the last channel gets its index.
    pub(super) fn remove(&mut self, index: usize) -> ServedChannel {
        let channel = self.all.swap_remove(index);
        self.all_busy();
        channel
    }

    fn all_busy(&mut self) {
        self.busy.clear();
        self.busy.extend(0..self.all.len());
        self.all.iter_mut().for_each(|c| c.quiet = 0);
    }

    /// Fetches a batch from each channel that is polled in this round. Returns whether there were packets.
    #[inline]
    pub(super) fn fetch(&mut self) -> bool {
        let mut any = false;
        let channels = &mut self.all;
        self.busy.retain(|i| {
            let channel = &mut channels[*i];
            let fetched = channel.fetch();
            any |= fetched;
            channel.quiet = if fetched { 0 } else { channel.quiet + 1 };
            channel.quiet < QUIET
        });
        let quiet = self.all.len() - self.busy.len();
        if quiet != 0 {
            any |= self.probe(if any { MIN_PROBES.max(quiet / MAX_PROBE_ROUNDS) } else { quiet });
        }
        any
    }

    /// Polls `count` of the quiet channels, by turns. Returns whether there were packets.
    fn probe(&mut self, mut count: usize) -> bool {
        let mut any = false;
        // Bounded: where most channels are busy, the search for quiet ones may end early.
        for _ in 0..(4 * count).min(self.all.len()) {
            if count == 0 {
                break;
            }
            self.probed = (self.probed + 1) % self.all.len();
            let channel = &mut self.all[self.probed];
            if channel.quiet < QUIET {
                continue;
            }
            count -= 1;
            if channel.fetch() {
                channel.quiet = 0;
                self.busy.push(self.probed);
                any = true;
            }
        }
        any
    }

    /// Returns whether an attachment has sent judged packets since the last call.
    pub(super) fn take_sent(&mut self) -> bool {
        let Self { all: channels, busy, .. } = self;
        busy.iter().any(|i| channels[*i].take_sent())
    }

    /// Calls `work` with each channel that has fetched packets, and its index.
    #[inline]
    pub(super) fn for_each_fetched(&mut self, mut work: impl FnMut(usize, &mut ServedChannel)) {
        for i in &self.busy {
            let channel = &mut self.all[*i];
            if !channel.is_empty() {
                work(*i, channel);
            }
        }
    }
}

impl Sleeper for ServedChannels {
    fn announce(&mut self) -> bool {
        for i in 0..self.all.len() {
            let responder = &mut self.all[i].responder;
            if !(if self.at_futexes { responder.announce_at_futex() } else { responder.announce() }) {
                self.all[..i].iter_mut().for_each(|c| c.responder.retract());
                return false;
            }
        }
        true
    }

    fn retract(&mut self) {
        self.all.iter_mut().for_each(|c| c.responder.retract());
    }
}
