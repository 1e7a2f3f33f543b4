//! Ports in memory: one that always has packets, and discards what it sends. They cost as good as nothing, so
//! that the switch and its program are measured, and no driver.

use p4shield_switch::PacketIo;
use std::convert::Infallible;
use std::hint::black_box;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Two ports that receive the same packets over and over.
pub(super) struct MemoryPorts {
    packets: Vec<[u8; super::PACKET_BYTES]>,
    next: usize,
}

impl MemoryPorts {
    pub(super) const fn new(packets: Vec<[u8; super::PACKET_BYTES]>) -> Self {
        Self { packets, next: 0 }
    }
}

impl PacketIo for MemoryPorts {
    type Error = Infallible;

    fn ports(&self) -> usize {
        2
    }

    fn receive(&mut self, _: usize, most: usize, mut each: impl FnMut(&[u8])) -> Result<usize, Infallible> {
        for _ in 0..most {
            each(&self.packets[self.next]);
            self.next = (self.next + 1) % self.packets.len();
        }
        Ok(most)
    }

    fn send(&mut self, _: usize, packet: &[u8]) -> bool {
        let _ = black_box(packet);
        true
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }

    fn wait(&mut self, _: Duration, _: Option<BorrowedFd<'_>>) -> Result<(), Infallible> {
        Ok(())
    }
}
