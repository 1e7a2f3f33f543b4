//! The two of each ring: the one that the application maps, and the kernel's.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use libc::{c_int, off_t, size_t};
use p4shield_afxdp::ring::Entry;
use p4shield_afxdp::{Mapping, RingOffsets};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use crate::real;

/// Which ring of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    Fill,
    Completion,
    Receive,
    Transmit,
}

impl Which {
    /// The ring that an offset of `mmap` stands for.
    pub(crate) fn of_offset(offset: off_t) -> Option<Self> {
        match u64::try_from(offset).ok()? {
            libc::XDP_UMEM_PGOFF_FILL_RING => Some(Self::Fill),
            libc::XDP_UMEM_PGOFF_COMPLETION_RING => Some(Self::Completion),
            n if n == libc::XDP_PGOFF_RX_RING as u64 => Some(Self::Receive),
            n if n == libc::XDP_PGOFF_TX_RING as u64 => Some(Self::Transmit),
            _ => None,
        }
    }

    const fn offset(self) -> u64 {
        match self {
            Self::Fill => libc::XDP_UMEM_PGOFF_FILL_RING,
            Self::Completion => libc::XDP_UMEM_PGOFF_COMPLETION_RING,
            Self::Receive => libc::XDP_PGOFF_RX_RING as u64,
            Self::Transmit => libc::XDP_PGOFF_TX_RING as u64,
        }
    }

    /// The ring that an option of `setsockopt` makes.
    pub(crate) const fn of_option(option: c_int) -> Option<Self> {
        match option {
            libc::XDP_UMEM_FILL_RING => Some(Self::Fill),
            libc::XDP_UMEM_COMPLETION_RING => Some(Self::Completion),
            libc::XDP_RX_RING => Some(Self::Receive),
            libc::XDP_TX_RING => Some(Self::Transmit),
            _ => None,
        }
    }
}

/// Both rings, of one layout.
#[derive(Debug)]
pub(crate) struct Pair {
    /// The application's, as we map it.
    pub(crate) application: Arc<Mapping>,
    /// The kernel's.
    pub(crate) kernel: Arc<Mapping>,
    pub(crate) offsets: RingOffsets,
    pub(crate) entries: u32,
    memory: OwnedFd,
    bytes: usize,
}

impl Pair {
    /// Maps the kernel's ring and makes one like it for the application.
    pub(crate) fn new<T: Entry>(
        socket: BorrowedFd<'_>,
        which: Which,
        offsets: RingOffsets,
        entries: u32,
    ) -> io::Result<Self> {
        let bytes = offsets.bytes::<T>(entries);
        let memory = memfd_create("p4shield-ring", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&memory, bytes as u64)?;
        // Nobody can take the memory away from under us.
        fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let map = |fd, at, what| Mapping::shared(fd, at, bytes, what).map_err(io::Error::other);
        Ok(Self {
            application: Arc::new(map(memory.as_fd(), 0, "a ring for the application")?),
            kernel: Arc::new(map(socket, which.offset(), "a ring of the kernel's")?),
            offsets,
            entries,
            memory,
            bytes,
        })
    }

    /// Maps the application's ring for the application, as it asked for the kernel's.
    ///
    /// # Safety
    /// As for `mmap` of a new mapping, or of the place that the application chose.
    pub(crate) unsafe fn map(&self, at: *mut c_void, len: size_t, prot: c_int, flags: c_int) -> *mut c_void {
        if len > self.bytes.next_multiple_of(4096) {
            real::fail(libc::EINVAL);
            return libc::MAP_FAILED;
        }
        // SAFETY: the caller's promise.
        unsafe { real::mmap()(at, len, prot, flags, self.memory.as_raw_fd(), 0) }
    }
}
