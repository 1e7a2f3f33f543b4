//! Which accelerator QEMU can use on this machine.
//!
//! `/dev/kvm` alone proves little: with nested or partial virtualisation, ordinary guests hang or die. KVM is
//! chosen only if the processor has the extensions and a guest of one sector runs on it within a time limit.

use crate::process::end;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// How QEMU executes a guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accelerator {
    /// On the processor, by KVM.
    Kvm,
    /// By translation.
    Tcg,
}

impl Accelerator {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Kvm, Self::Tcg];

    /// Returns QEMU's name for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }

    /// Finds the best one for a program of QEMU. Takes at most [`PATIENCE`].
    #[must_use]
    pub fn probe(qemu: &Path) -> Self {
        if has_extensions() && runs(qemu, Self::Kvm.name()) { Self::Kvm } else { Self::Tcg }
    }
}

/// Time limit of the guest of one sector, which needs milliseconds.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A boot sector that ends QEMU with [`RAN`], through the device `isa-debug-exit` at port 0xf4:
/// `mov al, 0x2a; out 0xf4, al; hlt`.
const SECTOR: [u8; 5] = [0xb0, 0x2a, 0xe6, 0xf4, 0xf4];
/// QEMU exits with `(value << 1) | 1`.
const RAN: i32 = 0x2a << 1 | 1;

/// Returns whether the processor has the virtualisation extensions of Intel or AMD, and KVM exists.
fn has_extensions() -> bool {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    Path::new("/dev/kvm").exists() && cpu.split_whitespace().any(|flag| matches!(flag, "vmx" | "svm"))
}

/// Returns whether a guest of one sector runs to its end.
fn runs(qemu: &Path, accelerator: &str) -> bool {
    let mut sector = [0; 512];
    sector[..SECTOR.len()].copy_from_slice(&SECTOR);
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    let Ok(disk) = tempfile::NamedTempFile::new() else { return false };
    if std::fs::write(&disk, sector).is_err() {
        return false;
    }
    let mut command = Command::new(qemu);
    command.args(["-accel", accelerator, "-machine", "pc", "-m", "16", "-nodefaults", "-display", "none"]);
    command.args(["-no-reboot", "-device", "isa-debug-exit,iobase=0xf4,iosize=1"]);
    command.arg("-drive").arg(format!("file={},format=raw,if=ide", disk.path().display()));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let status = command.spawn().ok().and_then(|child| end(child, PATIENCE));
    status.and_then(|s| s.code()) == Some(RAN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PROGRAM;

    #[test]
    fn the_probe_distinguishes_working_accelerators() {
        if !Command::new(PROGRAM).arg("--version").output().is_ok_and(|o| o.status.success()) {
            p4shield_need::skip("qemu", "QEMU (package qemu-system-x86) is missing");
            return;
        }
        let qemu = Path::new(PROGRAM);
        assert!(runs(qemu, "tcg"), "software emulation runs everywhere");
        assert!(!runs(qemu, "nosuch"));
    }
}
