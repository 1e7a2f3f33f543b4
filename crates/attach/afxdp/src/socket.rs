//! Creates and binds sockets.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::result::Result;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, SocketAddrXdpWithSharedUmem, XdpOptionsFlags, XdpRingOffset,
    XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};

use crate::memory::MmapRegion;
use crate::ring::{Consumer, Descriptor, Producer, RingOffsets};
use crate::umem::Umem;
use crate::{Error, sys};

/// The most bytes that the kernel charges for a packet of a whole frame.
const PACKET_COST: usize = 8192;

/// How packets move between the interface and the UMEM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Mode {
    /// Zero-copy if the driver supports it, otherwise copy.
    #[default]
    Auto,
    /// The kernel copies.
    Copy,
    /// The driver reads and writes the UMEM itself.
    ZeroCopy,
}

/// The interface and the mode of a socket.
#[derive(Clone, Copy, Debug)]
pub struct SocketConfig {
    /// Index of the interface in the network namespace of the calling thread.
    pub interface: u32,
    /// Queue of the interface.
    pub queue: u32,
    /// Entries of each of the four rings, a power of two.
    pub ring: u32,
    /// Zero-copy or copy mode.
    pub mode: Mode,
}

/// The kernel's own counters of a socket: `struct xdp_statistics`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Received packets dropped for reasons not counted below, such as a packet longer than a frame.
    pub rx_dropped: u64,
    /// Invalid addresses in the fill ring.
    pub rx_invalid: u64,
    /// Invalid descriptors in the transmit ring.
    pub tx_invalid: u64,
    /// Received packets dropped because the receive ring was full.
    pub rx_ring_full: u64,
    /// Packets that found the fill ring empty.
    pub fill_empty: u64,
    /// Times that the kernel found the transmit ring empty.
    pub tx_empty: u64,
}

/// A bound socket with its four rings.
#[derive(Debug)]
pub struct Socket {
    pub(crate) fill: Producer<u64>,
    pub(crate) completion: Consumer<u64>,
    pub(crate) receive: Consumer<Descriptor>,
    pub(crate) transmit: Producer<Descriptor>,
    fd: Arc<OwnedFd>,
    zero_copy: bool,
    /// The UMEM, which must stay mapped while the kernel may write to it.
    _umem: Arc<Umem>,
}

impl Socket {
    /// Creates and binds a socket. It joins the registration of a socket that is bound with the same
    /// UMEM if the kernel allows it, otherwise registers the UMEM itself.
    ///
    /// # Errors
    /// [`Error::Socket`] with the step that failed. [`Error::errno`] is `EINVAL` if the interface has no
    /// such queue, and `EBUSY` while another socket has it, and for a moment after that one was closed.
    pub fn bind(umem: &Arc<Umem>, config: &SocketConfig) -> Result<Self, Error> {
        for peer in umem.bound() {
            match Self::attempt(umem, config, Some(&peer), SocketAddrXdpFlags::XDP_SHARED_UMEM) {
                Err(e) if e.errno() == Some(libc::EBUSY) => return Err(e),
                Ok(s) if config.mode != Mode::ZeroCopy || s.zero_copy => return Ok(s),
                _ => {}
            }
        }
        let wakeup = SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
        if config.mode != Mode::Copy {
            match Self::attempt(umem, config, None, SocketAddrXdpFlags::XDP_ZEROCOPY | wakeup) {
                Err(_) if config.mode == Mode::Auto => {}
                result => return result,
            }
        }
        Self::attempt(umem, config, None, SocketAddrXdpFlags::XDP_COPY | wakeup)
    }

