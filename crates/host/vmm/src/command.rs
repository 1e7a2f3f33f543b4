//! QEMU's command line.
//!
//! The machine has memory, processors, three serial lines and bridges for the regions that are plugged
//! while it runs: no disk, no network, no display, no firmware settings of the host's. Every channel to
//! it is an inherited descriptor, so that nothing of it has a name in the host's file system.

use crate::nic::NetworkDevice;
use crate::regions::{BRIDGES, FIRST_BRIDGE};
use p4shield_image::command_line;
use p4shield_qemu::Accelerator;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};

/// What a virtual machine consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// QEMU's program.
    pub qemu: PathBuf,
    /// Its options for processors, memory and a TEE.
    pub options: p4shield_qemu::Options,
    /// The Linux kernel.
    pub kernel: PathBuf,
    /// The initial file system, which has the P4 VM's program and nothing else.
    pub initramfs: PathBuf,
    /// Arguments of the P4 VM's program.
    pub arguments: Vec<String>,
}

/// The inherited descriptors of QEMU's channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lines {
    /// The kernel's messages.
    pub(crate) console: RawFd,
    /// Frames with control messages.
    pub(crate) messages: RawFd,
    /// Rings of doorbells, a byte each.
    pub(crate) rings: RawFd,
    /// QEMU's machine protocol.
    pub(crate) qmp: RawFd,
}

/// Slots of the serial lines on PCI bus 0. Linux numbers them in this order, behind the console.
const LINE_SLOTS: [u8; 2] = [0x1d, 0x1e];

/// Address space behind each bridge: 31 regions of the largest channels (4096 slots of whole packets).
const REGION_SPACE: &str = "4G";

/// Returns the arguments of QEMU for the machine of a P4 VM.
pub(crate) fn arguments(machine: &Machine, lines: &Lines) -> Vec<String> {
    let mut all = head(machine, "p4vm", lines.console);
    let mut add = |name: &str, value: String| all.extend([format!("-{name}"), value]);
    for (id, fd, slot) in [("messages", lines.messages, LINE_SLOTS[0]), ("rings", lines.rings, LINE_SLOTS[1])]
    {
        add("chardev", format!("socket,id={id},fd={fd}"));
        add("device", format!("pci-serial,chardev={id},addr={slot:#x}"));
    }
    add("chardev", format!("socket,id=qmp,fd={}", lines.qmp));
    add("mon", "chardev=qmp,mode=control".to_owned());
    for bridge in 0..BRIDGES {
        let (slot, chassis) = (FIRST_BRIDGE + bridge, bridge + 1);
        add(
            "device",
            format!(
                "pci-bridge,id=bridge{bridge},chassis_nr={chassis},addr={slot:#x},shpc=off,\
                 pref64-reserve={REGION_SPACE}"
            ),
        );
    }
    all.extend(tail());
    all
}

/// Returns the arguments of QEMU for the machine of a P4 switch, with these network devices.
pub(crate) fn switch_arguments(
    machine: &Machine,
    console: RawFd,
    line: RawFd,
    devices: &[NetworkDevice],
) -> Vec<String> {
    let shares_memory = devices.iter().any(NetworkDevice::shares_memory);
    let options = machine.options.clone();
    let options = if shares_memory { options.with_shared_memory() } else { options };
    let mut all = head(&Machine { options, ..machine.clone() }, "p4switch", console);
    let mut add = |name: &str, value: String| all.extend([format!("-{name}"), value]);
    add("device", "virtio-serial-pci,max_ports=2".to_owned());
    add("chardev", format!("socket,id=line,fd={line}"));
    add("device", "virtserialport,chardev=line,nr=1,name=line".to_owned());
    let is_emulated = machine.options.accelerator.starts_with(Accelerator::Tcg.name());
    let devices = devices.iter().enumerate();
    all.extend(devices.flat_map(|(n, device)| device.options(n, is_emulated)).flatten());
    all.extend(tail());
    all
}

/// Returns the arguments that all machines have in front.
fn head(machine: &Machine, name: &str, console: RawFd) -> Vec<String> {
    let path = |path: &Path| path.display().to_string();
    let mut all = machine.options.arguments();
    let mut add = |name: &str, value: String| all.extend([format!("-{name}"), value]);
    add("name", name.to_owned());
    add("kernel", path(&machine.kernel));
    add("initrd", path(&machine.initramfs));
    add("append", command_line(&machine.arguments));
    add("rtc", "base=utc,clock=host".to_owned());
    add("chardev", format!("socket,id=console,fd={console}"));
    add("serial", "chardev:console".to_owned());
    all
}

