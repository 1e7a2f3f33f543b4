//! The demonstration with virtual machines: the tenant's user VM and the client are QEMU guests at vhost-user
//! ports of an unmodified Open vSwitch over DPDK, into which P4 Shield's library is preloaded.
//!
//! Agent, auditor and server run in the user VM, and the client's sockets in the other guest. Whatever the
//! script knows of them it reads through the guests' shells, once a second.

mod attack;
mod client;
mod inside;
mod program;
mod scene;
mod script;
mod user_vm;

use std::path::{Path, PathBuf};

use p4shield_testbed::{Guest, OpenVswitch};

pub use inside::{connect, serve};
pub use script::run;

/// The parts that the demonstration with guests needs beside [`crate::Options`].
#[derive(Debug)]
pub struct Parts {
    /// `libp4shield_dpdk.so`, which the switch loads.
    pub library: PathBuf,
    /// The words after the name of this program's file that call [`serve`] or [`connect`] with the address
    /// that follows them.
    pub server: &'static str,
    /// Likewise.
    pub client: &'static str,
}

/// Checks whether this machine can run guests, Open vSwitch over DPDK and the library.
///
/// # Errors
/// The reason why not, and what to do.
pub fn usable(library: &Path) -> Result<(), String> {
    if !library.is_file() {
        let path = library.display();
        return Err(format!(
            "{path} does not exist; build it with `make build-dev`, or name it with --library"
        ));
    }
    OpenVswitch::usable()?;
    Guest::usable()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_named_with_a_remedy() {
        let refused = usable(Path::new("/nowhere/libp4shield_dpdk.so")).unwrap_err();
        assert!(refused.contains("/nowhere/libp4shield_dpdk.so") && refused.contains("make build-dev"));
    }
}
