//! Errors in a configuration.

pub use p4shield_toml_problem::Problem;
use std::path::PathBuf;

/// Reason why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read configuration {}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The file is invalid.
    #[error("{}", Problem::list(file, problems))]
    Refused {
        /// The file.
        file: PathBuf,
        /// All problems, in the order of the file.
        problems: Vec<Problem>,
    },
}
