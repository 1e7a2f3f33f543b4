//! The part of `p4shield run --check` about virtual machines: image, QEMU, accelerator, memory, and what a
//! TEE needs.

use crate::config::{Compartment, Config, Machine, Tee};
use p4shield_compartment::firmware;
use p4shield_image::{Image, ImageError};
use p4shield_probe::{Area, Finding, Host, State, probe};
use p4shield_qemu::{Accelerator, Guest, QemuVersion, Request, missing_devices, options};
use p4shield_text::chain;
use std::path::Path;

/// Returns why virtual machines do not start on a host, each with the path that the configuration names.
pub(crate) fn problems<'c>(config: &'c Config, host: &Host) -> Vec<(&'c Path, String)> {
    let machine = &config.machine;
    let tenants = || config.tenants.iter().filter(|t| t.compartment == Compartment::Vm);
    let mut tees: Vec<Tee> = tenants().map(|t| t.tee).collect();
    if tees.is_empty() {
        return Vec::new();
    }
    tees.sort_by_key(|tee| tee.name());
    tees.dedup();
    let host = Host { qemu: machine.qemu.clone(), ..host.clone() };
    let qemu = |message| (machine.qemu.as_path(), message);
    let mut found: Vec<_> = image_problem(machine).into_iter().collect();
    let sizes: Vec<u64> = tenants().map(|t| t.memory).collect();
    found.extend(memory_problem(&sizes, host.memory()).map(qemu));
    match QemuVersion::of(&machine.qemu) {
        Err(e) => found.push(qemu(format!("qemu: {}", chain(&e)))),
        Ok(version) => {
            found.extend(device_problem(machine).map(qemu));
            found.extend(accelerator_problem(machine, &host).map(qemu));
            found.extend(tees.into_iter().filter_map(|tee| tee_problem(machine, tee, version, &host)));
        }
    }
    found
}

/// Returns why there is no image to boot: a file that is missing, unreadable or another.
fn image_problem(machine: &Machine) -> Option<(&Path, String)> {
    let error = Image::open(&machine.image).err()?;
    let remedy = match error {
        ImageError::File { .. } => {
            format!("; build it with `p4shield image build -o {}`", machine.image.display())
        }
        _ => String::new(),
    };
    Some((machine.image.as_path(), format!("image: {}{remedy}", chain(&error))))
}

/// Returns whether machines of these sizes are larger than the host.
fn memory_problem(sizes: &[u64], host: Option<u64>) -> Option<String> {
    let (all, host) = (sizes.iter().fold(0_u64, |sum, size| sum.saturating_add(*size)), host?);
    (all > host).then(|| {
        format!(
            "memory: virtual machines of {} tenants take {} MiB, and this host has {} MiB; lower `memory`, \
             or write compartment = \"process\"",
            sizes.len(),
            all >> 20,
            host >> 20
        )
    })
}

/// Returns which devices QEMU lacks.
fn device_problem(machine: &Machine) -> Option<String> {
    match missing_devices(&machine.qemu) {
        Err(e) => Some(format!("qemu: {}", chain(&e))),
        Ok(missing) if missing.is_empty() => None,
        Ok(missing) => Some(format!(
            "qemu: {} was built without {}, of which machines of P4 VMs consist; install qemu-system-x86 of \
             Debian or Ubuntu, or set `qemu` to another build",
            machine.qemu.display(),
            missing.join(", ")
        )),
    }
}

/// Returns why KVM is no accelerator here, if the configuration insists on it.
fn accelerator_problem(machine: &Machine, host: &Host) -> Option<String> {
    machine.accelerator.filter(|name| *name == Accelerator::Kvm.name())?;
    let finding = probe(Area::Kvm, host);
    let text = with_remedy("accelerator", &finding);
    (finding.state != State::Works).then(|| format!("{text}; or write accelerator = \"auto\""))
}

fn with_remedy(key: &str, finding: &Finding) -> String {
    let remedy = finding.remedy.as_ref().map(|remedy| format!("; {remedy}")).unwrap_or_default();
    format!("{key}: {}{remedy}", finding.found)
}

/// Returns why the registers of TDX would not cover what the image's kernel gets from the host.
fn kernel_problem(machine: &Machine) -> Option<String> {
    // An image that cannot be opened is a problem of its own.
    let image = Image::open(&machine.image).ok()?;
    p4shield_measure::rtmr1(&image.kernel).err().map(|e| format!("tee: {}", chain(&e)))
}

