//! Measurements of P4 Shield: the source of the figures in docs/performance.md.

#![forbid(unsafe_code)]

mod args;
pub mod channel;
pub mod cores;
pub mod engine;
pub mod mediator;
pub mod protocol;
mod shield;
pub mod stats;
pub mod switch;
mod trips;
pub mod xsk;

/// Returns the name of a unit variant, as in JSON.
pub fn name(variant: impl serde::Serialize) -> String {
    serde_json::to_value(variant).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default()
}

/// Reason why a measurement failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The channel could not be set up.
    #[error("cannot set up a channel to measure")]
    Channel(#[from] p4shield_channel::ChannelError),
    /// The channel's memory has no file descriptor to share with the other end.
    #[error("the channel's memory cannot be shared")]
    NoDescriptor,
    /// No doorbell can be created.
    #[error("cannot create a doorbell")]
    Doorbell(#[source] std::io::Error),
    /// No thread can be started.
    #[error("cannot start a thread")]
    Thread(#[source] std::io::Error),
    /// The mediator's configuration is invalid, which is a bug.
    #[error(transparent)]
    Mediator(#[from] p4shield_mediator::ConfigError),
    /// A measured program does not compile, verify or load.
    #[error("a measured program is refused: {0}")]
    Program(String),
    /// A measured snapshot cannot be sealed or opened.
    #[error("a measured snapshot is refused: {0}")]
    Seal(String),
    /// There is no space for a temporary key.
    #[error("cannot create a temporary folder")]
    Folder(#[source] std::io::Error),
    /// A part of the test bed cannot be built or does not answer.
    #[error(transparent)]
    Testbed(#[from] p4shield_testbed::Error),
    /// The measured switch or a measuring tool failed.
    #[error("{0}")]
    Switch(String),
}
