//! Errors of a user VM's pages.

use p4shield_channel::ChannelError;
use p4shield_seal::EpochError;

/// Why a VM's pages cannot be used.
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
    /// Pages are sealed, but there is no key.
    #[error("a VM with an info page or a log page needs a key")]
    NoKey,
    /// No epoch for the log can be chosen.
    #[error("cannot start the log")]
    Epoch(#[from] EpochError),
}
