//! Links between packet threads: packets for ports that another thread sends by.
//!
//! A thread copies such a packet into a buffer, and pushes that to the thread of the port, which pushes it
//! back when it is sent. The rings are wait-free, and the buffers allocated when they are made. A packet that
//! finds no buffer is dropped, as one that a device has no room for.

use p4shield_abi::channel::MAX_HEADER_BYTES;
use p4shield_mailbox::Doze;
use rtrb::{Consumer, Producer, RingBuffer};
use std::fmt;
use std::sync::Arc;

/// Most packet threads of a switch.
pub const MAX_THREADS: usize = 16;
/// Most packets on the way to a thread, of all others: for some milliseconds in which it has no processor.
const ON_THE_WAY: usize = 4096;

/// Wakes a packet thread that sleeps.
pub type Bell = Arc<dyn Fn() + Send + Sync>;

/// A packet on its way.
#[derive(Debug)]
pub(crate) struct Handed {
    /// Number of the port.
    pub(crate) port: u16,
    pub(crate) bytes: Vec<u8>,
}

/// The way to another thread.
struct Outgoing {
    full: Producer<Handed>,
    spare: Consumer<Handed>,
    doze: Arc<Doze>,
    bell: Bell,
    /// Packets were pushed in this round.
    is_used: bool,
}

/// The way from another thread.
struct Incoming {
    full: Consumer<Handed>,
    spare: Producer<Handed>,
}

/// The links of a thread with all others; without any, the switch has one thread.
#[derive(Default)]
pub struct Links {
    /// By number of the thread; `None` for this one.
    to: Vec<Option<Outgoing>>,
    from: Vec<Incoming>,
    doze: Arc<Doze>,
}

/// Links threads with each other, which these bells wake. Returns the links of each.
#[must_use]
pub fn link(bells: &[Bell]) -> Vec<Links> {
    let mut all: Vec<Links> = bells.iter().map(|_| Links::default()).collect();
    let depth = ON_THE_WAY / bells.len().max(1);
    for from in 0..bells.len() {
        for (to, bell) in bells.iter().enumerate() {
            if from == to {
                all[from].to.push(None);
                continue;
            }
            let (full, taken) = RingBuffer::new(depth);
            let (mut returned, spare) = RingBuffer::new(depth);
            for _ in 0..depth {
                let bytes = Vec::with_capacity(MAX_HEADER_BYTES as usize);
                // The ring has room for each.
                let _ = returned.push(Handed { port: 0, bytes });
            }
            let (doze, bell) = (Arc::clone(&all[to].doze), Arc::clone(bell));
            all[from].to.push(Some(Outgoing { full, spare, doze, bell, is_used: false }));
            all[to].from.push(Incoming { full: taken, spare: returned });
        }
    }
    all
}

impl Links {
    /// Returns whether there is no other thread.
    #[inline]
    pub(crate) const fn is_alone(&self) -> bool {
        self.to.is_empty()
    }

    /// Hands a packet for a port to its thread. Returns false if that has too many already.
    pub(crate) fn push(&mut self, thread: u8, port: u16, packet: &[u8]) -> bool {
        let Some(link) = self.to.get_mut(usize::from(thread)).and_then(Option::as_mut) else { return false };
        let Ok(mut handed) = link.spare.pop() else { return false };
        handed.port = port;
        handed.bytes.clear();
        handed.bytes.extend_from_slice(packet);
        link.is_used = true;
        // There are as many buffers as places.
        link.full.push(handed).is_ok()
    }

    /// Takes up to `most` packets of each other thread, and calls `each` with them. Returns their number.
    pub(crate) fn take(&mut self, most: usize, mut each: impl FnMut(&Handed)) -> usize {
        let mut count = 0;
        for link in &mut self.from {
            for _ in 0..most {
                let Ok(handed) = link.full.pop() else { break };
                each(&handed);
                count += 1;
                // There are as many places as buffers.
                let _ = link.spare.push(handed);
            }
        }
        count
    }

    /// Wakes the threads that sleep and got packets in this round.
    pub(crate) fn wake(&mut self) {
        for link in self.to.iter_mut().flatten() {
            if std::mem::take(&mut link.is_used) && link.doze.end() {
                (link.bell)();
            }
        }
    }

    /// Returns the packets on their way to this thread.
    #[cfg(any(test, feature = "fuzz"))]
    pub(crate) fn waiting(&self) -> u64 {
        self.from.iter().map(|link| link.full.slots() as u64).sum()
    }

    /// Announces that this thread is about to sleep. Returns false if it got packets meanwhile.
    pub(crate) fn doze(&self) -> bool {
        self.doze.begin();
        self.from.iter().all(|link| link.full.is_empty())
    }

    /// Says that this thread does not sleep.
    pub(crate) fn awake(&self) {
        let _announced = self.doze.end();
    }
}

impl fmt::Debug for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Links").field("threads", &self.to.len()).finish_non_exhaustive()
    }
}
