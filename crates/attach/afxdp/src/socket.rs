//! Creates and binds sockets.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use crate::memory::MmapRegion;
use crate::ring::{Consumer, Descriptor, Entry, Producer, RingOffsets};
use crate::sys;
use crate::umem::Umem;
use crate::{Error, Result};

/// `XDP_MAX_TX_SKB_BUDGET` (Linux 6.17): packets that one call sends in copy mode; libc does not define
/// it yet.
const MAX_TX_BUDGET: libc::c_int = 9;

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
            register(umem, fd.as_fd()).map_err(failed("registering the UMEM (XDP_UMEM_REG)"))?;
        }
        for (option, step) in [
            (libc::XDP_UMEM_FILL_RING, "creating the fill ring"),
            (libc::XDP_UMEM_COMPLETION_RING, "creating the completion ring"),
            (libc::XDP_RX_RING, "creating the receive ring"),
            (libc::XDP_TX_RING, "creating the transmit ring"),
        ] {
            sys::set(fd.as_fd(), option, &config.ring).map_err(failed(step))?;
        }
        // Before Linux 6.17 one call sends 32 packets, and more calls are made.
        let _ = sys::set(fd.as_fd(), MAX_TX_BUDGET, &config.ring);
        // In copy mode each packet in flight counts against the send buffer; the ring is to be the
        // limit.
        let _ =
            rustix::net::sockopt::set_socket_send_buffer_size_force(&fd, config.ring as usize * PACKET_COST);
        let offsets = offsets(fd.as_fd()).map_err(failed("reading ring offsets (XDP_MMAP_OFFSETS)"))?;
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
        let zero_copy = zero_copy(fd.as_fd()).map_err(failed("reading the mode (XDP_OPTIONS)"))?;
        let fd = Arc::new(fd);
        umem.add_bound(&fd);
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
pub fn zero_copy(socket: BorrowedFd<'_>) -> io::Result<bool> {
    let options: libc::xdp_options = sys::get(socket, libc::XDP_OPTIONS)?;
    Ok(options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
}

/// Reads the layout of a socket's rings (`XDP_MMAP_OFFSETS`).
///
/// # Errors
/// The kernel's error; `Unsupported` before Linux 5.4, whose rings have no flags.
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
        end: impl FnOnce(Arc<MmapRegion>, RingOffsets, u32) -> Result<R>,
    ) -> Result<R> {
        let len = offsets.bytes::<T>(self.entries);
        end(Arc::new(MmapRegion::shared(self.fd, page, len, what)?), offsets, self.entries)
    }
}
