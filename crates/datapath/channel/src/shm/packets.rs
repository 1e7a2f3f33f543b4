//! A switch's packet memory, which a P4 VM maps read-only where it receives no header copies.
//!
//! The kernel enforces that it is read-only: the memory is sealed against new writable mappings and
//! against `write` (`F_SEAL_FUTURE_WRITE`) before its descriptor leaves the switch, and each process
//! that passes the descriptor on checks the seals ([`PacketMemory::check`]). The size is sealed, too.
//! If a page is punched out and cannot be allocated again (huge pages), reading it gives zeros
//! instead of `SIGBUS`, as with page files.

use super::map::Mmap;
use super::{SEALS, SharedMemory, check_len, sigbus, system};
use crate::error::ShmError;
use crate::memory::Memory;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::SealFlags;

/// Seals that packet memory must have before another process than the switch maps it.
const PACKET_SEALS: SealFlags = SEALS.union(SealFlags::FUTURE_WRITE);

/// Packet memory of a switch, mapped read-only.
#[derive(Debug)]
pub struct PacketMemory(SharedMemory);

impl PacketMemory {
    /// Maps a memfd that the other party sent.
    ///
    /// # Errors
    /// Those of [`Self::check`], or the mapping fails.
    pub fn from_fd(fd: &OwnedFd, len: usize) -> Result<Self, ShmError> {
        Self::check(fd, len)?;
        let mapping = Mmap::read_only(fd, len).map_err(system("mmap"))?;
        let guarded = sigbus::Guarded::new(mapping).map_err(system("sigaction(SIGBUS)"))?;
        Ok(Self(SharedMemory::with_mapping(Box::new(guarded), None)))
    }

    /// Checks that this is memory of `len` bytes that no process can resize, and that no receiver can write.
    ///
    /// # Errors
    /// If it is not, or is not a memfd.
    pub fn check(fd: impl AsFd, len: usize) -> Result<(), ShmError> {
        let expected = check_len(len)?;
        let seals = rustix::fs::fcntl_get_seals(&fd).map_err(system("fcntl(F_GET_SEALS)"))?;
        if !seals.contains(PACKET_SEALS) {
            return Err(ShmError::NotSealed { seals: seals.bits() });
        }
        let actual = rustix::fs::fstat(&fd).map_err(system("fstat"))?.st_size as u64;
        if actual == expected { Ok(()) } else { Err(ShmError::Size { expected, actual }) }
    }

    /// Seals memory as [`Self::check`] requires. Existing mappings stay writable.
    ///
    /// # Errors
    /// If it was created without permission to seal, or the kernel does not know the seal (before Linux 5.1).
    pub fn seal(fd: impl AsFd) -> Result<(), ShmError> {
        rustix::fs::fcntl_add_seals(fd, PACKET_SEALS).map_err(system("fcntl(F_ADD_SEALS)"))
    }

    /// Converts the offset of `len` bytes, which the peer wrote; none unless all of them lie within
    /// the memory.
    #[inline]
    pub(crate) fn locate(&self, offset: u64, len: usize) -> Option<usize> {
        let at = usize::try_from(offset).ok()?;
        at.checked_add(len).filter(|end| *end <= self.0.len()).map(|_| at)
    }

    /// Copies `to.len()` bytes from `at` on, each read once.
    #[inline]
    pub(crate) fn copy_out(&self, at: usize, to: &mut [u8]) {
        self.0.copy_out(at, to);
    }
}