    /// Binds a socket to each queue from that of `first` on: to as many as the driver reports, otherwise to
    /// as many as there are, at most `most`. They have these UMEMs in turn, of which there is at least one.
    ///
    /// # Errors
    /// As [`Socket::bind`].
    pub fn bind_queues(
        umems: &[Arc<Umem>],
        first: &SocketConfig,
        reported: Option<u32>,
        most: u32,
    ) -> Result<Vec<Self>, Error> {
        let mut sockets = Vec::new();
        let queues = first.queue..first.queue + reported.unwrap_or(most).min(most);
        for (queue, umem) in queues.zip(umems.iter().cycle()) {
            match Self::bind(umem, &SocketConfig { queue, ..*first }) {
                Ok(socket) => sockets.push(socket),
                Err(e) if reported.is_none() && !sockets.is_empty() && e.errno() == Some(libc::EINVAL) => {
                    break;
                }
                Err(e) => return Err(e),
            }
        }
        Ok(sockets)
    }

    fn attempt(
        umem: &Arc<Umem>,
        config: &SocketConfig,
        peer: Option<&OwnedFd>,
        flags: SocketAddrXdpFlags,
    ) -> Result<Self, Error> {
        let &SocketConfig { interface, queue, ring, .. } = config;
        let failed = |step| move |e: Errno| Error::Socket { interface, queue, step, source: e.into() };
        let fd = socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None)
            .map_err(failed("socket(AF_XDP)"))?;
        if peer.is_none() {
            register(umem, fd.as_fd()).map_err(failed("registering the UMEM (XDP_UMEM_REG)"))?;
        }
        sockopt::set_xdp_umem_fill_ring_size(&fd, ring).map_err(failed("creating the fill ring"))?;
        sockopt::set_xdp_umem_completion_ring_size(&fd, ring)
            .map_err(failed("creating the completion ring"))?;
        sockopt::set_xdp_rx_ring_size(&fd, ring).map_err(failed("creating the receive ring"))?;
        sockopt::set_xdp_tx_ring_size(&fd, ring).map_err(failed("creating the transmit ring"))?;
        // Before Linux 6.17 one call sends 32 packets, and more calls are made.
        let _ = sys::set_transmit_budget(fd.as_fd(), ring);
        // In copy mode each packet in flight counts against the send buffer; the ring is to be the
        // limit.
        let _ = sockopt::set_socket_send_buffer_size_force(&fd, ring as usize * PACKET_COST);
        // Before `bind`: kernels before 6.4 map no rings of a bound socket.
        let rings = Rings::map(fd.as_fd(), ring, failed)?;
        let addr = SocketAddrXdp::new(flags, interface, queue);
        match peer {
            Some(peer) => bind(&fd, &SocketAddrXdpWithSharedUmem { addr, shared_umem_fd: peer.as_fd() }),
            None => bind(&fd, &addr),
        }
        .map_err(failed("bind"))?;
        Self::of(umem, fd, rings, failed)
    }

    /// Takes a socket that another process has bound with this UMEM. That process uses its rings no more.
    ///
    /// # Errors
    /// [`Error::Map`] with `EBUSY` before Linux 6.4, [`Error::Socket`].
    pub fn adopt(fd: OwnedFd, umem: &Arc<Umem>, config: &SocketConfig) -> Result<Self, Error> {
        let &SocketConfig { interface, queue, ring, .. } = config;
        let failed = |step| move |e: Errno| Error::Socket { interface, queue, step, source: e.into() };
        let rings = Rings::map(fd.as_fd(), ring, failed)?;
        Self::of(umem, fd, rings, failed)
    }

    fn of<F: FnOnce(Errno) -> Error>(
        umem: &Arc<Umem>,
        fd: OwnedFd,
        rings: Rings,
        failed: impl Fn(&'static str) -> F,
    ) -> Result<Self, Error> {
        let zero_copy = zero_copy(fd.as_fd()).map_err(failed("reading the mode (XDP_OPTIONS)"))?;
        let fd = Arc::new(fd);
        umem.add_bound(&fd);
        let Rings { fill, completion, receive, transmit } = rings;
        Ok(Self { fill, completion, receive, transmit, fd, zero_copy, _umem: Arc::clone(umem) })
    }

    /// Returns whether the driver reads and writes the UMEM itself.
    #[must_use]
    pub const fn zero_copy(&self) -> bool {
        self.zero_copy
    }

    /// Reads the kernel's counters.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn statistics(&self) -> io::Result<Statistics> {
        let s = sockopt::xdp_statistics(&self.fd)?;
        Ok(Statistics {
            rx_dropped: s.rx_dropped,
            rx_invalid: s.rx_invalid_descs,
            tx_invalid: s.tx_invalid_descs,
            rx_ring_full: s.rx_ring_full.unwrap_or_default(),
            fill_empty: s.rx_fill_ring_empty_descs.unwrap_or_default(),
            tx_empty: s.tx_ring_empty_descs.unwrap_or_default(),
        })
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The mapped rings of a socket.
struct Rings {
    fill: Producer<u64>,
    completion: Consumer<u64>,
    receive: Consumer<Descriptor>,
    transmit: Producer<Descriptor>,
}

impl Rings {
    /// Maps rings of this many entries.
    fn map<F: FnOnce(Errno) -> Error>(
        fd: BorrowedFd<'_>,
        ring: u32,
        failed: impl Fn(&'static str) -> F,
    ) -> Result<Self, Error> {
        let at = offsets(fd).map_err(failed("reading ring offsets (XDP_MMAP_OFFSETS)"))?;
        let map = |page, len, what| MmapRegion::shared(fd, page, len, what).map(Arc::new);
        let (words, pairs) = (RingOffsets::bytes::<u64>, RingOffsets::bytes::<Descriptor>);
        let fill = map(libc::XDP_UMEM_PGOFF_FILL_RING, words(&at.fill, ring), "fill ring")?;
        let completion =
            map(libc::XDP_UMEM_PGOFF_COMPLETION_RING, words(&at.completion, ring), "completion ring")?;
        let receive = map(libc::XDP_PGOFF_RX_RING as u64, pairs(&at.receive, ring), "receive ring")?;
        let transmit = map(libc::XDP_PGOFF_TX_RING as u64, pairs(&at.transmit, ring), "transmit ring")?;
        Ok(Self {
            fill: Producer::new(fill, at.fill, ring)?,
            completion: Consumer::new(completion, at.completion, ring)?,
            receive: Consumer::new(receive, at.receive, ring)?,
            transmit: Producer::new(transmit, at.transmit, ring)?,
        })
    }
}

/// The offsets of the parts of a socket's four rings.
#[derive(Clone, Copy, Debug)]
pub struct Offsets {
    /// Fill ring.
    pub fill: RingOffsets,
    /// Completion ring.
    pub completion: RingOffsets,
    /// Receive ring.
    pub receive: RingOffsets,
    /// Transmit ring.
    pub transmit: RingOffsets,
}

/// Returns whether the driver of a bound socket's interface reads and writes the UMEM itself.
///
/// # Errors
/// The kernel's error.
pub fn zero_copy(socket: BorrowedFd<'_>) -> Result<bool, Errno> {
    Ok(sockopt::xdp_options(socket)?.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY))
}

/// Reads the layout of a socket's rings (`XDP_MMAP_OFFSETS`).
///
/// # Errors
/// The kernel's error; `EOPNOTSUPP` before Linux 5.4, whose rings have no flags.
pub fn offsets(fd: BorrowedFd<'_>) -> Result<Offsets, Errno> {
    let all = sockopt::xdp_mmap_offsets(fd)?;
    let of = |o: XdpRingOffset| {
        let flags = o.flags.ok_or(Errno::OPNOTSUPP)?;
        Ok(RingOffsets { producer: o.producer, consumer: o.consumer, flags, entries: o.desc })
    };
    Ok(Offsets { fill: of(all.fr)?, completion: of(all.cr)?, receive: of(all.rx)?, transmit: of(all.tx)? })
}

fn register(umem: &Umem, fd: BorrowedFd<'_>) -> Result<(), Errno> {
    let config = umem.config();
    let area = XdpUmemReg {
        addr: umem.memory().base().as_ptr() as u64,
        len: u64::from(config.frames) * u64::from(config.frame_size),
        chunk_size: config.frame_size,
        headroom: 0,
        flags: XdpUmemRegFlags::empty(),
        tx_metadata_len: 0,
    };
    sockopt::set_xdp_umem_reg(fd, area)
}