/// Returns the arguments that all machines have at the end.
fn tail() -> Vec<String> {
    let filter = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny";
    let all = ["-sandbox", filter, "-nodefaults", "-no-user-config", "-no-reboot"];
    all.into_iter().chain(["-display", "none", "-vga", "none"]).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nic::Nic;
    use crate::vhost::VhostNic;
    use p4shield_qemu::{Guest, QemuVersion, QuoteService, Request, SnpGuest, TdxGuest, Tee, options};
    use std::fs::File;
    use std::os::fd::AsRawFd;

    /// The machines with golden command lines.
    fn guests() -> [(&'static str, Accelerator, Guest); 4] {
        let snp = SnpGuest { host_data: Some([7; 32]), ..SnpGuest::default() };
        let tdx = TdxGuest { quotes: Some(QuoteService::default()), config_id: Some([7; 48]) };
        [
            ("tcg", Accelerator::Tcg, Guest::Plain),
            ("kvm", Accelerator::Kvm, Guest::Plain),
            ("sev-snp", Accelerator::Kvm, Guest::SevSnp(snp)),
            ("tdx", Accelerator::Kvm, Guest::Tdx(tdx)),
        ]
    }

    fn machine(accelerator: Accelerator, guest: Guest) -> Machine {
        let firmware = match guest.tee() {
            Tee::None => None,
            Tee::SevSnp => Some(Path::new("/usr/share/ovmf/OVMF.amdsev.fd")),
            Tee::Tdx => Some(Path::new("/usr/share/ovmf/OVMF.fd")),
        };
        let version = guest.tee().first_qemu();
        let (memory, processors) = (512 << 20, 2);
        let request = Request { guest, version, accelerator, memory, processors, firmware };
        Machine {
            qemu: "/usr/bin/qemu-system-x86_64".into(),
            options: options(&request).unwrap(),
            kernel: "/usr/lib/p4shield/image/vmlinuz".into(),
            initramfs: "/usr/lib/p4shield/image/initramfs".into(),
            arguments: vec!["--busy".to_owned()],
        }
    }

    #[test]
    fn the_command_lines_are_the_golden_ones() {
        let lines = Lines { console: 10, messages: 11, rings: 12, qmp: 13 };
        for (name, accelerator, guest) in guests() {
            is_golden(name, &arguments(&machine(accelerator, guest), &lines));
        }
        let machine = machine(Accelerator::Tcg, Guest::Plain);
        let nic = |fd, number| {
            let tap = File::open("/dev/null").unwrap();
            // A number that each run has.
            let tap = rustix::io::fcntl_dupfd_cloexec(tap, fd).unwrap();
            assert_eq!(tap.as_raw_fd(), fd);
            NetworkDevice::Tap(Nic { tap, address: [2, 0, 0, 0, 0, number], mtu: 1500 })
        };
        let mut devices = vec![nic(900, 0), nic(901, 1)];
        is_golden("switch", &switch_arguments(&machine, 10, 11, &devices));
        let address = [2, 0, 0, 0, 0, 1];
        let vhost = VhostNic { address, socket: "vhost2".to_owned(), mtu: None, queues: 1 };
        let several = VhostNic { mtu: Some(3000), queues: 2, ..vhost.clone() };
        devices[1] = NetworkDevice::VhostUser(vhost);
        is_golden("switch-vhost-user", &switch_arguments(&machine, 10, 11, &devices));
        devices[1] = NetworkDevice::VhostUser(several);
        let (accelerator, guest) = (Accelerator::Kvm, Guest::Plain);
        let arguments = switch_arguments(&self::machine(accelerator, guest), 10, 11, &devices);
        is_golden("switch-vhost-user-queues", &arguments);
    }

    /// Compares arguments with the file of this name, in which each option has a line.
    fn is_golden(name: &str, arguments: &[String]) {
        let text = arguments.join("\n").replace("\n-", " \n-");
        let file = format!("{}/tests/golden/{name}.txt", env!("CARGO_MANIFEST_DIR"));
        let text = text.replace(" \n-", "\u{0}").replace('\n', " ").replace('\u{0}', "\n-") + "\n";
        if std::env::var_os("P4SHIELD_BLESS").is_some() {
            std::fs::write(&file, &text).unwrap();
        }
        assert_eq!(text, std::fs::read_to_string(&file).unwrap(), "see P4SHIELD_BLESS in CONTRIBUTING.md");
    }

    /// Starts QEMU by emulation with the options of a TEE's machine, after a change. Returns what it says.
    fn refusal(tee: Tee, change: impl Fn(String) -> String) -> String {
        let (_, accelerator, guest) = guests().into_iter().find(|(_, _, g)| g.tee() == tee).unwrap();
        let streams = [(); 4].map(|()| std::os::unix::net::UnixStream::pair().unwrap());
        for (_, theirs) in &streams {
            rustix::io::fcntl_setfd(theirs, rustix::io::FdFlags::empty()).unwrap();
        }
        let [console, messages, rings, qmp] = streams.each_ref().map(|(_, theirs)| theirs.as_raw_fd());
        let lines = Lines { console, messages, rings, qmp };
        let mut machine = machine(accelerator, guest);
        machine.options.accelerator = "tcg";
        machine.options.cpu = "max".to_owned();
        let arguments = arguments(&machine, &lines).into_iter().map(change);
        let output = std::process::Command::new(p4shield_qemu::PROGRAM).args(arguments).output().unwrap();
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// Checks that QEMU, if it is recent enough, knows all that a TEE's machine has, and refuses it only
    /// since the processor lacks the TEE. `property` is one that it would miss.
    fn is_accepted(tee: Tee, property: &str, lacks: &str) {
        let (version, first) = (QemuVersion::of(Path::new(p4shield_qemu::PROGRAM)), tee.first_qemu());
        if version.as_ref().map_or(true, |v| *v < first) {
            p4shield_need::skip(lacks, format!("QEMU {first} or later is missing: {version:?}"));
            return;
        }
        let accepted = refusal(tee, |argument| argument);
        assert!(accepted.contains("KVM required"), "only the processor is missing: {accepted}");
        let unknown = refusal(tee, |argument| argument.replace(property, "no-such-property"));
        assert!(unknown.contains("no-such-property"), "{unknown}");
    }

    #[test]
    fn qemu_accepts_the_syntax_of_sev_snp() {
        is_accepted(Tee::SevSnp, "kernel-hashes", "qemu-snp");
    }

    #[test]
    fn qemu_accepts_the_syntax_of_tdx() {
        is_accepted(Tee::Tdx, "sept-ve-disable", "qemu-tdx");
    }
}
