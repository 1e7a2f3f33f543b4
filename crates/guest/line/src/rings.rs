//! The doorbells of channels, whose other ends are on the other side of a serial line.
//!
//! A ring is one byte on a serial line of its own, the number of the doorbell: it never waits behind a
//! control message. A thread passes rings on in both directions. A ring that the other side has not read
//! yet is not repeated, so neither side can fill the other's memory.

use p4shield_channel::Doorbell;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender, channel};

/// A change of the doorbells.
enum Change {
    Add(u8, Doorbell),
    Remove(u8),
}

/// The handle of the thread, which ends when it is dropped.
#[derive(Debug)]
pub struct Rings {
    changes: Sender<Change>,
    wake: Doorbell,
}

impl Rings {
    /// Starts the thread on a line: a socket or a terminal in raw mode.
    ///
    /// # Errors
    /// The thread or its descriptors cannot be created.
    pub fn start(line: OwnedFd) -> std::io::Result<Self> {
        rustix::fs::fcntl_setfl(&line, OFlags::NONBLOCK | OFlags::RDWR)?;
        let (wake, woken) = Doorbell::pair()?;
        let (changes, received) = channel();
        let carrier =
            Carrier { line, woken, changes: received, doorbells: BTreeMap::new(), due: BTreeSet::new() };
        std::thread::Builder::new().name("rings".to_owned()).spawn(|| carrier.run())?;
        Ok(Self { changes, wake })
    }

    /// Adds the doorbell with this number.
    pub fn add(&self, number: u8, doorbell: Doorbell) {
        self.change(Change::Add(number, doorbell));
    }

    /// Removes the doorbell with this number.
    pub fn remove(&self, number: u8) {
        self.change(Change::Remove(number));
    }

    fn change(&self, change: Change) {
        // The thread ends with the line, after which no ring arrives.
        let _ = self.changes.send(change);
        self.wake.ring();
    }
}

/// The state of the thread.
struct Carrier {
    line: OwnedFd,
    woken: Doorbell,
    changes: Receiver<Change>,
    doorbells: BTreeMap<u8, Doorbell>,
    /// Doorbells that rang and whose ring is not on the line yet.
    due: BTreeSet<u8>,
}

impl Carrier {
    /// Runs until the line or the handle is closed.
    fn run(mut self) {
        loop {
            let wanted = if self.due.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
            let mut fds = vec![PollFd::new(&self.line, wanted), PollFd::new(&self.woken, PollFlags::IN)];
            fds.extend(self.doorbells.values().map(|d| PollFd::new(d, PollFlags::IN)));
            match poll(&mut fds, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
            let ready: Vec<_> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            let numbers: Vec<u8> = self.doorbells.keys().copied().collect();
            // First the changes: the other side may ring as soon as a doorbell was added.
            if !self.apply_changes(ready[1]) || (ready[0] && !self.receive_rings()) {
                return;
            }
            for number in numbers.into_iter().zip(&ready[2..]).filter_map(|(n, ready)| ready.then_some(n)) {
                self.send_ring(number);
            }
            if !self.send() {
                return;
            }
        }
    }

    /// Passes the other side's rings on. Returns false if the line is closed.
    fn receive_rings(&self) -> bool {
        let mut rings = [0; 256];
        match rustix::io::read(&self.line, &mut rings) {
            Ok(0) => false,
            Ok(n) => {
                let rung: BTreeSet<_> = rings[..n].iter().collect();
                for doorbell in rung.iter().filter_map(|n| self.doorbells.get(n)) {
                    doorbell.ring();
                }
                true
            }
            Err(Errno::AGAIN | Errno::INTR) => true,
            Err(_) => false,
        }
    }

    /// Notes a ring for the other side. A doorbell whose other end is closed would ring for ever.
    fn send_ring(&mut self, number: u8) {
        let Some(doorbell) = self.doorbells.get(&number) else { return };
        self.due.insert(number);
        if !doorbell.drain() {
            self.doorbells.remove(&number);
        }
    }

    /// Returns false if the handle is gone.
    fn apply_changes(&mut self, woken: bool) -> bool {
        let open = !woken || self.woken.drain();
        while let Ok(change) = self.changes.try_recv() {
            match change {
                Change::Add(number, doorbell) => drop(self.doorbells.insert(number, doorbell)),
                Change::Remove(number) => drop(self.doorbells.remove(&number)),
            }
        }
        open
    }

    /// Sends the due rings, as many as the line takes. Returns false if the line is closed.
    fn send(&mut self) -> bool {
        let due: Vec<u8> = self.due.iter().copied().collect();
        if due.is_empty() {
            return true;
        }
        match rustix::io::write(&self.line, &due) {
            Ok(n) => {
                self.due.retain(|number| !due[..n].contains(number));
                true
            }
            Err(Errno::AGAIN | Errno::INTR) => true,
            Err(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    fn wait(what: &str, mut done: impl FnMut() -> bool) {
        let end = Instant::now() + Duration::from_secs(10);
        while !done() {
            assert!(Instant::now() < end, "{what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn rang(doorbell: &Doorbell) -> bool {
        let mut fds = [PollFd::new(doorbell, PollFlags::IN)];
        let none = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&none)) == Ok(1)
    }

    #[test]
    fn rings_reach_the_other_end_of_their_doorbell() {
        let (ours, mut other) = UnixStream::pair().unwrap();
        let rings = Rings::start(ours.into()).unwrap();
        let (first, theirs) = Doorbell::pair().unwrap();
        rings.add(3, theirs);
        let (second, theirs) = Doorbell::pair().unwrap();
        rings.add(200, theirs);
        other.write_all(&[200, 9]).unwrap();
        wait("the ring from the line", || rang(&second));
        assert!(!rang(&first), "another doorbell");
        first.ring();
        let mut byte = [0];
        other.read_exact(&mut byte).unwrap();
        assert_eq!(byte, [3]);
        rings.remove(3);
        wait("the removal", || !first.ring());
        drop(rings);
        assert_eq!(other.read(&mut byte).unwrap(), 0, "the thread has ended");
    }

    #[test]
    fn a_side_that_does_not_read_costs_no_memory() {
        let (ours, other) = UnixStream::pair().unwrap();
        let rings = Rings::start(ours.into()).unwrap();
        let (first, theirs) = Doorbell::pair().unwrap();
        rings.add(0, theirs);
        for _ in 0..300_000 {
            first.ring();
        }
        rings.remove(0);
        wait("the removal", || !first.ring());
        drop((rings, other));
    }
}
