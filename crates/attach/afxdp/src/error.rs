//! The errors of this crate.

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Memory could not be mapped.
    #[error("cannot map {bytes} bytes of {what}")]
    Map {
        /// The purpose of the memory.
        what: &'static str,
        /// Bytes to map.
        bytes: usize,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The kernel refused a step of a socket's setup.
    #[error("AF_XDP socket on interface {interface}, queue {queue}: {step} failed")]
    Socket {
        /// Index of the interface.
        interface: u32,
        /// Receive queue.
        queue: u32,
        /// The step that failed.
        step: &'static str,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// A configuration is invalid.
    #[error("{what} is {value}: {rule}")]
    Config {
        /// The setting.
        what: &'static str,
        /// Its value.
        value: u64,
        /// The rule that the value breaks.
        rule: &'static str,
    },
    /// A ring's offsets are outside its mapping.
    #[error("a ring of {entries} entries with {what} at {offset} exceeds its mapping of {bytes} bytes")]
    RingBounds {
        /// The part of the ring.
        what: &'static str,
        /// Its offset.
        offset: u64,
        /// Entries.
        entries: u32,
        /// Bytes of the mapping.
        bytes: usize,
    },
}

impl Error {
    /// Returns the system's error number, if the system refused something.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Map { source, .. } | Self::Socket { source, .. } => source.raw_os_error(),
            Self::Config { .. } | Self::RingBounds { .. } => None,
        }
    }
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
