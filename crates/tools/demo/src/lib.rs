//! The demonstration: a P4 program in a P4 VM guards a live VM's TCP memory, and the cloud attacks it.
//!
//! Everything is real: namespaces for client, cloud host and user VM, a switch between them, the product's
//! own processes, sockets that fill the kernel's TCP memory. [`run`] executes the script, prints it second by
//! second, checks each claim by observation and writes an HTML report.

pub mod attack;
pub mod claim;
pub mod parts;
pub mod report;
pub mod scene;
pub mod script;
pub mod timeline;
pub mod traffic;

use std::path::PathBuf;

pub use script::{DemoResult, Options, run};

/// Reason why the demonstration cannot run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Namespaces, links, switch or a child process.
    #[error(transparent)]
    Testbed(#[from] p4shield_testbed::Error),
    /// A part of the product did not become ready.
    #[error("`{part}` did not become ready; the end of its log:\n{words}")]
    Part {
        /// The part or file.
        part: &'static str,
        /// The condition that did not come true.
        #[source]
        source: p4shield_testbed::Error,
        /// The end of its log.
        words: String,
    },
    /// A part ended while the demonstration needed it.
    #[error("{part} ended during the demo ({how}); the end of its log:\n{words}")]
    Died {
        /// The part or file.
        part: &'static str,
        /// Its exit status.
        how: std::process::ExitStatus,
        /// The end of its log.
        words: String,
    },
    /// Sockets.
    #[error("cannot {what}")]
    Traffic {
        /// What was attempted.
        what: &'static str,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A file could not be read or written.
    #[error("cannot use {}", path.display())]
    Read {
        /// The part or file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The report could not be written.
    #[error("cannot write the report into {}", path.display())]
    Report {
        /// The folder.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A chart could not be drawn.
    #[error(transparent)]
    Chart(#[from] p4shield_plot::Error),
    /// The user interrupted the run; everything is removed.
    #[error("interrupted")]
    Interrupted,
}
