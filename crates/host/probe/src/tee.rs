//! Trusted execution environments: whether this host starts machines with one, and whether this machine is
//! itself in one.

use crate::finding::Found;
use crate::host::Host;
use p4shield_qemu::{QemuVersion, Tee};

/// What SEV-SNP needs, from the processor up.
pub(crate) fn sev_snp(host: &Host) -> Found {
    const OPTION: &str = "/sys/module/kvm_amd/parameters/sev_snp";
    const DEVICE: &str = "/dev/sev";
    if !host.cpu.sev_snp {
        return Found::absent(
            "the processor has no SEV-SNP, or a hypervisor hides it; AMD EPYC 7003 and later do",
        );
    }
    if !host.has("/sys/module/kvm_amd") {
        return Found::missing(
            "the processor has it, but KVM for AMD is not loaded",
            "run `modprobe kvm_amd`",
        );
    }
    if host.text(OPTION).as_deref() != Some("Y") {
        return Found::missing(
            "the processor has it, but the kernel does not use it",
            "enable SMEE, SEV-SNP and RMP coverage in the firmware, boot Linux 6.11 or later with \
             `iommu=nopt kvm_amd.sev=1 kvm_amd.sev_snp=1`, and read `dmesg | grep -i sev`",
        );
    }
    if !host.has(DEVICE) {
        return Found::missing(
            "the kernel uses it, but /dev/sev does not exist",
            "load the module ccp, and give a container the device",
        );
    }
    if !host.is_shared(DEVICE) {
        return Found::missing(
            "only root may use /dev/sev, and QEMU runs as another user",
            "add the udev rule `KERNEL==\"sev\", GROUP=\"kvm\", MODE=\"0660\"`",
        );
    }
    launch(host, Tee::SevSnp)
}

/// What TDX needs, from the processor up.
pub(crate) fn tdx(host: &Host) -> Found {
    let flags = host.text("/proc/cpuinfo").unwrap_or_default();
    if !flags.split_whitespace().any(|flag| flag == "tdx_host_platform") {
        return Found::absent(
            "Linux reports no TDX: the processor has none, the firmware disables it, or Linux is older than \
             6.8; Intel Xeon of the 5th generation and later have it",
        );
    }
    if host.text("/sys/module/kvm_intel/parameters/tdx").as_deref() != Some("Y") {
        return Found::missing(
            "the platform has it, but KVM does not use it",
            "boot Linux 6.16 or later with `kvm_intel.tdx=1 nohibernate`, and read `dmesg | grep -i tdx`",
        );
    }
    launch(host, Tee::Tdx)
}

/// QEMU and firmware, which all TEEs need.
fn launch(host: &Host, tee: Tee) -> Found {
    let version = QemuVersion::of(&host.qemu).ok();
    if version.is_none_or(|version| version < tee.first_qemu()) {
        let has = version.map_or_else(|| "QEMU does not run".to_owned(), |v| format!("QEMU is {v}"));
        let needed = format!("install QEMU {} or later", tee.first_qemu());
        return Found::missing(format!("processor and kernel have it, but {has}"), needed);
    }
    let (packaged, package) = tee.firmware().unwrap_or_default();
    let (path, exists) = host.firmware(packaged);
    if !exists {
        return Found::missing(
            format!("processor, kernel and QEMU have it, but the firmware {path} is missing"),
            format!("install the package {package}, or name another file with --firmware"),
        );
    }
    Found::works(format!("processor, kernel, QEMU and firmware have it; tee = \"{tee}\" can start machines"))
}

/// Whether this machine can prove what it is: for user VMs.
pub(crate) fn guest(host: &Host) -> Found {
    let devices = [("/dev/sev-guest", Tee::SevSnp), ("/dev/tdx_guest", Tee::Tdx)];
    let Some((device, tee)) = devices.into_iter().find(|(device, _)| host.has(device)) else {
        return Found::absent("this machine is not the guest of a TEE: a user VM here gives no evidence");
    };
    if !host.has("/sys/kernel/config/tsm/report") {
        return Found::missing(
            format!("{device} exists, but no reports are at /sys/kernel/config/tsm/report"),
            "boot Linux 6.7 or later, load the module tsm (or tsm_report), and mount configfs at \
             /sys/kernel/config",
        );
    }
    Found::works(format!("this machine is a guest of {tee}, and its kernel gives reports"))
}
