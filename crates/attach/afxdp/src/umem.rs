//! Packet memory that sockets of several interfaces and queues share.
//!
//! The kernel counts a UMEM by the sockets that are bound to it. Interfaces come and go while packets are held, so
//! memory and registration are apart here: the memory lives as long as the [`Umem`], each new socket joins the
//! registration of any that is still bound, and registers the same memory again when there is none left (or when
//! the kernel will not have the two share, as with a zero-copy and a copy-only interface).

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::memory::Mapping;
use crate::{Error, Result};

/// Bytes that the kernel keeps free in front of each received packet (`XDP_PACKET_HEADROOM`).
pub const KERNEL_HEADROOM: u32 = 256;

/// Size and shape of packet memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UmemConfig {
    /// Frames.
    pub frames: u32,
    /// Bytes of a frame: 2048 or 4096 (a power of two up to the page size, as the kernel demands).
    pub frame_size: u32,
    /// Whether to use huge pages where there are enough.
    pub huge_pages: bool,
}

impl Default for UmemConfig {
    fn default() -> Self {
        Self { frames: 16384, frame_size: 2048, huge_pages: false }
    }
}

impl UmemConfig {
    /// The longest packet that can be received into a frame.
    #[must_use]
    pub const fn max_packet(&self) -> u32 {
        self.frame_size - KERNEL_HEADROOM
    }
}

/// Packet memory, and the sockets whose registration of it can be joined.
#[derive(Debug)]
pub struct Umem {
    memory: Mapping,
    config: UmemConfig,
    bound: Mutex<Vec<Weak<OwnedFd>>>,
}

impl Umem {
    /// Maps the memory.
    ///
    /// # Errors
    /// [`Error::Config`] for numbers the kernel would refuse, [`Error::Map`].
    pub fn new(config: UmemConfig) -> Result<Arc<Self>> {
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
        let memory = Mapping::anonymous(config.frames as usize * size as usize, config.huge_pages)?;
        Ok(Arc::new(Self { memory, config, bound: Mutex::default() }))
    }

    /// Its shape.
    #[must_use]
    pub const fn config(&self) -> &UmemConfig {
        &self.config
    }

    /// The memory itself.
    #[must_use]
    pub const fn memory(&self) -> &Mapping {
        &self.memory
    }

    /// Remembers a bound socket as one whose registration can be joined for as long as it is open.
    pub(crate) fn remember(&self, socket: &Arc<OwnedFd>) {
        let mut bound = self.bound.lock().unwrap_or_else(PoisonError::into_inner);
        bound.retain(|w| w.strong_count() > 0);
        bound.push(Arc::downgrade(socket));
    }

    /// Sockets whose registration can perhaps be joined.
    pub(crate) fn bound(&self) -> Vec<Arc<OwnedFd>> {
        let bound = self.bound.lock().unwrap_or_else(PoisonError::into_inner);
        bound.iter().filter_map(Weak::upgrade).collect()
    }
}
