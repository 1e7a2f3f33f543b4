//! The two rings of each kind: the application's and the kernel's.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use libc::{c_int, off_t, size_t};
use p4shield_afxdp::ring::Entry;
use p4shield_afxdp::{Consumer, Error, MmapRegion, Producer, RingOffsets};
use p4shield_xsk_relay::relay::{ApplicationBound, KernelBound};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use crate::next_libc;

/// The kind of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RingKind {
    Fill,
    Completion,
    Receive,
    Transmit,
}

impl RingKind {
    /// Returns the ring that an offset of `mmap` selects.
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

    /// Returns the ring that an option of `setsockopt` creates.
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

/// The application's ring and the kernel's, which have the same layout.
#[derive(Debug)]
pub(crate) struct RingPair {
    /// The application's ring, as this library maps it.
    application: Arc<MmapRegion>,
    /// The kernel's ring.
    kernel: Arc<MmapRegion>,
    offsets: RingOffsets,
    entries: u32,
    memory: OwnedFd,
    bytes: usize,
}

impl RingPair {
    /// Maps the kernel's ring and creates one like it for the application.
    pub(crate) fn new<T: Entry>(
        socket: BorrowedFd<'_>,
        kind: RingKind,
        offsets: RingOffsets,
        entries: u32,
    ) -> io::Result<Self> {
        let bytes = offsets.bytes::<T>(entries);
        let memory = memfd_create("p4shield-ring", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&memory, bytes as u64)?;
        // Sealed, so that the memory cannot shrink under the mappings.
        fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let map = |fd, at, what| MmapRegion::shared(fd, at, bytes, what).map_err(io::Error::other);
        Ok(Self {
            application: Arc::new(map(memory.as_fd(), 0, "a ring for the application")?),
            kernel: Arc::new(map(socket, kind.offset(), "a ring of the kernel")?),
            offsets,
            entries,
            memory,
            bytes,
        })
    }

    /// Maps the application's ring where the application wanted to map the kernel's.
    ///
    /// # Safety
    /// As for `mmap` of a new mapping, or at the address that the application chose.
    pub(crate) unsafe fn map(&self, at: *mut c_void, len: size_t, prot: c_int, flags: c_int) -> *mut c_void {
        if len > self.bytes.next_multiple_of(4096) {
            next_libc::fail(libc::EINVAL);
            return libc::MAP_FAILED;
        }
        // SAFETY: the caller's promise.
        unsafe { next_libc::mmap()(at, len, prot, flags, self.memory.as_raw_fd(), 0) }
    }

    /// Returns the rings of a kind whose entries move from the application to the kernel.
    pub(crate) fn kernel_bound<T: Entry>(&self) -> Result<KernelBound<T>, Error> {
        Ok(KernelBound {
            application: Consumer::new(Arc::clone(&self.application), self.offsets, self.entries)?,
            kernel: Producer::new(Arc::clone(&self.kernel), self.offsets, self.entries)?,
        })
    }

    /// Returns the rings of a kind whose entries move from the kernel to the application.
    pub(crate) fn application_bound<T: Entry>(&self) -> Result<ApplicationBound<T>, Error> {
        Ok(ApplicationBound {
            application: Producer::new(Arc::clone(&self.application), self.offsets, self.entries)?,
            kernel: Consumer::new(Arc::clone(&self.kernel), self.offsets, self.entries)?,
        })
    }
}
