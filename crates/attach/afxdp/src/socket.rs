//! Making and binding sockets.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use crate::memory::Mapping;
use crate::ring::{Consumer, Descriptor, Entry, Producer, RingOffsets};
use crate::sys;
use crate::umem::Umem;
use crate::{Error, Result};

/// `XDP_MAX_TX_SKB_BUDGET` (Linux 6.17): packets that one call sends in copy mode; libc does not name it yet.
const MAX_TX_BUDGET: libc::c_int = 9;

/// What the kernel counts a packet of a whole frame for, at most.
const PACKET_COST: usize = 8192;

/// How packets get between the interface and packet memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Mode {
    /// Zero-copy where the driver can, else copy.
    #[default]
    Auto,
    /// The kernel copies.
    Copy,
    /// The driver reads and writes packet memory itself.
    ZeroCopy,
}

/// What a socket is bound to and how.
#[derive(Clone, Copy, Debug)]
pub struct SocketConfig {
    /// Index of the interface in the network namespace of the calling thread.
    pub interface: u32,
    /// Its queue.
    pub queue: u32,
    /// Entries of each of the four rings, a power of two.
    pub ring: u32,
    /// Zero-copy or copy.
    pub mode: Mode,
}

/// The kernel's own counters of a socket: `struct xdp_statistics`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Received packets that were dropped for no reason counted below (too long for a frame, for one).
    pub rx_dropped: u64,
    /// Entries of the fill ring that named no frame.
    pub rx_invalid: u64,
    /// Descriptors to send that named no packet.
    pub tx_invalid: u64,
    /// Received packets that were dropped because the receive ring was full.
    pub rx_ring_full: u64,
    /// Times that a packet came and the fill ring was empty.
    pub fill_empty: u64,
    /// Times that the kernel looked for something to send and the transmit ring was empty.
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
    /// The memory its rings name; keeps it mapped while the kernel may write to it.
    _umem: Arc<Umem>,
}

impl Socket {
    /// Makes a socket and binds it: joins the registration of a socket that is bound to the same memory if the
    /// kernel lets it, else registers the memory itself.
    ///
    /// # Errors
    /// [`Error::Socket`] with the step that failed. [`Error::errno`] is `EINVAL` where the interface has no such
    /// queue, `EBUSY` while another socket has it (also for a moment after that one was closed).
    pub fn bind(umem: &Arc<Umem>, config: &SocketConfig) -> Result<Self> {
        for peer in umem.bound() {
            match Self::attempt(umem, config, Some(&peer), libc::XDP_SHARED_UMEM) {
                Err(e) if e.errno() == Some(libc::EBUSY) => return Err(e),
                Ok(s) if config.mode != Mode::ZeroCopy || s.zero_copy => return Ok(s),
                _ => {}
            }
        }
        let wakeup = libc::XDP_USE_NEED_WAKEUP;
        if config.mode != Mode::Copy {
            match Self::attempt(umem, config, None, libc::XDP_ZEROCOPY | wakeup) {
                Err(_) if config.mode == Mode::Auto => {}
                result => return result,
            }
        }
        Self::attempt(umem, config, None, libc::XDP_COPY | wakeup)
    }

