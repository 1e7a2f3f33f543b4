//! The images of virtual machines: of P4 VMs, P4 switches and tenants' switches. Each has the distribution's
//! kernel, and an initial file system that holds one static program; for a switch also the kernel's modules
//! of network devices, and for a tenant's switch the host's Open vSwitch.
//!
//! [`build`] is reproducible: the same kernel and program give the same bytes, wherever and whenever. An
//! image is a folder of three files: `vmlinuz`, `initramfs` and `manifest.json` with their digests.
//! [`Image::open`] compares them.
#![forbid(unsafe_code)]

mod archive;
mod build;
mod error;
mod kernel;
mod kind;
mod manifest;
mod modules;
mod open_vswitch;

pub use archive::Archive;
pub use build::{build, build_switch, build_tenant_switch};
pub use error::{ImageError, Operation};
pub use kernel::installed_kernel;
pub use kind::ImageKind;
pub use manifest::{Image, Manifest};
pub use modules::read_modules;

/// The kernel's command line. The machine ends when the kernel or the P4 VM's program fails (`panic`).
/// `no_timer_check`: an emulated timer on a loaded machine may miss the ticks that the kernel waits for.
pub const COMMAND_LINE: &str = "console=ttyS0 quiet panic=-1 no_timer_check random.trust_cpu=on";

/// Returns the kernel's command line with arguments for the P4 VM's program. Linux passes what follows `--`
/// to the first program.
#[must_use]
pub fn command_line(arguments: &[String]) -> String {
    let mut text = COMMAND_LINE.to_owned();
    if !arguments.is_empty() {
        text.extend([" -- ", &arguments.join(" ")]);
    }
    text
}
