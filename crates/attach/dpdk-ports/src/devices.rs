//! Devices that are open for the threads that use them, and the pools of those.

use std::ptr::NonNull;
use std::sync::Arc;

use crate::error::Error;
use crate::interface::{Device, Pool};
use crate::library::Library;

/// A pool of buffers, of one thread. It is freed once nothing refers to it.
#[derive(Debug)]
pub(crate) struct OwnedPool {
    library: Library,
    pool: NonNull<Pool>,
    /// Bytes of the longest packet in a buffer.
    room: usize,
}

// SAFETY: DPDK locks what several threads use of a pool, and a pool belongs to no thread.
unsafe impl Send for OwnedPool {}
// SAFETY: as above.
unsafe impl Sync for OwnedPool {}

impl OwnedPool {
    /// Makes a pool of so many buffers for packets of so many bytes.
    ///
    /// # Errors
    /// There is not enough memory.
    pub(crate) fn new(library: Library, name: &str, buffers: u32, room: u16) -> Result<Self, Error> {
        let name = std::ffi::CString::new(name).unwrap_or_default();
        let memory = || Error::Memory { buffers, room, log: library.log() };
        let pool = library.pool(&name, buffers, room).ok_or_else(memory)?;
        Ok(Self { library, pool, room: room.into() })
    }

    pub(crate) const fn library(&self) -> Library {
        self.library
    }

    pub(crate) const fn pool(&self) -> NonNull<Pool> {
        self.pool
    }

    pub(crate) const fn room(&self) -> usize {
        self.room
    }
}

impl Drop for OwnedPool {
    fn drop(&mut self) {
        // SAFETY: the pool is the library's, which keeps it if a buffer is missing.
        unsafe { (self.library.0.free_pool)(self.pool.as_ptr()) };
    }
}

/// Open devices, which are closed when this is dropped: each thread that uses them has a reference. Their
/// pools outlive them, since a device returns its buffers when it closes.
#[derive(Debug)]
pub(crate) struct Devices {
    library: Library,
    numbers: Vec<u16>,
    _pools: Vec<Arc<OwnedPool>>,
}

impl Devices {
    /// Prepares for devices with buffers of these pools.
    pub(crate) const fn new(library: Library, pools: Vec<Arc<OwnedPool>>) -> Self {
        Self { library, numbers: Vec::new(), _pools: pools }
    }

    /// Opens a device that was found, with this many transmit queues, and a receive queue for each of these
    /// pools.
    ///
    /// # Errors
    /// The device does not start.
    pub(crate) fn open(
        &mut self,
        name: &str,
        number: u16,
        device: &Device,
        pools: &[NonNull<Pool>],
    ) -> Result<(), Error> {
        self.library.open(number, device, pools).map_err(|(step, source)| Error::Open {
            device: name.to_owned(),
            step,
            log: self.library.log(),
            source,
        })?;
        self.numbers.push(number);
        Ok(())
    }
}

impl Drop for Devices {
    fn drop(&mut self) {
        for number in &self.numbers {
            // SAFETY: the device is open, and no thread has a reference with which to use it again.
            unsafe { (self.library.0.close)(*number) };
        }
    }
}
