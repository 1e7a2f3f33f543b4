//! Why an image cannot be built or used.

use crate::kind::ImageKind;
use std::fmt;
use std::path::{Path, PathBuf};

/// Reason why an image cannot be built or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// A file cannot be read or written.
    #[error("cannot {operation} {}", path.display())]
    File {
        /// The operation.
        operation: Operation,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The program is no ELF executable for this processor.
    #[error("{} is not an executable for x86-64; build it with `make build`", path.display())]
    NotAProgram {
        /// The file.
        path: PathBuf,
    },
    /// The program needs libraries, which the image does not have.
    #[error("{} is not static: it needs {interpreter}; build it with `make build`", path.display())]
    NotStatic {
        /// The file.
        path: PathBuf,
        /// The dynamic linker that it names.
        interpreter: String,
    },
    /// The kernel is not one that QEMU boots.
    #[error(
        "{} is not a Linux kernel for x86-64 (bzImage); install the package linux-image-amd64, or name its \
         file /boot/vmlinuz-VERSION",
        path.display()
    )]
    NotAKernel {
        /// The file.
        path: PathBuf,
    },
    /// No kernel is installed.
    #[error(
        "no kernel is in {}; install the package linux-image-amd64, or name another file with --kernel",
        folder.display()
    )]
    NoKernel {
        /// The folder.
        folder: PathBuf,
    },
    /// A kernel module of a switch's image is missing.
    #[error(
        "{} has no module {name}; install the package of the kernel, or name the folder of its modules with \
         --modules",
        folder.display()
    )]
    NoModule {
        /// The module.
        name: String,
        /// The folder of the kernel's modules.
        folder: PathBuf,
    },
    /// A program that is a part of an image is not installed.
    #[error("{name} is missing; install the package {package}")]
    NoProgram {
        /// The program, or the file.
        name: &'static str,
        /// The Debian package that has it.
        package: &'static str,
    },
    /// A program's libraries cannot be found.
    #[error("cannot list the libraries of {}: {why}", path.display())]
    Libraries {
        /// The program.
        path: PathBuf,
        /// The dynamic linker's message.
        why: String,
    },
    /// The image is one for another kind of machine.
    #[error("{} is an image of {is}; build one of {due}: `p4shield image build{option}`", folder.display())]
    OtherKind {
        /// The image's folder.
        folder: PathBuf,
        /// The machines that it is for.
        is: ImageKind,
        /// The machines that it has to be for.
        due: ImageKind,
        /// The option with which such an image is built.
        option: &'static str,
    },
    /// The manifest is invalid.
    #[error("{} is not the manifest of an image; build it with `p4shield image build`", path.display())]
    Manifest {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
    /// A file is not the one that the manifest names.
    #[error(
        "{} is not the file of the manifest; build the image again with `p4shield image build`",
        path.display()
    )]
    Changed {
        /// The file.
        path: PathBuf,
    },
}

impl ImageError {
    /// Returns whether the image cannot be written, as opposed to input that is refused.
    #[must_use]
    pub const fn is_output(&self) -> bool {
        matches!(
            self,
            Self::File { operation: Operation::Create | Operation::Write | Operation::Replace, .. }
        )
    }

    /// Wraps an error of the file system.
    pub(crate) fn file(operation: Operation, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { operation, path, source }
    }
}

/// An operation on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A folder is created.
    Create,
    /// A file is read.
    Read,
    /// A file is written beside the one that it will replace.
    Write,
    /// A file is replaced.
    Replace,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Create => "create",
            Self::Read => "read",
            Self::Write => "write",
            Self::Replace => "replace",
        })
    }
}
