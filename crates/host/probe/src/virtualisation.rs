//! KVM and QEMU.

use crate::finding::Found;
use crate::host::Host;
use p4shield_qemu::{Accelerator, QemuVersion, Tee};
use p4shield_text::chain;

/// Whether a guest of one sector runs on KVM.
pub(crate) fn kvm(host: &Host) -> Found {
    let slow = "P4 VMs in virtual machines run by emulation, which is slow";
    let Some(extension) = host.cpu.virtualisation else {
        return Found::missing(
            format!("the processor offers no virtualisation extension; {slow}"),
            "enable VT-x or AMD-V in the firmware, or nested virtualisation in the outer hypervisor",
        );
    };
    if !host.has("/dev/kvm") {
        return Found::missing(
            format!("the processor has {extension}, but /dev/kvm does not exist; {slow}"),
            "load the module kvm_intel or kvm_amd, and give a container the device",
        );
    }
    match Accelerator::probe(&host.qemu) {
        Accelerator::Kvm => Found::works(format!("an ordinary guest runs on it ({extension})")),
        Accelerator::Tcg => Found::missing(
            format!("/dev/kvm exists, but no ordinary guest runs on it; {slow}"),
            "install qemu-system-x86; if it is installed, the outer hypervisor does not nest: set \
             accelerator = \"tcg\"",
        ),
    }
}

/// QEMU's version, and which TEEs it knows.
pub(crate) fn qemu(host: &Host) -> Found {
    let version = match QemuVersion::of(&host.qemu) {
        Ok(version) => version,
        Err(error) => return Found::missing("QEMU does not run", chain(&error)),
    };
    let lacking: Vec<_> = Tee::ALL.into_iter().filter(|tee| version < tee.first_qemu()).collect();
    match lacking.first() {
        None => Found::works(format!("QEMU {version}")),
        Some(tee) => Found::limited(
            format!("QEMU {version}, which starts no machines of {}", join(&lacking)),
            format!("install QEMU {} or later for {tee}", tee.first_qemu()),
        ),
    }
}

fn join(tees: &[Tee]) -> String {
    tees.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ")
}