    fn attempt(umem: &Arc<Umem>, config: &SocketConfig, peer: Option<&OwnedFd>, flags: u16) -> Result<Self> {
        let failed = |step| {
            move |source| Error::Socket { interface: config.interface, queue: config.queue, step, source }
        };
        let fd = sys::socket().map_err(failed("socket(AF_XDP)"))?;
        if peer.is_none() {
            register(umem, fd.as_fd()).map_err(failed("registering packet memory (XDP_UMEM_REG)"))?;
        }
        for (option, step) in [
            (libc::XDP_UMEM_FILL_RING, "making the fill ring"),
            (libc::XDP_UMEM_COMPLETION_RING, "making the completion ring"),
            (libc::XDP_RX_RING, "making the receive ring"),
            (libc::XDP_TX_RING, "making the transmit ring"),
        ] {
            sys::set(fd.as_fd(), option, &config.ring).map_err(failed(step))?;
        }
        // Absent before Linux 6.17; then one call sends 32 packets, and more calls are made.
        let _ = sys::set(fd.as_fd(), MAX_TX_BUDGET, &config.ring);
        // In copy mode each packet under way counts against the send buffer; the ring is to be the limit, not that.
        // Refused without CAP_NET_ADMIN, then the default remains.
        let _ =
            rustix::net::sockopt::set_socket_send_buffer_size_force(&fd, config.ring as usize * PACKET_COST);
        let offsets = offsets(fd.as_fd()).map_err(failed("asking for ring offsets (XDP_MMAP_OFFSETS)"))?;
        let rings = Rings { fd: fd.as_fd(), entries: config.ring };
        let (fill, completion, receive, transmit) = (
            rings.map::<u64, _>(offsets.fill, libc::XDP_UMEM_PGOFF_FILL_RING, "fill ring", Producer::new)?,
            rings.map::<u64, _>(
                offsets.completion,
                libc::XDP_UMEM_PGOFF_COMPLETION_RING,
                "completion ring",
                Consumer::new,
            )?,
            rings.map::<Descriptor, _>(
                offsets.receive,
                libc::XDP_PGOFF_RX_RING as u64,
                "receive ring",
                Consumer::new,
            )?,
            rings.map::<Descriptor, _>(
                offsets.transmit,
                libc::XDP_PGOFF_TX_RING as u64,
                "transmit ring",
                Producer::new,
            )?,
        );
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: flags,
            sxdp_ifindex: config.interface,
            sxdp_queue_id: config.queue,
            sxdp_shared_umem_fd: peer.map_or(0, |p| p.as_raw_fd() as u32),
        };
        sys::bind(fd.as_fd(), &address).map_err(failed("bind"))?;
        let zero_copy = zero_copy(fd.as_fd()).map_err(failed("asking for the mode (XDP_OPTIONS)"))?;
        let fd = Arc::new(fd);
        umem.remember(&fd);
        Ok(Self { fill, completion, receive, transmit, fd, zero_copy, _umem: Arc::clone(umem) })
    }

    /// Whether the driver reads and writes packet memory itself.
    #[must_use]
    pub const fn zero_copy(&self) -> bool {
        self.zero_copy
    }

    /// The kernel's counters.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn statistics(&self) -> io::Result<Statistics> {
        let s: libc::xdp_statistics = sys::get(self.fd.as_fd(), libc::XDP_STATISTICS)?;
        Ok(Statistics {
            rx_dropped: s.rx_dropped,
            rx_invalid: s.rx_invalid_descs,
            tx_invalid: s.tx_invalid_descs,
            rx_ring_full: s.rx_ring_full,
            fill_empty: s.rx_fill_ring_empty_descs,
            tx_empty: s.tx_ring_empty_descs,
        })
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Where the parts of a socket's four rings are.
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

/// Whether the driver of the interface that a socket is bound to reads and writes packet memory itself.
///
/// # Errors
/// What the kernel says.
pub fn zero_copy(socket: BorrowedFd<'_>) -> io::Result<bool> {
    let options: libc::xdp_options = sys::get(socket, libc::XDP_OPTIONS)?;
    Ok(options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
}

/// Asks the kernel for the layout of a socket's rings (`XDP_MMAP_OFFSETS`).
///
/// # Errors
/// What the kernel says; `Unsupported` before Linux 5.4, whose rings have no flags.
pub fn offsets(fd: BorrowedFd<'_>) -> io::Result<Offsets> {
    let all: libc::xdp_mmap_offsets = sys::get(fd, libc::XDP_MMAP_OFFSETS)?;
    let of = |o: libc::xdp_ring_offset| RingOffsets {
        producer: o.producer,
        consumer: o.consumer,
        flags: o.flags,
        entries: o.desc,
    };
    Ok(Offsets { fill: of(all.fr), completion: of(all.cr), receive: of(all.rx), transmit: of(all.tx) })
}

fn register(umem: &Umem, fd: BorrowedFd<'_>) -> io::Result<()> {
    let config = umem.config();
    sys::set(
        fd,
        libc::XDP_UMEM_REG,
        &libc::xdp_umem_reg {
            addr: umem.memory().base().as_ptr() as u64,
            len: u64::from(config.frames) * u64::from(config.frame_size),
            chunk_size: config.frame_size,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        },
    )
}

/// Maps the rings of one socket.
struct Rings<'f> {
    fd: BorrowedFd<'f>,
    entries: u32,
}

impl Rings<'_> {
    fn map<T: Entry, R>(
        &self,
        offsets: RingOffsets,
        page: u64,
        what: &'static str,
        end: impl FnOnce(Arc<Mapping>, RingOffsets, u32) -> Result<R>,
    ) -> Result<R> {
        let len = offsets.bytes::<T>(self.entries);
        end(Arc::new(Mapping::shared(self.fd, page, len, what)?), offsets, self.entries)
    }
}
