//! The image of P4 VMs in virtual machines.

use std::path::PathBuf;

use p4shield_console::output;
use p4shield_testbed::Guest;
use p4shield_testbed::guest::p4vm_image;

/// Builds it.
pub(crate) fn of_machines() -> anyhow::Result<PathBuf> {
    if let Err(why) = Guest::usable() {
        anyhow::bail!("a P4 VM cannot be a virtual machine here: {why}");
    }
    output::note("building the image of P4 VMs; the first time takes minutes");
    Ok(p4vm_image()?)
}
