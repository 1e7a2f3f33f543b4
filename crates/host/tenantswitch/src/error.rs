//! Errors.

use p4shield_links::LinkError;
use p4shield_nicswitch::NicError;
use p4shield_topology::PlanError;
use std::io;
use std::path::PathBuf;

/// Reason why a plan is not applied.
#[derive(Debug, thiserror::Error)]
pub enum TopologyError {
    /// The process may not.
    #[error("only root can change the host's topology: run it as root")]
    NotRoot,
    /// The users of compartments do not exist here.
    #[error(
        "the users {first} to {last} of the switch compartments do not exist in this container's user \
         namespace (see /proc/self/uid_map): write another first_uid in [daemon]"
    )]
    NoUsers {
        /// The first one.
        first: u32,
        /// The last one.
        last: u32,
    },
    /// The configuration has no plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Compartments cannot reach their folders.
    #[error(
        "the users of switch compartments cannot reach {}: chmod o+x {}", folder.display(), path.display()
    )]
    Unreachable {
        /// The folder of the configuration.
        folder: PathBuf,
        /// The folder in its path that others cannot search.
        path: PathBuf,
    },
    /// A file or folder cannot be used.
    #[error("cannot {operation} {path}")]
    File {
        /// The operation.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A file has no key or no certificate.
    #[error("{} has no {what} in PEM: write one that ovs-pki or openssl made", path.display())]
    NoPem {
        /// The file.
        path: PathBuf,
        /// The contents that it should have.
        what: &'static str,
    },
    /// A key does not belong to a certificate.
    #[error(
        "the private key {} is not that of the certificate {}: write the two files of one ovs-pki req+sign",
        key.display(), certificate.display()
    )]
    Keys {
        /// The file of the key.
        key: PathBuf,
        /// The file of the certificate.
        certificate: PathBuf,
    },
    /// An interface cannot be changed.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The NIC switch cannot be changed.
    #[error(transparent)]
    NicSwitch(#[from] NicError),
    /// A compartment does not do what it should.
    #[error("the switch compartment {name}: {why}")]
    Compartment {
        /// Its name.
        name: String,
        /// The reason, which may be the switch's own message.
        why: String,
    },
    /// Processes cannot be listed or started.
    #[error("cannot {0}")]
    Process(&'static str, #[source] io::Error),
}

impl TopologyError {
    /// Makes errors of an operation on a file.
    pub(crate) fn file<E: Into<io::Error>>(
        operation: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(E) -> Self {
        let path = path.into();
        move |source| Self::File { operation, path, source: source.into() }
    }
}
