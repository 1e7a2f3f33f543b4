//! Moves frames through a bound socket.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::Result;
use crate::pool::{Frame, FramePool, SocketId};
use crate::socket::{Socket, Statistics};

/// How many packets in advance a packet's first bytes are fetched: the core on which the kernel received it
/// has just written them.
const AHEAD: u32 = 8;

/// A socket and its frames. All calls take the pool of the frames.
#[derive(Debug)]
pub struct Port {
    socket: Socket,
    id: SocketId,
    /// Frames in the fill ring or with the kernel for receiving.
    filled: u32,
    /// Frames to send that the kernel has not completed.
    sending: u32,
    /// Whether packets were pushed since the last [`Port::kick`].
    unsent: bool,
}

impl Port {
    /// Registers the socket in the pool's ledger.
    ///
    /// # Errors
    /// [`crate::Error::Config`] if there are too many ports.
    pub fn new(socket: Socket, pool: &FramePool) -> Result<Self> {
        Ok(Self { id: pool.open_port()?, socket, filled: 0, sending: 0, unsent: false })
    }

    /// Returns the socket's number in the ledger.
    #[must_use]
    pub const fn id(&self) -> SocketId {
        self.id
    }

    /// Returns the socket, whose close may block. After it, [`FramePool::close_port`] takes its frames
    /// back.
    #[must_use]
    pub fn into_socket(self) -> Socket {
        self.socket
    }

    /// Fills free frames until the kernel has `target`. Returns the number that it has.
    pub fn refill(&mut self, pool: &FramePool, target: u32) -> u32 {
        let want = target.min(self.socket.fill.capacity()).saturating_sub(self.filled);
        // Publishing in batches keeps the ring's cache line from moving for every packet.
        if want < 16.min(target) {
            return self.filled;
        }
        let mut added = 0;
        while added < want && self.socket.fill.room(1) > 0 {
            let Some(address) = pool.offer(self.id) else { break };
            let pushed = self.socket.fill.push(address);
            debug_assert!(pushed, "there was room");
            added += 1;
        }
        if added > 0 {
            self.socket.fill.publish();
            self.filled += added;
            if self.socket.zero_copy() && self.socket.fill.need_wakeup() {
                // An empty receive call, on which a zero-copy driver reads the fill ring. Fails only if the
                // interface is down; it reads the ring when it comes up.
                let _ = recv(&self.socket, &mut [0_u8; 0], RecvFlags::DONTWAIT);
            }
        }
        self.filled
    }

    /// Passes at most `max` received packets to `each`. Returns their number.
    pub fn receive<'p>(&mut self, pool: &'p FramePool, max: u32, mut each: impl FnMut(Frame<'p>)) -> u32 {
        let mut n = 0;
        if self.socket.receive.available() > 0 {
            (0..AHEAD).for_each(|n| self.prefetch(pool, n));
        }
        while n < max {
            let Some(d) = self.socket.receive.pop() else { break };
            n += 1;
            self.prefetch(pool, AHEAD - 1);
            if let Some(frame) = pool.receive(self.id, d.address, d.len) {
                self.filled = self.filled.saturating_sub(1);
                each(frame);
            }
        }
        if n > 0 {
            self.socket.receive.release();
        }
        n
    }

    /// Fetches the first bytes of the n-th packet after the next one, if it is there.
    fn prefetch(&mut self, pool: &FramePool, n: u32) {
        if let Some(d) = self.socket.receive.ahead(n) {
            pool.prefetch(d.address);
        }
    }

    /// Queues a packet to be sent by [`Port::kick`].
    ///
    /// # Errors
    /// Returns the frame if the transmit ring is full.
    pub fn send<'p>(&mut self, pool: &'p FramePool, frame: Frame<'p>) -> std::result::Result<(), Frame<'p>> {
        // At most as many as the completion ring holds, or the kernel would stop at a full ring.
        if self.sending >= self.socket.transmit.capacity() || self.socket.transmit.room(1) == 0 {
            return Err(frame);
        }
        let (address, len) = pool.send(self.id, frame);
        let pushed = self.socket.transmit.push(crate::Descriptor { address, len, options: 0 });
        debug_assert!(pushed, "there was room");
        self.sending += 1;
        self.unsent = true;
        Ok(())
    }

    /// Publishes queued packets and makes a send call if necessary. Returns `Ok(true)` if the kernel has
    /// not taken all of them, so that another call is needed.
    ///
    /// # Errors
    /// The kernel's error: `ENETDOWN` while the interface is down, `ENXIO` when it was removed.
    pub fn kick(&mut self) -> io::Result<bool> {
        if self.unsent {
            self.socket.transmit.publish();
            self.unsent = false;
        } else if self.sending == 0 || self.socket.transmit.pending() == 0 {
            return Ok(false);
        }
        if self.socket.zero_copy() && !self.socket.transmit.need_wakeup() {
            return Ok(false);
        }
        // An empty send call, on which the kernel reads the transmit ring.
        match send(&self.socket, &[], SendFlags::DONTWAIT) {
            Ok(_) => Ok(self.socket.transmit.pending() > 0),
            // The kernel's budget is exhausted, its queue full, or another call is in progress: retry
            // later.
            Err(Errno::AGAIN | Errno::BUSY | Errno::NOBUFS) => Ok(true),
            Err(e) => Err(e.into()),
        }
    }

    /// Frees completed frames. Returns the number of completions.
    pub fn reap(&mut self, pool: &FramePool) -> u32 {
        if self.sending == 0 {
            return 0;
        }
        let mut n = 0;
        while let Some(address) = self.socket.completion.pop() {
            if pool.reap(self.id, address) {
                self.sending = self.sending.saturating_sub(1);
            }
            n += 1;
        }
        if n > 0 {
            self.socket.completion.release();
        }
        n
    }

    /// Returns whether the interface was removed, which leaves the socket without one.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(recv(&self.socket, &mut [0_u8; 0], RecvFlags::DONTWAIT), Err(Errno::NXIO))
    }

    /// Returns the number of packets that were queued and not completed.
    #[must_use]
    pub const fn sending(&self) -> u32 {
        self.sending
    }

    /// Returns packets and bytes that were queued, and that the kernel has not taken. It takes them later if
    /// the interface is there and up, and never if it is not.
    pub fn unsent(&mut self) -> (u64, u64) {
        let all = self.socket.transmit.unreleased();
        all.fold((0, 0), |(packets, bytes), packet| (packets + 1, bytes + u64::from(packet.len)))
    }

    /// Returns whether the kernel wrote an impossible index to a ring, which stops the port.
    #[must_use]
    pub const fn broken(&self) -> bool {
        self.socket.fill.broken()
            || self.socket.completion.broken()
            || self.socket.receive.broken()
            || self.socket.transmit.broken()
    }

    /// Reads the kernel's counters.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn statistics(&self) -> io::Result<Statistics> {
        self.socket.statistics()
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
