//! Probes of hosts that a folder stands for.

use p4shield_probe::{Area, Cpu, Finding, Host, State, probe, probe_within};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

/// A machine whose files are in a folder.
struct Machine {
    folder: tempfile::TempDir,
    host: Host,
}

impl Machine {
    /// A machine without any device, with a program that claims to be this QEMU.
    fn new(qemu: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("qemu");
        std::fs::write(&program, format!("#!/bin/sh\necho QEMU emulator version {qemu}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let host =
            Host { root: folder.path().join("root"), cpu: Cpu::default(), qemu: program, firmware: None };
        Self { folder, host }
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.host.root.join(path.trim_start_matches('/'));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn finds(&self, area: Area, state: State, text: &str) -> Finding {
        let finding = probe(area, &self.host);
        assert_eq!(finding.state, state, "{finding:?}");
        let all = format!("{} {}", finding.found, finding.remedy.as_deref().unwrap_or_default());
        assert!(all.contains(text), "{text}: {all}");
        finding
    }
}

#[test]
fn an_empty_machine_lacks_everything_and_says_so() {
    let machine = Machine::new("7.2.0");
    for area in Area::ALL {
        let finding = probe(area, &machine.host);
        let expected = match area {
            Area::Qemu | Area::HugePages | Area::Tcx => State::Limited,
            Area::AfXdp => State::Works,
            _ => State::Missing,
        };
        assert_eq!(finding.state, expected, "{finding:?}");
    }
}

#[test]
fn each_thing_that_sev_snp_lacks_is_named_in_turn() {
    let mut machine = Machine::new("9.0.0");
    let missing = |machine: &Machine, text: &str| drop(machine.finds(Area::SevSnp, State::Missing, text));
    missing(&machine, "EPYC 7003");
    machine.host.cpu.sev_snp = true;
    missing(&machine, "modprobe kvm_amd");
    machine.write("/sys/module/kvm_amd/parameters/sev_snp", "N\n");
    missing(&machine, "RMP coverage");
    machine.write("/sys/module/kvm_amd/parameters/sev_snp", "Y\n");
    missing(&machine, "ccp");
    machine.write("/dev/sev", "");
    let device = machine.host.root.join("dev/sev");
    std::fs::set_permissions(&device, std::fs::Permissions::from_mode(0o600)).unwrap();
    missing(&machine, "udev rule");
    std::fs::set_permissions(&device, std::fs::Permissions::from_mode(0o666)).unwrap();
    missing(&machine, "QEMU is 9.0.0");
    let newer = Machine::new("9.2.1");
    machine.host.qemu = newer.host.qemu.clone();
    missing(&machine, "ovmf-amdsev");
    machine.write("/usr/share/ovmf/OVMF.amdsev.fd", "");
    machine.finds(Area::SevSnp, State::Works, "tee = \"sev-snp\"");
}

#[test]
fn each_thing_that_tdx_lacks_is_named_in_turn() {
    let mut machine = Machine::new("10.0.0");
    let missing = |machine: &Machine, text: &str| drop(machine.finds(Area::Tdx, State::Missing, text));
    missing(&machine, "5th generation");
    machine.write("/proc/cpuinfo", "flags : vmx tdx_host_platform\n");
    missing(&machine, "kvm_intel.tdx=1");
    machine.write("/sys/module/kvm_intel/parameters/tdx", "Y\n");
    missing(&machine, "QEMU is 10.0.0");
    let newer = Machine::new("10.1.0");
    machine.host.qemu = newer.host.qemu.clone();
    missing(&machine, "ovmf-generic");
    machine.host.firmware = Some(machine.folder.path().join("own.fd"));
    missing(&machine, "own.fd");
    std::fs::write(machine.folder.path().join("own.fd"), "").unwrap();
    machine.finds(Area::Tdx, State::Works, "tee = \"tdx\"");
}

#[test]
fn a_guest_of_a_tee_is_recognised() {
    let machine = Machine::new("7.2.0");
    machine.write("/dev/tdx_guest", "");
    machine.finds(Area::GuestTee, State::Missing, "tsm");
    machine.write("/sys/kernel/config/tsm/report/README", "");
    machine.finds(Area::GuestTee, State::Works, "a guest of tdx");
}

#[test]
fn kvm_without_a_device_or_an_extension_is_missing() {
    let mut machine = Machine::new("7.2.0");
    machine.finds(Area::Kvm, State::Missing, "no virtualisation extension");
    machine.host.cpu.virtualisation = Some("svm");
    machine.finds(Area::Kvm, State::Missing, "kvm_intel or kvm_amd");
}

#[test]
fn a_qemu_without_tees_is_limited() {
    Machine::new("7.2.0").finds(Area::Qemu, State::Limited, "sev-snp or tdx");
    Machine::new("9.1.0").finds(Area::Qemu, State::Limited, "install QEMU 10.1.0 or later for tdx");
    Machine::new("10.1.0").finds(Area::Qemu, State::Works, "QEMU 10.1.0");
    let mut none = Machine::new("");
    none.finds(Area::Qemu, State::Missing, "no version of QEMU");
    none.host.qemu = "/nonexistent/qemu".into();
    none.finds(Area::Qemu, State::Missing, "qemu-system-x86");
}

#[test]
fn devices_and_libraries_are_listed() {
    let machine = Machine::new("7.2.0");
    machine.write("/sys/class/iommu/dmar0/type", "");
    machine.write("/sys/kernel/iommu_groups/0/type", "");
    machine.finds(Area::Iommu, State::Works, "1 groups of devices (dmar0)");
    machine.write("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "512\n");
    machine.write("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "500\n");
    machine.finds(Area::HugePages, State::Works, "500 of 512 of 2048kB");
    machine.write("/usr/lib/x86_64-linux-gnu/librte_eal.so.23", "");
    machine.write("/usr/lib/x86_64-linux-gnu/librte_eal.so.23.0", "");
    machine.write("/usr/local/lib64/librte_eal.so.99", "");
    machine.finds(Area::Dpdk, State::Works, "DPDK 22.11 (ABI 23), ABI 99");
    for (file, text) in [("sriov_totalvfs", "64"), ("sriov_numvfs", "2")] {
        machine.write(&format!("/sys/class/net/eth0/device/{file}"), text);
    }
    machine.finds(Area::SrIov, State::Works, "eth0 2 of 64");
    machine.write("/sys/class/net/eth0/queues/rx-0/rps_cpus", "");
    symlink(Path::new("/drivers/ice"), machine.host.root.join("sys/class/net/eth0/device/driver")).unwrap();
    machine.finds(Area::AfXdp, State::Works, "eth0 (ice, receive queues: 1");
}

#[test]
fn files_that_are_not_what_they_should_be_are_no_error() {
    let mut machine = Machine::new("7.2.0");
    machine.host.cpu = Cpu { virtualisation: Some("svm"), sev_snp: true };
    for path in [
        "/sys/module/kvm_amd/parameters/sev_snp/x",
        "/sys/kernel/mm/hugepages/hugepages-/nr_hugepages",
        "/sys/class/net/\u{1f4a9}/device/sriov_totalvfs",
        "/usr/lib64/librte_eal.so.-1",
        "/proc/cpuinfo",
    ] {
        machine.write(path, "\u{0}\u{ffff}18446744073709551616");
    }
    for area in Area::ALL {
        assert!(!probe(area, &machine.host).found.is_empty());
    }
}

#[test]
fn a_probe_that_hangs_is_a_finding() {
    let machine = Machine::new("10.1.0");
    machine.write("/proc/version", "");
    let pipe = machine.host.root.join("proc/cpuinfo");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).unwrap();
    let hung = probe_within(Area::Tdx, &machine.host, Duration::from_millis(50));
    assert!(hung.state == State::Missing && hung.found.contains("did not end within 0.05 s"), "{hung:?}");
    assert!(hung.remedy.unwrap().contains("dmesg"));
    // The other areas read no such file.
    let iommu = probe_within(Area::Iommu, &machine.host, Duration::from_secs(10));
    assert!(iommu.found.contains("no IOMMU"), "{iommu:?}");
    drop(std::fs::write(&pipe, "flags : vmx\n"));
}

#[test]
fn a_nic_switch_in_traffic_control_needs_btf() {
    let machine = Machine::new("9.0.0");
    machine.finds(Area::Tcx, State::Limited, "CONFIG_DEBUG_INFO_BTF");
    machine.write("/sys/kernel/btf/vmlinux", "");
    machine.finds(Area::Tcx, State::Works, "nic_switch = \"tc\"");
}
