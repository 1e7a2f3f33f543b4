//! Errors in a policy file.

pub use p4shield_toml_problem::Problem;
use std::path::PathBuf;

/// Reason why a policy cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// A file cannot be read.
    #[error("cannot read {}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The policy file is refused.
    #[error("{}", Problem::list(file, problems))]
    Refused {
        /// The file.
        file: PathBuf,
        /// All problems, in the order of the file.
        problems: Vec<Problem>,
    },
    /// A file that the policy names is unusable.
    #[error("{}: {why}", file.display())]
    Endorsement {
        /// The file.
        file: PathBuf,
        /// What is wrong, and what to do.
        why: String,
    },
}
