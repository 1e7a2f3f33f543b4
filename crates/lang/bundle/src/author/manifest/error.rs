//! Errors in a manifest.

pub use p4shield_toml_problem::Problem;
use std::path::PathBuf;

/// Reason why a manifest cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// The manifest cannot be read.
    #[error("cannot read manifest {}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The manifest is invalid, or a file that it names cannot be read.
    #[error("{}", Problem::list(file, problems))]
    Refused {
        /// The manifest.
        file: PathBuf,
        /// All problems, in the order of the file.
        problems: Vec<Problem>,
    },
}
