//! Has a switch's service load an attachment, after looking whether that can work; and takes it away.
//!
//! The attachments `dpdk` and `xsk` are shared libraries that the dynamic linker loads into an unmodified switch
//! (`LD_PRELOAD`). On a host with systemd that takes one file, a drop-in for the switch's unit, and nothing else is
//! touched: no package's file, no setting of the switch. What it promises:
//!
//! - **Nothing is installed that cannot work.** [`examine`] looks at everything that would make the library useless
//!   or let packets go round it (a switch that is linked statically, `hw-offload`, a linker that ignores
//!   `LD_PRELOAD`, ...), says what it found, and what to do about it. [`apply`] refuses while there is a problem.
//! - **The switch fails closed.** With the drop-in, a switch whose library or configuration is missing does not start.
//! - **A switch is restarted only if that was asked for.**
//! - **[`remove`] leaves no trace**, and both can be repeated.
//!
//! Everything works on a folder in place of `/` as well ([`Root`]), for images and packages.

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

pub use apply::{Change, InstallError, apply, installed, remove};
pub use dropin::DropIn;
pub use examine::{Report, Request, examine};
pub use finding::{Finding, Outcome};
pub use library::find as find_library;
pub use root::Root;
pub use target::Target;

use p4shield_config::Attachment;

/// The unit of Open vSwitch's forwarding process in Debian, Ubuntu, Fedora and RHEL.
pub const OVS_UNIT: &str = "ovs-vswitchd.service";
/// The configuration that the daemon reads unless told otherwise.
pub const DEFAULT_CONFIG: &str = "/etc/p4shield/p4shield.toml";
/// The folder of the libraries, below the prefix of the installation.
pub const LIBRARY_FOLDER: &str = "lib/p4shield";

/// An attachment that is a library loaded into the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Into a DPDK switch.
    Dpdk,
    /// Into an AF_XDP switch.
    Xsk,
}

impl Kind {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Dpdk, Self::Xsk];

    /// Its word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        self.attachment().name()
    }

    /// The same in the configuration.
    #[must_use]
    pub const fn attachment(self) -> Attachment {
        match self {
            Self::Dpdk => Attachment::Dpdk,
            Self::Xsk => Attachment::Xsk,
        }
    }

    /// The library's file name.
    #[must_use]
    pub const fn library(self) -> &'static str {
        match self {
            Self::Dpdk => "libp4shield_dpdk.so",
            Self::Xsk => "libp4shield_xsk.so",
        }
    }

    /// A function that the library defines in place of another's: by it a library is known to be ours.
    pub(crate) const fn hook(self) -> &'static str {
        match self {
            Self::Dpdk => "rte_eth_dev_start",
            Self::Xsk => "setsockopt",
        }
    }
}
