//! The demonstration: a P4 program in a P4 VM guards a live VM's TCP memory, and the cloud attacks it.
//!
//! Everything is real: namespaces for client, cloud host and user VM, a switch between them, the product's own
//! processes, sockets that fill the kernel's TCP memory. [`run`] plays the script, prints it second by second, checks
//! each claim against what was observed and writes an HTML report.

pub mod attack;
pub mod claim;
pub mod parts;
pub mod report;
pub mod scene;
pub mod script;
pub mod timeline;
pub mod traffic;

use std::path::PathBuf;

pub use script::{Options, Outcome, run};

/// Why the demonstration could not be given.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Namespaces, links, switch or a child process.
    #[error(transparent)]
    Testbed(#[from] p4shield_testbed::Error),
    /// A part of the product did not come up.
    #[error("`{part}` did not get ready; its last words:\n{words}")]
    Part {
        /// Which.
        part: &'static str,
        /// What was waited for.
        #[source]
        source: p4shield_testbed::Error,
        /// The end of its log.
        words: String,
    },
    /// A part ended while the demonstration needed it.
    #[error("{part} ended in the middle of the demo ({how}); its last words:\n{words}")]
    Died {
        /// Which.
        part: &'static str,
        /// How.
        how: std::process::ExitStatus,
        /// The end of its log.
        words: String,
    },
    /// Sockets.
    #[error("cannot {what}")]
    Traffic {
        /// What was attempted.
        what: &'static str,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file could not be read or written.
    #[error("cannot use {}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The report could not be written.
    #[error("cannot write the report into {}", path.display())]
    Report {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A chart could not be drawn.
    #[error(transparent)]
    Chart(#[from] p4shield_plot::Error),
    /// Somebody pressed Ctrl-C; everything was taken down.
    #[error("interrupted")]
    Interrupted,
}
