//! The work of the first process of a virtual machine of ours, whatever the machine is for.
//!
//! | function | effect |
//! |---|---|
//! | [`check_first`] | refuses to be another process than the machine's first |
//! | [`mount_all`] | mounts the kernel's file systems |
//! | [`load_modules`] | loads the kernel modules of the image |
//! | [`follow_clock`] | sets the clock to the host's |
//! | [`Port`] | the way to the host of a switch's machine |
//! | [`power_off`] | ends the machine |

#![forbid(unsafe_code)]

mod clock;
mod modules;
mod port;

pub use clock::follow as follow_clock;
pub use modules::{MODULES, load_modules};
pub use port::Port;

use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use rustix::system::{RebootCommand, reboot};
use std::path::PathBuf;

/// Reason why a machine does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BootError {
    /// This is no machine's first process.
    #[error("this is the first process of a virtual machine, and never started by a user")]
    NotFirst,
    /// A file system of the kernel's cannot be mounted.
    #[error("cannot mount {kind} at {at}")]
    Mount {
        /// The kind of file system.
        kind: &'static str,
        /// The place.
        at: &'static str,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A kernel module cannot be read or loaded.
    #[error("cannot load {}; build the image with the modules of its own kernel", path.display())]
    Module {
        /// The module's file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
}

/// Checks that this is the machine's first process.
///
/// # Errors
/// It is another one.
pub fn check_first() -> Result<(), BootError> {
    if rustix::process::getpid().is_init() { Ok(()) } else { Err(BootError::NotFirst) }
}

/// Mounts the kernel's file systems.
///
/// # Errors
/// The kernel has none of this kind, or the place is missing.
pub fn mount_all() -> Result<(), BootError> {
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    for (kind, at) in [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev")] {
        match mount(kind, at, kind, flags, None) {
            // The kernel may have mounted it.
            Ok(()) | Err(Errno::BUSY) => {}
            Err(e) => return Err(BootError::Mount { kind, at, source: e.into() }),
        }
    }
    // Where the kernel offers reports of a TEE. Without one it may lack it.
    let _ = mount("configfs", "/sys/kernel/config", "configfs", flags, None);
    Ok(())
}

/// Ends the machine. Returns only if the kernel refuses.
pub fn power_off() -> std::io::Error {
    match reboot(RebootCommand::PowerOff) {
        Ok(()) => Errno::INTR.into(),
        Err(error) => error.into(),
    }
}
