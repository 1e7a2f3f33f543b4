//! The channels of a P4 VM, those with traffic apart.
//!
//! Each receive queue of a switch has a channel of its own to each tenant, and most of them are idle most of the time. A
//! look at an idle channel is a cache line and a page that nothing else needs, so one that has been quiet for some
//! rounds is looked at by turns: a few each round while others have packets, all of them when there is nothing else
//! to do. How many are idle then hardly matters to those that are not.

use super::judge::Served;
use p4shield_channel::Sleeper;
use p4shield_channel::futex::FutexWait;

/// Rounds without a packet after which a channel counts as quiet.
const QUIET: u8 = 32;
/// Quiet channels that are looked at in a round in which others have packets: at least so many,
const PROBES: usize = 8;
/// and at least one in so many, so that the first packet of a quiet channel waits for no more rounds than that.
const TURNS: usize = 16;

/// Whatever can announce sleep, as one.
#[derive(Default)]
pub(super) struct Ends {
    pub(super) channels: Vec<Served>,
    /// Indexes of the channels that are looked at each round.
    busy: Vec<usize>,
    /// The quiet channel that was looked at last.
    probed: usize,
    /// Sleep is announced at words and not at doorbells.
    at_words: bool,
}

impl Ends {
    /// Room for as many.
    pub(super) fn with_capacity(most: usize) -> Self {
        let (channels, busy) = (Vec::with_capacity(most), Vec::with_capacity(most));
        Self { channels, busy, probed: 0, at_words: false }
    }

    /// Has mediators wake us at words from the next announcement on, or by doorbells.
    pub(super) fn sleep_at_words(&mut self, at_words: bool) {
        self.at_words = at_words;
    }

    /// The words where sleep was announced.
    pub(super) fn words(&self) -> impl Iterator<Item = FutexWait<'_>> {
        self.channels.iter().map(|c| c.judge.futex())
    }

    /// Adds a channel.
    pub(super) fn add(&mut self, channel: Served) {
        self.channels.push(channel);
        self.all_busy();
    }

    /// Takes a channel away; the last one gets its index.
    pub(super) fn remove(&mut self, index: usize) -> Served {
        let channel = self.channels.swap_remove(index);
        self.all_busy();
        channel
    }

    fn all_busy(&mut self) {
        self.busy.clear();
        self.busy.extend(0..self.channels.len());
        self.channels.iter_mut().for_each(|c| c.quiet = 0);
    }

    /// Fetches a batch of each channel that is looked at. True if there was anything.
    #[inline]
    pub(super) fn fetch(&mut self) -> bool {
        let mut any = false;
        let channels = &mut self.channels;
        self.busy.retain(|i| {
            let channel = &mut channels[*i];
            let fetched = channel.fetch();
            any |= fetched;
            channel.quiet = if fetched { 0 } else { channel.quiet + 1 };
            channel.quiet < QUIET
        });
        let quiet = self.channels.len() - self.busy.len();
        if quiet != 0 {
            any |= self.probe(if any { PROBES.max(quiet / TURNS) } else { quiet });
        }
        any
    }

    /// Looks at this many of the quiet channels, by turns.
    fn probe(&mut self, mut looks: usize) -> bool {
        let mut any = false;
        // Where most are busy, not all of those are passed over to find the few that are quiet.
        for _ in 0..(4 * looks).min(self.channels.len()) {
            if looks == 0 {
                break;
            }
            self.probed = (self.probed + 1) % self.channels.len();
            let channel = &mut self.channels[self.probed];
            if channel.quiet < QUIET {
                continue;
            }
            looks -= 1;
            if channel.fetch() {
                channel.quiet = 0;
                self.busy.push(self.probed);
                any = true;
            }
        }
        any
    }

    /// Whether packets that were judged have been sent since this was asked.
    pub(super) fn are_sent(&mut self) -> bool {
        let Self { channels, busy, .. } = self;
        busy.iter().any(|i| channels[*i].is_sent())
    }

    /// Each channel with packets that were fetched, and its index.
    #[inline]
    pub(super) fn each(&mut self, mut work: impl FnMut(usize, &mut Served)) {
        for i in &self.busy {
            let channel = &mut self.channels[*i];
            if !channel.is_empty() {
                work(*i, channel);
            }
        }
    }
}

impl Sleeper for Ends {
    fn announce(&mut self) -> bool {
        for i in 0..self.channels.len() {
            let judge = &mut self.channels[i].judge;
            if !(if self.at_words { judge.announce_at_futex() } else { judge.announce() }) {
                self.channels[..i].iter_mut().for_each(|c| c.judge.retract());
                return false;
            }
        }
        true
    }

    fn retract(&mut self) {
        self.channels.iter_mut().for_each(|c| c.judge.retract());
    }
}
