//! A switch's packet memory, as a P4 VM maps it where it is handed no header copies: to be read, and never to be written.
//!
//! That it cannot be written is not left to this code, which the other side would have to believe: the memory is sealed
//! against new writable mappings and against `write` (`F_SEAL_FUTURE_WRITE`) before anybody else gets its descriptor,
//! and whoever passes it on looks at the seals ([`PacketMemory::check`]). Its size is sealed, too; should a page of it be
//! punched out and not be had again (huge pages), reading it gives zeros and no `SIGBUS`, as with page files.

use super::map::Mmap;
use super::{SEALS, SharedMemory, check_len, sigbus, system};
use crate::error::ShmError;
use crate::memory::Memory;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::SealFlags;

/// Seals that packet memory must have before anyone but the switch maps it.
const PACKET_SEALS: SealFlags = SEALS.union(SealFlags::FUTURE_WRITE);

/// Packet memory of a switch, mapped to be read.
#[derive(Debug)]
pub struct PacketMemory(SharedMemory);

impl PacketMemory {
    /// Maps a memfd that somebody sent.
    ///
    /// # Errors
    /// As [`Self::check`], or it cannot be mapped.
    pub fn from_fd(fd: &OwnedFd, len: usize) -> Result<Self, ShmError> {
        Self::check(fd, len)?;
        let mapping = Mmap::read_only(fd, len).map_err(system("mmap"))?;
        let guarded = sigbus::Guarded::new(mapping).map_err(system("sigaction(SIGBUS)"))?;
        Ok(Self(SharedMemory::with_mapping(Box::new(guarded), None)))
    }

    /// Whether this is memory of `len` bytes that nobody can resize, and that nobody who gets it can write.
    ///
    /// # Errors
    /// It is not; or not a memfd.
    pub fn check(fd: impl AsFd, len: usize) -> Result<(), ShmError> {
        let expected = check_len(len)?;
        let seals = rustix::fs::fcntl_get_seals(&fd).map_err(system("fcntl(F_GET_SEALS)"))?;
        if !seals.contains(PACKET_SEALS) {
            return Err(ShmError::NotSealed { seals: seals.bits() });
        }
        let actual = rustix::fs::fstat(&fd).map_err(system("fstat"))?.st_size as u64;
        if actual == expected { Ok(()) } else { Err(ShmError::Size { expected, actual }) }
    }

    /// Seals memory as [`Self::check`] wants it. Mappings that there are stay writable.
    ///
    /// # Errors
    /// It was not made to be sealed, or the kernel does not know the seal (before Linux 5.1).
    pub fn seal(fd: impl AsFd) -> Result<(), ShmError> {
        rustix::fs::fcntl_add_seals(fd, PACKET_SEALS).map_err(system("fcntl(F_ADD_SEALS)"))
    }

    /// Where `len` bytes begin that another party says are at `offset`; none if they do not all lie within the memory.
    #[inline]
    pub(crate) fn place(&self, offset: u64, len: usize) -> Option<usize> {
        let at = usize::try_from(offset).ok()?;
        at.checked_add(len).filter(|end| *end <= self.0.len()).map(|_| at)
    }

    /// Copies `to.len()` bytes from `at` on, each read once.
    #[inline]
    pub(crate) fn copy_out(&self, at: usize, to: &mut [u8]) {
        self.0.copy_out(at, to);
    }
}
