//! Choice of QEMU's accelerator.
//!
//! `/dev/kvm` alone proves little: with nested or partial virtualisation, ordinary guests hang or die. KVM is
//! chosen only if the processor has the extensions and a guest of one sector runs on it within a time limit.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::leftover::folder;
use crate::process::Guarded;
use crate::wait_until;

/// Time limit of the sector in seconds; it needs milliseconds.
const PATIENCE: u64 = 20;

/// A boot sector that ends QEMU with [`RAN`], through the device `isa-debug-exit` at port 0xf4:
/// `mov al, 0x2a; out 0xf4, al; hlt`.
const SECTOR: [u8; 5] = [0xb0, 0x2a, 0xe6, 0xf4, 0xf4];
/// QEMU exits with `(value << 1) | 1`.
const RAN: i32 = 0x2a << 1 | 1;

/// Returns the accelerator to use; probed once per process.
pub(super) fn accelerator() -> &'static str {
    static FOUND: OnceLock<&str> = OnceLock::new();
    FOUND.get_or_init(|| if has_extensions() && runs("kvm") { "kvm" } else { "tcg" })
}

/// Returns whether the processor has the virtualisation extensions of Intel or AMD, and KVM exists.
fn has_extensions() -> bool {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    Path::new("/dev/kvm").exists() && cpu.split_whitespace().any(|flag| matches!(flag, "vmx" | "svm"))
}

/// Returns whether a guest of one sector runs to its end.
fn runs(accelerator: &str) -> bool {
    let Ok(dir) = folder("accelerator") else { return false };
    let disk = dir.path().join("disk");
    let mut sector = [0; 512];
    sector[..SECTOR.len()].copy_from_slice(&SECTOR);
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    if std::fs::write(&disk, sector).is_err() {
        return false;
    }
    let mut command = Command::new(super::PROGRAM);
    command.args(["-accel", accelerator, "-machine", "pc", "-m", "16", "-nodefaults", "-display", "none"]);
    command.args(["-no-reboot", "-device", "isa-debug-exit,iobase=0xf4,iosize=1"]);
    command.arg("-drive").arg(format!("file={},format=raw,if=ide", disk.display()));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut child) = Guarded::spawn(&mut command) else { return false };
    let mut status = None;
    let _ = wait_until("end of a guest of one sector", PATIENCE, || {
        status = child.ended();
        status.is_some()
    });
    status.and_then(|s| s.code()) == Some(RAN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::find;

    #[test]
    fn the_probe_distinguishes_working_accelerators() {
        if find(super::super::PROGRAM).is_none() {
            p4shield_need::skip("qemu", "QEMU (package qemu-system-x86) is missing");
            return;
        }
        assert!(runs("tcg"), "software emulation runs everywhere");
        assert!(!runs("nosuch"));
    }
}
