//! `p4shield attach` and `detach`: configures a switch's service to load an attachment's library, and removes
//! it again.
//!
//! The attachments `dpdk` and `xsk` are shared libraries that the dynamic linker loads into an unmodified
//! switch (`LD_PRELOAD`). On a host with systemd this takes one file, a drop-in for the switch's unit. No
//! package's file and no setting of the switch is changed. Guarantees:
//!
//! - **Nothing is installed that cannot work.** [`examine`] checks for everything that would disable the
//!   library or let packets bypass it (a statically linked switch, `hw-offload`, a linker that ignores
//!   `LD_PRELOAD`, ...) and reports each result with a remedy. [`apply`] refuses while there is a problem.
//! - **The switch fails closed.** With the drop-in, a switch whose library or configuration is missing does
//!   not start.
//! - **A switch is restarted only on request.**
//! - **[`remove`] restores the previous state**, and both operations can be repeated.
//!
//! All operations also work on a folder in place of `/` ([`Root`]), for images and packages.

#![forbid(unsafe_code)]

mod apply;
mod checks;
mod closure;
mod dropin;
mod elf;
mod examine;
mod finding;
mod library;
mod process;
mod root;
mod systemd;
mod target;
mod unit;
mod users;

pub use apply::{HostChanges, InstallError, apply, installed, remove};
pub use dropin::DropIn;
pub use examine::{Report, Request, examine};
pub use finding::{Finding, Severity};
pub use library::find as find_library;
pub use root::Root;
pub use target::Target;

use p4shield_config::Attachment;

/// The unit of Open vSwitch's forwarding process in Debian, Ubuntu, Fedora and RHEL.
pub const OVS_UNIT: &str = "ovs-vswitchd.service";
/// The default path of the daemon's configuration.
pub const DEFAULT_CONFIG: &str = "/etc/p4shield/p4shield.toml";
/// The folder of the libraries, below the installation's prefix.
pub const LIBRARY_FOLDER: &str = "lib/p4shield";

/// An attachment whose library is preloaded into the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreloadedAttachment {
    /// For a DPDK switch.
    Dpdk,
    /// For an AF_XDP switch.
    Xsk,
}

impl PreloadedAttachment {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Dpdk, Self::Xsk];

    /// Returns its name.
    #[must_use]
    pub const fn word(self) -> &'static str {
        self.attachment().name()
    }

    /// Returns the attachment in the configuration.
    #[must_use]
    pub const fn attachment(self) -> Attachment {
        match self {
            Self::Dpdk => Attachment::Dpdk,
            Self::Xsk => Attachment::Xsk,
        }
    }

    /// Returns the library's file name.
    #[must_use]
    pub const fn library(self) -> &'static str {
        match self {
            Self::Dpdk => "libp4shield_dpdk.so",
            Self::Xsk => "libp4shield_xsk.so",
        }
    }

    /// Returns a function that the library interposes, which identifies the library.
    pub(crate) const fn hook(self) -> &'static str {
        match self {
            Self::Dpdk => "rte_eth_dev_start",
            Self::Xsk => "setsockopt",
        }
    }
}