/// Returns why QEMU starts no machines with this TEE.
fn tee_problem<'m>(
    machine: &'m Machine,
    tee: Tee,
    version: QemuVersion,
    host: &Host,
) -> Option<(&'m Path, String)> {
    let (of_qemu, area) = match tee {
        Tee::None => (p4shield_qemu::Tee::None, None),
        Tee::SevSnp => (p4shield_qemu::Tee::SevSnp, Some(Area::SevSnp)),
        Tee::Tdx => (p4shield_qemu::Tee::Tdx, Some(Area::Tdx)),
    };
    let firmware = area.map(|_| firmware(machine, tee));
    let accelerator = match machine.accelerator {
        Some(name) if name == Accelerator::Tcg.name() => Accelerator::Tcg,
        _ => Accelerator::Kvm,
    };
    let request = Request {
        guest: Guest::for_this_host(of_qemu, machine.processor.as_deref()),
        version,
        accelerator,
        memory: 1 << 30,
        processors: machine.processors,
        firmware,
    };
    if let Err(e) = options(&request) {
        return Some((machine.qemu.as_path(), format!("tee: {}", chain(&e))));
    }
    if let Some(why) = (tee == Tee::Tdx).then(|| kernel_problem(machine)).flatten() {
        return Some((machine.image.as_path(), why));
    }
    let firmware = firmware?;
    if !firmware.is_file() {
        let packages = "install the package ovmf-amdsev or ovmf-generic, or set `firmware` to its path";
        return Some((firmware, format!("firmware: {} is missing; {packages}", firmware.display())));
    }
    let host = Host { firmware: Some(firmware.to_owned()), ..host.clone() };
    let finding = probe(area?, &host);
    (finding.state != State::Works).then(|| (machine.qemu.as_path(), with_remedy("tee", &finding)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use p4shield_probe::Cpu;
    use std::os::unix::fs::PermissionsExt;

    /// Devices of a machine, as QEMU lists them.
    const DEVICES: &str = "name \"ivshmem-plain\"\nname \"pci-serial\"\nname \"pci-bridge\"";

    /// A host with a QEMU and an image, whose files are in a folder.
    struct World(tempfile::TempDir);

    impl World {
        fn new() -> Self {
            let world = Self(tempfile::tempdir().unwrap());
            world.write("root/proc/meminfo", "MemTotal:        2097152 kB\nMemFree: 1 kB\n");
            world.qemu("9.1.0", DEVICES);
            let mut program = vec![0_u8; 64];
            program[..20]
                .copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 62, 0]);
            program[52] = 64;
            std::fs::write(world.at("program"), program).unwrap();
            world.image("");
            world
        }

        /// Makes an image with a kernel of this version.
        fn image(&self, version: &str) {
            let mut kernel = vec![0; 4096];
            kernel[0x202..0x206].copy_from_slice(b"HdrS");
            kernel[0x20e] = 0x40;
            kernel[0x240..0x240 + version.len()].copy_from_slice(version.as_bytes());
            std::fs::write(self.at("kernel"), kernel).unwrap();
            p4shield_image::build(&self.at("program"), &self.at("kernel"), &self.at("image")).unwrap();
        }

        fn at(&self, path: &str) -> std::path::PathBuf {
            self.0.path().join(path)
        }

        fn write(&self, path: &str, text: &str) {
            std::fs::create_dir_all(self.at(path).parent().unwrap()).unwrap();
            std::fs::write(self.at(path), text).unwrap();
        }

        /// Makes a program that claims to be this QEMU with these devices.
        fn qemu(&self, version: &str, devices: &str) {
            let script = format!("#!/bin/sh\necho QEMU emulator version {version}\necho '{devices}'\n");
            self.write("qemu", &script);
            std::fs::set_permissions(self.at("qemu"), std::fs::Permissions::from_mode(0o755)).unwrap();
        }

        /// Returns what is reported with these keys of `[machine]` and of the tenant.
        fn found(&self, machine: &str, tenant: &str) -> Vec<String> {
            let text = format!(
                "compartment = \"vm\"\n[machine]\nimage = \"image\"\nqemu = \"./qemu\"\n{machine}\n\
                 [[tenant]]\nname = \"alice\"\n{tenant}\n[[tenant.vm]]\nname = \"web\"\n\
                 addresses = [\"10.0.0.2\"]\n"
            );
            let config = Config::parse(&self.at("p4shield.toml"), &text).unwrap();
            let cpu = Cpu { virtualisation: Some("vmx"), sev_snp: false };
            let host = Host { root: self.at("root"), cpu, ..Host::this() };
            problems(&config, &host).into_iter().map(|(_, text)| text).collect()
        }

        /// Asserts that one problem is reported, with these texts.
        fn reports(&self, machine: &str, tenant: &str, texts: &[&str]) {
            let found = self.found(machine, tenant);
            assert!(found.len() == 1, "{texts:?}: {found:#?}");
            texts.iter().for_each(|text| assert!(found[0].contains(text), "{text}: {found:#?}"));
        }
    }

    #[test]
    fn a_host_that_has_everything_has_no_problem() {
        assert_eq!(World::new().found("", ""), [""; 0]);
    }

    #[test]
    fn a_missing_kernel_or_unreadable_image_is_reported() {
        let world = World::new();
        let build = format!("build it with `p4shield image build -o {}`", world.at("image").display());
        std::fs::remove_file(world.at("image/vmlinuz")).unwrap();
        world.reports("", "", &["image: cannot read ", "vmlinuz: No such file", &build]);
        // Not even root reads a folder as a file.
        std::fs::create_dir(world.at("image/vmlinuz")).unwrap();
        world.reports("", "", &["vmlinuz: Is a directory", &build]);
        world.write("image/manifest.json", "{}");
        world.reports("", "", &["is not the manifest of an image", "`p4shield image build`"]);
    }

    #[test]
    fn another_kernel_than_the_manifests_is_reported() {
        let world = World::new();
        world.write("image/vmlinuz", "another");
        world.reports("", "", &["vmlinuz is not the file of the manifest", "`p4shield image build`"]);
    }

    #[test]
    fn machines_that_are_larger_than_the_host_are_reported() {
        let world = World::new();
        assert_eq!(world.found("", "memory = \"2GiB\""), [""; 0]);
        let texts = ["memory: virtual machines of 1 tenants take 3072 MiB", "has 2048 MiB; lower `memory`"];
        world.reports("", "memory = \"3GiB\"", &texts);
        assert_eq!(memory_problem(&[u64::MAX, 1], None), None, "a host that does not say");
        assert!(memory_problem(&[u64::MAX, u64::MAX], Some(1)).is_some());
    }

    #[test]
    fn a_host_without_kvm_is_reported_if_kvm_is_demanded() {
        let world = World::new();
        let texts = ["accelerator: ", "/dev/kvm does not exist", "kvm_intel", "write accelerator = \"auto\""];
        world.reports("accelerator = \"kvm\"", "", &texts);
        assert_eq!(world.found("accelerator = \"tcg\"", ""), [""; 0]);
        // The device exists, and QEMU runs no guest on it.
        world.write("root/dev/kvm", "");
        world.reports("accelerator = \"kvm\"", "", &["no ordinary guest runs on it", "\"auto\""]);
    }

    #[test]
    fn a_qemu_without_ivshmem_is_reported() {
        let world = World::new();
        world.qemu("9.1.0", &DEVICES.replace("ivshmem-plain", "ivshmem-doorbell"));
        world.reports("", "", &["qemu: ", "was built without ivshmem-plain", "install qemu-system-x86"]);
        world.write("qemu", "#!/bin/sh\n[ $1 = --version ] && echo QEMU emulator version 9.1.0\n");
        world.reports("", "", &["`", "qemu -device help` failed"]);
        std::fs::remove_file(world.at("qemu")).unwrap();
        world.reports("", "", &["qemu: cannot run ", "qemu-system-x86"]);
    }

    #[test]
    fn what_a_tee_needs_and_lacks_is_reported() {
        let world = World::new();
        let firmware = "firmware = \"OVMF.fd\"\n";
        let expected = |keys: &str, text: &str| {
            world.reports(&format!("{firmware}{keys}"), "tee = \"sev-snp\"", &[text]);
        };
        world.qemu("9.0.0", DEVICES);
        expected("", "tee: QEMU 9.0.0 is too old for tee = \"sev-snp\"; install QEMU 9.1.0");
        world.qemu("9.1.0", DEVICES);
        expected("accelerator = \"tcg\"", "tee: machines of sev-snp run on KVM only");
        expected("processor = \"EPYC-v99\"", "`EPYC-v99`");
        expected("", "OVMF.fd is missing; install the package ovmf-amdsev");
        world.write("OVMF.fd", "");
        expected("", "tee: the processor has no SEV-SNP");
    }

    #[test]
    fn a_kernel_that_tdx_does_not_cover_is_reported() {
        let world = World::new();
        world.qemu("10.1.0", DEVICES);
        std::fs::remove_dir_all(world.at("image")).unwrap();
        world.image("6.1.0-50-amd64");
        world.reports("", "tee = \"tdx\"", &["tee: ", "vmlinuz", "6.1", "Linux 6.9 or later"]);
        std::fs::remove_dir_all(world.at("image")).unwrap();
        world.image("6.12.1");
        world.reports("", "tee = \"tdx\"", &["tee: ", "no EFI stub is there"]);
    }
}
