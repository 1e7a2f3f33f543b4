//! The port of the controller: packets that leave by it wait in memory for clients of the switch, and clients
//! put packets there that arrive at the switch.
//!
//! The last [`KEPT`] packets to the controller stay, so that each of several clients gets all of them. Later
//! packets overwrite the oldest: the switch never waits for a client. Nothing here allocates after
//! [`Controller::new`].

use std::collections::VecDeque;

use p4shield_abi::channel::MAX_HEADER_BYTES;

/// Packets to the controller that are kept.
pub const KEPT: usize = 256;
/// Most packets from the controller that have not arrived.
pub const PENDING: usize = 64;
/// Bytes of an Ethernet header, the shortest packet.
const SHORTEST: usize = 14;

/// The port.
#[derive(Debug)]
pub struct Controller {
    /// The packet of a number is at that number modulo [`KEPT`].
    kept: Vec<Vec<u8>>,
    /// Packets to the controller so far.
    sent: u64,
    pending: VecDeque<Vec<u8>>,
    spare: Vec<Vec<u8>>,
}

/// Packets to the controller, with memory for a few.
#[derive(Debug)]
pub struct Sent {
    /// The number of the first packet to copy, and then of the one behind the last.
    pub next: u64,
    /// Packets to the controller so far.
    pub total: u64,
    /// Copied packets; only the first `count` are.
    packets: Vec<Vec<u8>>,
    count: usize,
}

impl Sent {
    /// Packets that are copied at once.
    const MOST: usize = 8;

    /// Allocates memory for packets from this number on.
    #[must_use]
    pub fn new(next: u64) -> Self {
        Self { next, total: 0, packets: buffers(Self::MOST), count: 0 }
    }

    /// Returns the copied packets.
    pub fn packets(&self) -> impl Iterator<Item = &[u8]> {
        self.packets[..self.count].iter().map(Vec::as_slice)
    }
}

fn buffers(count: usize) -> Vec<Vec<u8>> {
    std::iter::repeat_with(|| Vec::with_capacity(MAX_HEADER_BYTES as usize)).take(count).collect()
}

fn fill(buffer: &mut Vec<u8>, bytes: &[u8]) {
    buffer.clear();
    buffer.extend_from_slice(bytes);
}

impl Default for Controller {
    fn default() -> Self {
        Self::new()
    }
}

impl Controller {
    /// Allocates the port's memory.
    #[must_use]
    pub fn new() -> Self {
        let pending = VecDeque::with_capacity(PENDING);
        Self { kept: buffers(KEPT), sent: 0, pending, spare: buffers(PENDING) }
    }

    /// Keeps a packet to the controller. Returns false if it is too long or too short to be one.
    pub(crate) fn send(&mut self, packet: &[u8]) -> bool {
        if !(SHORTEST..=MAX_HEADER_BYTES as usize).contains(&packet.len()) {
            return false;
        }
        fill(&mut self.kept[(self.sent % KEPT as u64) as usize], packet);
        self.sent += 1;
        true
    }

    /// Passes packets on that the controller has put here.
    pub(crate) fn receive(&mut self, most: usize, mut each: impl FnMut(&[u8])) -> usize {
        let count = self.pending.len().min(most);
        for packet in self.pending.drain(..count) {
            each(&packet);
            self.spare.push(packet);
        }
        count
    }

    /// Copies packets to the controller, from `sent.next` on. Those that later ones have overwritten are left
    /// out.
    pub fn copy(&self, sent: &mut Sent) {
        let oldest = self.sent.saturating_sub(KEPT as u64);
        let first = sent.next.clamp(oldest, self.sent);
        let last = self.sent.min(first + Sent::MOST as u64);
        sent.count = 0;
        for (number, buffer) in (first..last).zip(&mut sent.packets) {
            fill(buffer, &self.kept[(number % KEPT as u64) as usize]);
            sent.count += 1;
        }
        (sent.next, sent.total) = (last, self.sent);
    }

    /// Puts a packet of the controller here. Returns false if it is too long, or if too many wait.
    pub fn put(&mut self, packet: &[u8]) -> bool {
        if packet.len() > MAX_HEADER_BYTES as usize {
            return false;
        }
        let Some(mut buffer) = self.spare.pop() else { return false };
        fill(&mut buffer, packet);
        self.pending.push_back(buffer);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(number: u8) -> [u8; SHORTEST] {
        [number; SHORTEST]
    }

    /// Returns the first bytes of packets from a number on, and the next number.
    fn copied(controller: &Controller, from: u64) -> (Vec<u8>, u64) {
        let mut sent = Sent::new(from);
        controller.copy(&mut sent);
        (sent.packets().map(|p| p[0]).collect(), sent.next)
    }

    #[test]
    fn each_client_gets_the_packets_from_its_place_on() {
        let mut controller = Controller::new();
        assert_eq!(copied(&controller, 0), (vec![], 0));
        (0..10).for_each(|n| assert!(controller.send(&packet(n))));
        assert_eq!(copied(&controller, 0), ((0..8).collect(), 8));
        assert_eq!(copied(&controller, 8), (vec![8, 9], 10));
        assert_eq!(copied(&controller, 10), (vec![], 10));
        assert_eq!(copied(&controller, u64::MAX), (vec![], 10));
    }

    #[test]
    fn later_packets_overwrite_the_oldest() {
        let mut controller = Controller::new();
        for n in 0..=KEPT {
            controller.send(&packet((n % 251) as u8));
        }
        assert_eq!(copied(&controller, 0), ((1..9).collect(), 9));
    }

    #[test]
    fn packets_of_the_controller_arrive_in_order_and_once() {
        let mut controller = Controller::new();
        for n in 0..PENDING {
            assert!(controller.put(&packet(n as u8)));
        }
        assert!(!controller.put(&packet(0)), "too many wait");
        let mut arrived = Vec::new();
        assert_eq!(controller.receive(40, |p| arrived.push(p[0])), 40);
        assert_eq!(controller.receive(40, |p| arrived.push(p[0])), PENDING - 40);
        assert_eq!(arrived, (0..PENDING as u8).collect::<Vec<_>>());
        assert!(controller.put(&packet(0)));
    }

    #[test]
    fn packets_of_no_possible_length_are_lost() {
        let mut controller = Controller::new();
        assert!(!controller.send(&[0; SHORTEST - 1]));
        assert!(!controller.send(&[0; MAX_HEADER_BYTES as usize + 1]));
        assert!(!controller.put(&[0; MAX_HEADER_BYTES as usize + 1]));
    }
}
