//! The command that starts a P4 VM, as a process or in a virtual machine, and what it may take.

use crate::config::{Compartment, Machine, Tee, Tenant};
use p4shield_compartment::Limits;
use p4shield_qemu::Accelerator;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

/// Longest time for a P4 VM to enter its sandbox and answer: long, since one that fails closes its socket.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest time for a virtual machine to boot, by emulation on a busy machine, and answer.
const BOOT_TIMEOUT: Duration = Duration::from_secs(130);
/// Most processes and threads of a P4 VM in a process.
const PROCESSES: u32 = 16;
/// The same for a virtual machine: QEMU has a thread for each processor and a pool for its own work.
const QEMU_PROCESSES: u32 = 192;
/// What QEMU needs beside the memory of its virtual machine: its own, translated code, and its page tables.
const QEMU_MEMORY: u64 = 384 << 20;

/// The command line of a P4 VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct P4VmCommand {
    /// The binary, started as `BINARY p4vm ...`.
    pub(crate) binary: PathBuf,
    /// The user that it runs as.
    pub(crate) uid: u32,
    /// Names of sandbox measures that may be missing.
    pub(crate) allow_missing: Vec<String>,
    /// Bytes of address space.
    pub(crate) memory: u64,
    /// The core that its worker runs on; `None`: any.
    pub(crate) cpu: Option<u32>,
    /// Whether its worker polls without sleeping.
    pub(crate) busy: bool,
    /// Artificial delay for each packet.
    pub(crate) delay: Duration,
    /// Its virtual machine; `None`: it is a process.
    pub(crate) machine: Option<Machine>,
    /// What keeps its virtual machine's memory from the host.
    pub(crate) tee: Tee,
}

impl P4VmCommand {
    /// Returns the command that starts the P4 VM with the control socket as standard input.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.binary);
        match self.machine {
            Some(_) => command.arg("vmm"),
            None => command.args(["p4vm", "--control-fd", "0"]),
        };
        command.args(["--uid", &self.uid.to_string()]);
        command.args(["--memory", &self.memory.to_string()]);
        if self.busy {
            command.arg("--busy");
        }
        if !self.delay.is_zero() {
            command.args(["--delay-ns", &self.delay.as_nanos().to_string()]);
        }
        let Some(machine) = &self.machine else {
            if let Some(cpu) = self.cpu {
                command.args(["--cpu", &cpu.to_string()]);
            }
            for m in &self.allow_missing {
                command.args(["--allow-missing", m]);
            }
            return command;
        };
        command.arg("--image").arg(&machine.image).arg("--qemu").arg(&machine.qemu);
        command.args(["--processors", &machine.processors.to_string()]);
        command.args(["--accelerator", accelerator(machine)]);
        self.add_tee(&mut command, machine);
        command
    }

    /// Adds the arguments for a machine with a TEE.
    fn add_tee(&self, command: &mut Command, machine: &Machine) {
        if self.tee == Tee::None {
            return;
        }
        command.args(["--tee", self.tee.name()]).arg("--firmware").arg(firmware(machine, self.tee));
        if let Some(processor) = &machine.processor {
            command.args(["--processor", processor]);
        }
        if let Some(service) = &machine.quote_service {
            command.args(["--quote-service", service]);
        }
    }

    /// Returns how many times longer than a process a P4 VM may take to answer: instructions may be emulated.
    pub(super) const fn slowness(&self) -> u32 {
        if self.machine.is_some() { 6 } else { 1 }
    }

    /// Returns the longest time until a P4 VM answers the first message. A virtual machine boots first.
    pub(super) const fn start_timeout(&self) -> Duration {
        if self.machine.is_some() { BOOT_TIMEOUT } else { START_TIMEOUT }
    }

    /// Returns the time between two checks. Each one costs a virtual machine some hundred interrupts.
    pub(super) const fn check_interval(&self) -> Duration {
        Duration::from_millis(if self.machine.is_some() { 1000 } else { 200 })
    }

    /// Returns the group that may read and write pages, beside their owner: QEMU's.
    pub(super) fn page_group(&self) -> Option<u32> {
        let is_other_user = self.machine.is_some() && rustix::process::geteuid().is_root();
        is_other_user.then_some(self.uid)
    }
}

/// Returns QEMU's name of the accelerator: that of the configuration, or the best one that works, which
/// is found once.
fn accelerator(machine: &Machine) -> &'static str {
    static BEST: OnceLock<Accelerator> = OnceLock::new();
    machine.accelerator.unwrap_or_else(|| {
        let best = || {
            let best = Accelerator::probe(&machine.qemu);
            tracing::info!(event = "accelerator", accelerator = best.name(), "virtual machines run with it");
            best
        };
        BEST.get_or_init(best).name()
    })
}

/// Returns the firmware of machines with a TEE: that of the configuration, or Debian's.
pub(crate) fn firmware(machine: &Machine, tee: Tee) -> &Path {
    let packaged = match tee {
        Tee::Tdx => "/usr/share/ovmf/OVMF.inteltdx.ms.fd",
        Tee::None | Tee::SevSnp => "/usr/share/ovmf/OVMF.amdsev.fd",
    };
    machine.firmware.as_deref().unwrap_or(Path::new(packaged))
}

/// Returns what the P4 VM of a tenant may use of the host.
pub(super) const fn limits(tenant: &Tenant) -> Limits {
    let (memory, processes) = match tenant.compartment {
        Compartment::Process => (tenant.memory, PROCESSES),
        Compartment::Vm => (tenant.memory.saturating_add(QEMU_MEMORY), QEMU_PROCESSES),
    };
    Limits { memory, cpu_percent: tenant.cpu_percent, processes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qemus_own_memory_comes_on_top_of_the_machines() {
        let text = "attachment = \"wire\"\n[[tenant]]\nname = \"alice\"\nmemory = \"1GiB\"\n\
                    cpu_percent = 50\n\
                    [[tenant.vm]]\nname = \"web\"\naddresses = [\"10.0.0.2\"]\n\
                    [[wire]]\ntenant = \"alice\"\nvm = \"web\"\nvm_interface = \"a\"\n\
                    switch_interface = \"b\"\n";
        let config = crate::config::Config::parse(Path::new("p4shield.toml"), text).unwrap();
        let mut alice = config.tenants.into_iter().next().unwrap();
        let process = Limits { memory: 1 << 30, cpu_percent: Some(50), processes: PROCESSES };
        assert_eq!(limits(&alice), process);
        alice.compartment = Compartment::Vm;
        let machine = Limits { memory: (1 << 30) + QEMU_MEMORY, processes: QEMU_PROCESSES, ..process };
        assert_eq!(limits(&alice), machine);
    }
}
