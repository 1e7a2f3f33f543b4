//! Reasons why capture files cannot be ports.

use std::path::{Path, PathBuf};

/// Reason why a capture file cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be opened, read or written.
    #[error("cannot {what} {}", file.display())]
    File {
        /// The step that failed.
        what: &'static str,
        /// The file.
        file: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A file is no capture, or is damaged.
    #[error("{}: {why}, at byte {offset}", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// Where the header or packet begins that cannot be read.
        offset: u64,
        /// The reason, and the remedy if there is one.
        why: String,
    },
    /// An output is also another file of the ports.
    #[error("{} is used by another port as well; give each output a file of its own", file.display())]
    Shared {
        /// The file.
        file: PathBuf,
    },
}

impl Error {
    pub(super) fn file(what: &'static str, file: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let file = file.to_owned();
        move |source| Self::File { what, file, source }
    }
}
