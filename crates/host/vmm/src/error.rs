//! Why a P4 VM in a virtual machine ended or does not start.

use crate::qmp::QmpError;
use p4shield_control::SocketError;
use p4shield_line::FrameError;
use std::path::PathBuf;
use std::time::Duration;

/// Reason why the process ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VmmError {
    /// Standard input is not a control socket.
    #[error(
        "standard input is not a control socket; do not start `p4shield vmm` by hand, use `p4shield run`"
    )]
    NoSocket,
    /// A file of the image cannot be opened.
    #[error("cannot open {}; build the image again (`p4shield image build`)", path.display())]
    Image {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// QEMU's channels cannot be created.
    #[error("cannot create QEMU's channels")]
    Descriptors(#[source] std::io::Error),
    /// A program cannot be started.
    #[error("cannot start {program}; install the packages util-linux and qemu-system-x86")]
    Spawn {
        /// Its name.
        program: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The process cannot change its user.
    #[error(
        "cannot become another user than root; the P4 VM's user must exist in this container's user \
         namespace (see /proc/self/uid_map)"
    )]
    Privileges(#[source] std::io::Error),
    /// QEMU's system calls cannot be filtered.
    #[error("cannot filter QEMU's system calls; the kernel needs CONFIG_SECCOMP_FILTER")]
    Filter(#[source] std::io::Error),
    /// A thread cannot be started.
    #[error("cannot start a thread")]
    Thread(#[source] std::io::Error),
    /// QEMU ended.
    #[error("the virtual machine ended: {0}")]
    Ended(String),
    /// The guest did not start.
    #[error("the virtual machine did not start within {} s", .0.as_secs())]
    Boot(Duration),
    /// The guest did not answer.
    #[error("the P4 VM in the virtual machine did not answer within {} s", .0.as_secs())]
    NoReply(Duration),
    /// The image has another version than this program.
    #[error(
        "the P4 VM in the virtual machine uses version {theirs} of its line, this program version {ours}; \
         build the image again with `p4shield image build`"
    )]
    Version {
        /// The guest's version.
        theirs: u32,
        /// This program's version.
        ours: u32,
    },
    /// The guest broke the protocol.
    #[error("the virtual machine breaks the protocol of its line: {0}")]
    Guest(&'static str),
    /// The line failed.
    #[error("the line to the virtual machine failed")]
    Line(#[source] std::io::Error),
    /// A frame is invalid.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// QEMU failed.
    #[error(transparent)]
    Qemu(#[from] QmpError),
    /// The control socket failed.
    #[error(transparent)]
    Socket(#[from] SocketError),
}
