//! Moving frames through a bound socket.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use crate::pool::{Frame, FramePool, PortId};
use crate::socket::{Socket, Statistics};
use crate::{Result, sys};

/// A socket and its frames. All calls take the pool that the frames are from.
#[derive(Debug)]
pub struct Port {
    socket: Socket,
    id: PortId,
    /// Frames in the fill ring or with the kernel.
    filled: u32,
    /// Frames to send that the kernel has not completed.
    sending: u32,
    /// Whether something was pushed since the kernel was last told.
    untold: bool,
}

impl Port {
    /// Gives the socket a place in the pool's ledger.
    ///
    /// # Errors
    /// [`crate::Error::Config`] if there are too many ports.
    pub fn new(socket: Socket, pool: &FramePool) -> Result<Self> {
        Ok(Self { id: pool.open_port()?, socket, filled: 0, sending: 0, untold: false })
    }

    /// Its number in the ledger.
    #[must_use]
    pub const fn id(&self) -> PortId {
        self.id
    }

    /// The socket alone, to be closed (which may block) wherever that does no harm. Afterwards
    /// [`FramePool::close_port`] takes its frames back.
    #[must_use]
    pub fn into_socket(self) -> Socket {
        self.socket
    }

    /// Offers free frames for packets to come, up to `target` in all. Returns how many frames are offered now.
    pub fn refill(&mut self, pool: &FramePool, target: u32) -> u32 {
        let want = target.min(self.socket.fill.capacity()).saturating_sub(self.filled);
        // Publishing in lots keeps the ring's cache line from moving for every single packet.
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
                // Fails only where the interface is down; it looks at the ring when it comes up.
                let _ = sys::kick_receive(self.socket.as_fd());
            }
        }
        self.filled
    }

    /// Hands at most `max` received packets to `each`. Returns how many there were.
    pub fn receive<'p>(&mut self, pool: &'p FramePool, max: u32, mut each: impl FnMut(Frame<'p>)) -> u32 {
        let mut n = 0;
        while n < max {
            let Some(d) = self.socket.receive.pop() else { break };
            n += 1;
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

    /// Queues a packet to be sent by [`Port::kick`].
    ///
    /// # Errors
    /// Gives the frame back if the transmit ring is full.
    pub fn send<'p>(&mut self, pool: &'p FramePool, frame: Frame<'p>) -> std::result::Result<(), Frame<'p>> {
        // Never more under way than the completion ring can take back, or the kernel would stop at a full one.
        if self.sending >= self.socket.transmit.capacity() || self.socket.transmit.room(1) == 0 {
            return Err(frame);
        }
        let (address, len) = pool.send(self.id, frame);
        let pushed = self.socket.transmit.push(crate::Descriptor { address, len, options: 0 });
        debug_assert!(pushed, "there was room");
        self.sending += 1;
        self.untold = true;
        Ok(())
    }

    /// Publishes what was queued and tells the kernel if it has to be told. `Ok(true)` if the kernel has not taken
    /// all of it yet and wants to be told again.
    ///
    /// # Errors
    /// What the kernel says: `ENETDOWN` while the interface is down, `ENXIO` when it is gone.
    pub fn kick(&mut self) -> io::Result<bool> {
        if self.untold {
            self.socket.transmit.publish();
            self.untold = false;
        } else if self.sending == 0 || self.socket.transmit.pending() == 0 {
            return Ok(false);
        }
        if self.socket.zero_copy() && !self.socket.transmit.need_wakeup() {
            return Ok(false);
        }
        match sys::kick_transmit(self.socket.as_fd()) {
            Ok(()) => Ok(self.socket.transmit.pending() > 0),
            Err(e) => match e.raw_os_error() {
                // The kernel's budget is used up, its queue full, or another call is under way: again, later.
                Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS) => Ok(true),
                _ => Err(e),
            },
        }
    }

    /// Frees the frames that were sent. Returns how many.
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

    /// Packets that were queued and not completed.
    #[must_use]
    pub const fn sending(&self) -> u32 {
        self.sending
    }

    /// Whether the kernel's index in any ring became impossible; such a port moves nothing any more.
    #[must_use]
    pub const fn broken(&self) -> bool {
        self.socket.fill.broken()
            || self.socket.completion.broken()
            || self.socket.receive.broken()
            || self.socket.transmit.broken()
    }

    /// The kernel's counters.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn statistics(&self) -> io::Result<Statistics> {
        self.socket.statistics()
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
