//! What can go wrong.

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Memory could not be mapped.
    #[error("cannot map {bytes} bytes of {what}")]
    Map {
        /// What for.
        what: &'static str,
        /// How many bytes.
        bytes: usize,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A step of setting up a socket was refused.
    #[error("AF_XDP socket on interface {interface}, queue {queue}: {step} failed")]
    Socket {
        /// Index of the interface.
        interface: u32,
        /// Receive queue.
        queue: u32,
        /// What was attempted.
        step: &'static str,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A configuration that cannot work.
    #[error("{what} is {value}: {rule}")]
    Config {
        /// Which setting.
        what: &'static str,
        /// Its value.
        value: u64,
        /// What it has to be.
        rule: &'static str,
    },
    /// Ring offsets that do not lie in the memory they are said to lie in.
    #[error(
        "a ring of {entries} entries with {what} at {offset} does not fit the {bytes} bytes it is mapped in"
    )]
    RingBounds {
        /// Which part.
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
    /// The system's error number, if the system refused something.
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
