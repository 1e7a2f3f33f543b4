//! The layers of a process's sandbox. A process that enters one calls them in the order that it needs, while
//! it has one thread.
//!
//! | layer | module |
//! |---|---|
//! | inherited descriptors are closed, libraries read no files | `descriptors`, `libraries` |
//! | another user than root, no capabilities | `credentials` |
//! | namespaces of its own, or those of a sandbox that is there | `namespaces`, `join` |
//! | an empty root, or one with a few folders of the host | `root` |
//! | Landlock | `landlock` |
//! | what process 1 inherits is reaped | `orphans` |
//!
//! The lists of system calls belong to the process that is restricted.

mod credentials;
mod descriptors;
mod join;
mod landlock;
mod libraries;
mod namespaces;
mod orphans;
mod root;

pub use credentials::{drop_capabilities, keep_capabilities, shed_root};
pub use descriptors::close_all_but;
pub use join::{Become, end_with_parent, join_first_process, spawn_among};
pub use landlock::{Allowed, allow_only, deny_everything};
pub use libraries::read_no_files;
pub use namespaces::{
    NameInside, continue_in_new_process, new_network, own_cgroup_namespace, own_namespaces,
    own_network_namespace, own_user_namespace,
};
pub use orphans::reap_orphans;
pub use root::{Root, Writable, empty_root, own_root};

/// Reason why a process cannot enter its sandbox.
#[derive(Debug, thiserror::Error)]
#[error("the sandbox cannot {step}: {advice}")]
pub struct SandboxError {
    /// The step that failed.
    pub step: &'static str,
    /// The remedy.
    pub advice: &'static str,
    /// The kernel's error.
    #[source]
    pub source: std::io::Error,
}

/// A step, and the remedy if it fails.
#[derive(Clone, Copy, Debug)]
pub struct Step(
    /// The step, after "the sandbox cannot".
    pub &'static str,
    /// The remedy.
    pub &'static str,
);

impl Step {
    /// Returns the error of this step.
    pub fn failed(self, source: impl Into<std::io::Error>) -> SandboxError {
        SandboxError { step: self.0, advice: self.1, source: source.into() }
    }
}

/// Adds the step to an error.
pub trait During<T> {
    /// Returns the result with the step of its error.
    ///
    /// # Errors
    /// That of the result.
    fn during(self, step: Step) -> Result<T, SandboxError>;
}

impl<T, E: Into<std::io::Error>> During<T> for Result<T, E> {
    fn during(self, step: Step) -> Result<T, SandboxError> {
        self.map_err(|e| step.failed(e))
    }
}
