//! Both ends of a handshake page ([`p4shield_abi::handshake_page`]).

use super::reader::PageReader;
use super::writer::PageWriter;
use crate::error::{ChannelError, PageFault};
use crate::memory::{LINE, Memory};
use crate::shm::SharedMemory;
use p4shield_abi::handshake_page::{
    FROM_P4VM_MAGIC, FROM_VM_MAGIC, HALF_SIZE, HALF_SLOT_STRIDE, HALF_SLOTS, HANDSHAKE_PAGE_SIZE,
    MESSAGE_ROOM,
};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const _: () = assert!(HALF_SIZE.is_multiple_of(LINE));

/// One half of the page.
#[derive(Debug)]
struct Half<M> {
    memory: Arc<M>,
    /// Offset of the half.
    start: usize,
}

impl<M> Half<M> {
    /// Returns the offset in the page of offset `at` in the half, where `len` bytes are accessed.
    fn at(&self, at: usize, len: usize) -> usize {
        assert!(at <= HALF_SIZE && len <= HALF_SIZE - at, "{len} bytes at {at} are outside of the half");
        self.start + at
    }
}

impl<M> Clone for Half<M> {
    fn clone(&self) -> Self {
        Self { memory: Arc::clone(&self.memory), start: self.start }
    }
}

impl<M: Memory> Memory for Half<M> {
    fn len(&self) -> usize {
        HALF_SIZE
    }

    fn load_u32(&self, at: usize, order: Ordering) -> u32 {
        self.memory.load_u32(self.at(at, 4), order)
    }

    fn store_u32(&self, at: usize, value: u32, order: Ordering) {
        self.memory.store_u32(self.at(at, 4), value, order);
    }

    fn load_u64(&self, at: usize, order: Ordering) -> u64 {
        self.memory.load_u64(self.at(at, 8), order)
    }

    fn store_u64(&self, at: usize, value: u64, order: Ordering) {
        self.memory.store_u64(self.at(at, 8), value, order);
    }

    fn copy_out(&self, at: usize, to: &mut [u8]) {
        self.memory.copy_out(self.at(at, to.len()), to);
    }

    fn copy_in(&self, at: usize, from: &[u8]) {
        self.memory.copy_in(self.at(at, from.len()), from);
    }

    fn fence(order: Ordering) {
        M::fence(order);
    }
}

/// One party's end of a handshake page: it sends messages in its own half, and receives the other party's.
///
/// The host relays the page, or is its other party. Sending and receiving never wait, and cost a copy of at
/// most one message whatever the page contains.
#[derive(Debug)]
pub struct HandshakePage<M = SharedMemory> {
    own: Half<M>,
    own_magic: u64,
    writer: PageWriter<Half<M>>,
    reader: PageReader<Half<M>>,
    /// Publications of the other party when this one received last.
    received: u64,
    buffer: Box<[u8]>,
}

impl<M: Memory> HandshakePage<M> {
    /// The user VM's end.
    ///
    /// # Errors
    /// If the region is smaller than a handshake page.
    pub fn of_user_vm(memory: M) -> Result<Self, ChannelError> {
        Self::new(memory, (0, FROM_VM_MAGIC), (HALF_SIZE, FROM_P4VM_MAGIC))
    }

    /// The P4 VM's end.
    ///
    /// # Errors
    /// If the region is smaller than a handshake page.
    pub fn of_p4_vm(memory: M) -> Result<Self, ChannelError> {
        Self::new(memory, (HALF_SIZE, FROM_P4VM_MAGIC), (0, FROM_VM_MAGIC))
    }

    fn new(memory: M, own: (usize, u64), peer: (usize, u64)) -> Result<Self, ChannelError> {
        if memory.len() < HANDSHAKE_PAGE_SIZE {
            return Err(ChannelError::TooSmall { needed: HANDSHAKE_PAGE_SIZE, actual: memory.len() });
        }
        let memory = Arc::new(memory);
        let (own, own_magic) = (Half { memory: Arc::clone(&memory), start: own.0 }, own.1);
        let (peer, peer_magic) = (Half { memory, start: peer.0 }, peer.1);
        let writer = PageWriter::new(own.clone(), own_magic, HALF_SLOTS, HALF_SLOT_STRIDE)?;
        let reader = PageReader::new(peer, peer_magic, HALF_SLOTS, HALF_SLOT_STRIDE)?;
        let buffer = vec![0; MESSAGE_ROOM].into_boxed_slice();
        // What is on the page already belongs to an earlier handshake, or is repeated.
        let received = reader.published();
        Ok(Self { own, own_magic, writer, reader, received, buffer })
    }

    /// Sends a message. It takes the place of the one before. If the half was overwritten, this sets it up
    /// again.
    ///
    /// # Errors
    /// If the message is longer than a slot, or the page cannot be written (its file was truncated).
    pub fn send(&mut self, message: &[u8]) -> Result<(), PageFault> {
        match self.writer.publish(0, 0, message) {
            Err(PageFault::NotAPage) => {
                let own = self.own.clone();
                self.writer = PageWriter::new(own, self.own_magic, HALF_SLOTS, HALF_SLOT_STRIDE)
                    .map_err(|_| PageFault::NotAPage)?;
                self.writer.publish(0, 0, message).map(drop)
            }
            other => other.map(drop),
        }
    }

    /// Receives the other party's newest message, if this party has not received it yet. It is untrusted.
    ///
    /// # Errors
    /// If the half is not set up, or its slot is being written or invalid.
    pub fn receive(&mut self) -> Result<Option<&[u8]>, PageFault> {
        let published = self.reader.published();
        if published == self.received {
            return Ok(None);
        }
        let newest = self.reader.newest(&mut self.buffer)?;
        // A later publication is received by the next call, or now and once more: the handshake ignores it.
        self.received = published;
        Ok(newest.map(|publication| &self.buffer[..publication.len]))
    }
}
