//! The command that starts a P4 VM, as a process or in a virtual machine.

use p4shield_config::{Machine, Tee};
use p4shield_qemu::Accelerator;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

/// Longest time for a P4 VM to enter its sandbox and answer: long, since one that fails closes its socket.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest time for a virtual machine to boot, by emulation on a busy machine, and answer.
const BOOT_TIMEOUT: Duration = Duration::from_secs(130);

/// The command line of a P4 VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct P4VmCommand {
    /// The binary, started as `BINARY p4vm ...`.
    pub binary: PathBuf,
    /// The user that it runs as.
    pub uid: u32,
    /// Names of sandbox measures that may be missing.
    pub allow_missing: Vec<String>,
    /// Bytes of address space.
    pub memory: u64,
    /// The core that its worker runs on; `None`: any.
    pub cpu: Option<u32>,
    /// Whether its worker polls without sleeping.
    pub busy: bool,
    /// Artificial delay for each packet.
    pub delay: Duration,
    /// Its virtual machine; `None`: it is a process.
    pub machine: Option<Machine>,
    /// What keeps its virtual machine's memory from the host.
    pub tee: Tee,
    /// True if its virtual machine maps shared memory with write combining: for measurements, since such a
    /// mapping keeps no order of stores.
    pub write_combining: bool,
}

impl P4VmCommand {
    /// Returns the command that starts the P4 VM with the control socket as standard input.
    pub(crate) fn command(&self) -> Command {
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
        if self.write_combining {
            command.arg("--write-combining");
        }
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
    pub(crate) const fn slowness(&self) -> u32 {
        if self.machine.is_some() { 6 } else { 1 }
    }

    /// Returns the longest time until a P4 VM answers the first message. A virtual machine boots first.
    pub(crate) const fn start_timeout(&self) -> Duration {
        if self.machine.is_some() { BOOT_TIMEOUT } else { START_TIMEOUT }
    }

    /// Returns the time between two checks. Each one costs a virtual machine some hundred interrupts.
    pub const fn check_interval(&self) -> Duration {
        Duration::from_millis(if self.machine.is_some() { 1000 } else { 200 })
    }

    /// Returns the group that may read and write pages, beside their owner: QEMU's.
    pub fn page_group(&self) -> Option<u32> {
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
pub fn firmware(machine: &Machine, tee: Tee) -> &Path {
    let packaged = match tee {
        Tee::Tdx => p4shield_qemu::Tee::Tdx.firmware(),
        Tee::None | Tee::SevSnp => p4shield_qemu::Tee::SevSnp.firmware(),
    };
    machine.firmware.as_deref().unwrap_or(Path::new(packaged.unwrap_or_default().0))
}
