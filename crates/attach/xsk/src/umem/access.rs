//! Why a UMEM is not shared with a P4 VM.

/// Reason why a buffer stays the application's own memory, so that P4 VMs get header copies.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotShareable {
    /// No port is configured for it.
    #[error("no port of the configuration has zero_copy = \"auto\"")]
    Unwanted,
    /// The buffer may hold data of the application.
    #[error(
        "the application wrote to its buffer before it registered it, so the buffer may hold more than the \
         tenant's packets"
    )]
    Used,
    /// Chunks are unaligned, so the bytes between packets are unknown.
    #[error(
        "its chunks may start at any address, so the application may keep data of its own between packets"
    )]
    Unaligned,
    /// The buffer is shared memory or a file, or is not fully mapped.
    #[error("its buffer is not private memory")]
    NotPrivate,
    /// The buffer's pages cannot be replaced.
    #[error("its buffer does not begin and end at a page boundary, or has pages of several sizes")]
    Pages,
    /// Two UMEMs share bytes.
    #[error("its buffer is registered more than once")]
    RegisteredTwice,
    /// The table of shared buffers is full.
    #[error("there are too many UMEMs")]
    TooMany,
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    System {
        /// The step that failed.
        what: &'static str,
        /// The error of the system call.
        source: std::io::Error,
    },
}

/// A tenant's P4 VM reads a UMEM that would also receive other packets.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AccessConflict;
