//! The UMEM, which sockets of several interfaces and queues share.
//!
//! The kernel keeps a UMEM registered while a socket is bound with it. Interfaces come and go while
//! packets are held, so memory and registration are separate here: the memory lives as long as the
//! [`Umem`]. A new socket joins the registration of any bound socket, and registers the same memory
//! again if there is none, or if the kernel does not let the two share, such as a zero-copy and a
//! copy-only interface.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, ftruncate, memfd_create};

use crate::memory::MmapRegion;
use crate::{Error, Result};

/// Bytes of headroom that the kernel keeps in front of each received packet (`XDP_PACKET_HEADROOM`).
pub const KERNEL_HEADROOM: u32 = 256;

/// The memory, in errors.
const WHAT: &str = "a UMEM";

/// The size of a UMEM and of its frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UmemConfig {
    /// Number of frames.
    pub frames: u32,
    /// Bytes of a frame: 2048 or 4096 (the kernel requires a power of two up to the page size).
    pub frame_size: u32,
    /// Whether to use huge pages if enough are available.
    pub huge_pages: bool,
}

impl Default for UmemConfig {
    fn default() -> Self {
        Self { frames: 16384, frame_size: 2048, huge_pages: false }
    }
}

impl UmemConfig {
    /// Returns the longest packet that can be received into a frame.
    #[must_use]
    pub const fn max_packet(&self) -> u32 {
        self.frame_size - KERNEL_HEADROOM
    }
}

/// A UMEM, and the bound sockets whose registration another socket can join.
#[derive(Debug)]
pub struct Umem {
    memory: MmapRegion,
    config: UmemConfig,
    bound: Mutex<Vec<Weak<OwnedFd>>>,
}

impl Umem {
    /// Maps the memory.
    ///
    /// # Errors
    /// [`Error::Config`] for values that the kernel would refuse, [`Error::Map`].
    pub fn new(config: UmemConfig) -> Result<Arc<Self>> {
        let bytes = checked_bytes(config)?;
        Ok(Self::of(MmapRegion::anonymous(bytes, config.huge_pages)?, config))
    }

    /// Maps memory that another process may map, too, by the descriptor: the size of the file is final.
    ///
    /// # Errors
    /// As [`Umem::new`].
    pub fn shareable(config: UmemConfig) -> Result<(Arc<Self>, OwnedFd)> {
        let bytes = checked_bytes(config)?;
        let file = sealed_file(bytes).map_err(|e| Error::Map { what: WHAT, bytes, source: e.into() })?;
        Ok((Self::of_file(&file, config)?, file))
    }

    /// Maps the memory that another process has created as [`Umem::shareable`] and describes so.
    ///
    /// # Errors
    /// As [`Umem::new`]; the file is shorter than that.
    pub fn of_file(file: &OwnedFd, config: UmemConfig) -> Result<Arc<Self>> {
        let bytes = checked_bytes(config)?;
        let failed = |source| Error::Map { what: WHAT, bytes, source };
        let has = fstat(file).map_err(|e| failed(e.into()))?.st_size;
        if has.cast_unsigned() < bytes as u64 {
            return Err(failed(io::ErrorKind::UnexpectedEof.into()));
        }
        Ok(Self::of(MmapRegion::shared(file.as_fd(), 0, bytes, WHAT)?, config))
    }

    fn of(memory: MmapRegion, config: UmemConfig) -> Arc<Self> {
        Arc::new(Self { memory, config, bound: Mutex::default() })
    }

    /// Returns the configuration.
    #[must_use]
    pub const fn config(&self) -> &UmemConfig {
        &self.config
    }

    /// Returns the memory.
    #[must_use]
    pub const fn memory(&self) -> &MmapRegion {
        &self.memory
    }

    /// Adds a bound socket, whose registration can be joined while it is open.
    pub(crate) fn add_bound(&self, socket: &Arc<OwnedFd>) {
        let mut bound = self.bound.lock().unwrap_or_else(PoisonError::into_inner);
        bound.retain(|w| w.strong_count() > 0);
        bound.push(Arc::downgrade(socket));
    }

    /// Returns the open sockets whose registration may be joined.
    pub(crate) fn bound(&self) -> Vec<Arc<OwnedFd>> {
        let bound = self.bound.lock().unwrap_or_else(PoisonError::into_inner);
        bound.iter().filter_map(Weak::upgrade).collect()
    }
}

/// Checks a configuration, and returns the bytes of its frames.
fn checked_bytes(config: UmemConfig) -> Result<usize> {
    let size = config.frame_size;
    if !(size.is_power_of_two() && (2048..=4096).contains(&size)) {
        return Err(Error::Config {
            what: "frame size",
            value: size.into(),
            rule: "it must be 2048 or 4096 bytes",
        });
    }
    if !(64..=1 << 22).contains(&config.frames) {
        return Err(Error::Config {
            what: "number of frames",
            value: config.frames.into(),
            rule: "it must be from 64 to 4194304",
        });
    }
    Ok(config.frames as usize * size as usize)
}

/// Creates a file in memory that keeps its size.
fn sealed_file(bytes: usize) -> rustix::io::Result<OwnedFd> {
    let file = memfd_create("umem", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, bytes as u64)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn memory_for_another_process_keeps_its_size() {
        let config = UmemConfig { frames: 64, ..UmemConfig::default() };
        let (umem, file) = Umem::shareable(config).unwrap();
        let other = Umem::of_file(&file, config).unwrap();
        umem.memory().u64(8).store(7, Relaxed);
        assert_eq!(other.memory().u64(8).load(Relaxed), 7);
        for size in [0, 1 << 30] {
            assert!(ftruncate(&file, size).is_err());
        }
        let longer = UmemConfig { frames: 65, ..config };
        assert!(matches!(Umem::of_file(&file, longer), Err(Error::Map { .. })));
        let wrong = UmemConfig { frames: u32::MAX, ..config };
        assert!(matches!(Umem::of_file(&file, wrong), Err(Error::Config { .. })));
    }
}
