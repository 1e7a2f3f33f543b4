//! Errors of a user VM's pages.

use p4shield_channel::ChannelError;

/// Reason why a VM's pages cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VmError {
    /// A page has the wrong size or contents.
    #[error("invalid {which} page")]
    Page {
        /// `info` or `log`.
        which: &'static str,
        /// The cause.
        #[source]
        source: ChannelError,
    },
}
