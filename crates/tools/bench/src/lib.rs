//! What P4 Shield measures of itself. The figures of docs/performance.md come from here.

#![forbid(unsafe_code)]

pub mod channel;
pub mod cores;
pub mod engine;
pub mod mediator;
mod shield;
pub mod stats;
pub mod switch;
mod trips;
pub mod xsk;

/// A measurement could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The channel could not be set up.
    #[error("cannot set up a channel to measure")]
    Channel(#[from] p4shield_channel::ChannelError),
    /// The channel's memory has no file descriptor to give to the other end.
    #[error("the channel's memory cannot be shared")]
    NoDescriptor,
    /// No doorbell can be made.
    #[error("cannot make a doorbell")]
    Doorbell(#[source] std::io::Error),
    /// No thread can be started.
    #[error("cannot start a thread")]
    Thread(#[source] std::io::Error),
    /// The mediator's configuration makes no sense, which is a bug.
    #[error(transparent)]
    Mediator(#[from] p4shield_mediator::ConfigError),
    /// A program to be measured does not compile, verify or load.
    #[error("a program to be measured is refused: {0}")]
    Program(String),
    /// A snapshot to be measured cannot be sealed or opened.
    #[error("a snapshot to be measured is refused: {0}")]
    Seal(String),
    /// There is no room for a temporary key.
    #[error("cannot make a temporary folder")]
    Folder(#[source] std::io::Error),
    /// A part of the laboratory could not be built or does not answer.
    #[error(transparent)]
    Testbed(#[from] p4shield_testbed::Error),
    /// The switch to be measured, or what it is measured with, does not do its part.
    #[error("{0}")]
    Switch(String),
}
