//! A compartment that is a virtual machine: QEMU in the sandbox, with Open vSwitch in the machine. The
//! process beside QEMU passes orders and answers on, and parses neither.

use super::InsideError;
use super::lines::{MAX_SETUP, MachineSetup};
use crate::order::{Answer, MAX_RAN};
use crate::read_line::read_line;
use p4shield_image::{Image, ImageKind};
use p4shield_links::Tap;
use p4shield_qemu::{Accelerator, Guest, QemuVersion, Request, options};
use p4shield_text::{chain, printable};
use p4shield_vmm::{Nic, SwitchMachine, copy_lines};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::Gid;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::error::Error;
use std::io::{self, BufReader, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Longest time until the machine's switch runs: by emulation, on a loaded machine.
const BOOT: Duration = Duration::from_secs(180);
/// Longest time for the machine to answer an order.
const ORDER: Duration = Duration::from_secs(60);
/// Longest time for threads to end that have nothing more to do.
const THREADS: Duration = Duration::from_secs(10);
/// Processors of a machine. The switch's compartment has one core.
const PROCESSORS: u32 = 1;

/// A compartment's virtual machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The folder of the image, which the compartment's user can read.
    pub image: PathBuf,
    /// QEMU's program, searched in `PATH` if it has no slash.
    pub qemu: PathBuf,
    /// QEMU's name of the accelerator, `kvm` or `tcg`.
    pub accelerator: String,
    /// Its memory in bytes.
    pub memory: u64,
    /// Its network devices.
    pub ports: Vec<MachinePort>,
}

/// A network device of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachinePort {
    /// The interface that it gets the packets of, in the host's network namespace.
    pub interface: String,
    /// The name of the tap there that is made of it.
    pub tap: String,
    /// Its Ethernet address.
    pub address: [u8; 6],
    /// Its name in the machine.
    pub name: String,
}

/// A machine whose files and taps are open, before the process gives up what it takes to open them.
pub(super) struct Prepared {
    machine: p4shield_vmm::Machine,
    nics: Vec<Nic>,
    /// The devices' addresses and names.
    names: Vec<([u8; 6], String)>,
    /// The folders that the sandbox shows beside the host's `/usr`.
    pub(super) visible: Vec<PathBuf>,
    /// The groups of the host's devices that QEMU opens.
    pub(super) groups: Vec<Gid>,
}

impl Prepared {
    /// Opens what the machine needs. Called as root, in the host's namespaces.
    ///
    /// # Errors
    /// The image is none, QEMU is missing, or an interface has no tap.
    pub(super) fn new(machine: &Machine) -> Result<Self, InsideError> {
        let failed = |e: &(dyn Error + 'static)| InsideError::Switch(chain(e));
        let image = Image::of_kind(&machine.image, ImageKind::TenantSwitch).map_err(|e| failed(&e))?;
        let is_kvm = machine.accelerator == Accelerator::Kvm.name();
        let request = Request {
            guest: Guest::Plain,
            version: QemuVersion::of(&machine.qemu).map_err(|e| failed(&e))?,
            accelerator: if is_kvm { Accelerator::Kvm } else { Accelerator::Tcg },
            memory: machine.memory >> 20 << 20,
            processors: PROCESSORS,
            firmware: None,
        };
        let options = options(&request).map_err(|e| failed(&e))?;
        let nics = machine.ports.iter().map(nic).collect::<Result<_, _>>()?;
        wait_for_one_thread()?;
        let groups: BTreeSet<_> =
            options.devices.iter().filter_map(|device| Some(std::fs::metadata(device).ok()?.gid())).collect();
        let visible = [Some(machine.image.clone()), installation(&machine.qemu)];
        let Image { kernel, initramfs, .. } = image;
        Ok(Self {
            nics,
            names: machine.ports.iter().map(|port| (port.address, port.name.clone())).collect(),
            visible: visible.into_iter().flatten().collect(),
            groups: groups.into_iter().map(Gid::from_raw).collect(),
            machine: p4shield_vmm::Machine {
                qemu: machine.qemu.clone(),
                options,
                kernel,
                initramfs,
                arguments: Vec::new(),
            },
        })
    }

    /// Returns the devices of the host that QEMU opens.
    pub(super) fn devices(&self) -> &[&'static Path] {
        &self.machine.options.devices
    }

    /// Starts the machine, in the sandbox, and waits until its switch runs.
    ///
    /// # Errors
    /// QEMU does not start, or the switch says why it does not.
    pub(super) fn start(self) -> Result<Running, InsideError> {
        let Self { machine, nics, names, .. } = self;
        let started = SwitchMachine::start_in_sandbox(&machine, nics);
        let (machine, line, console) = started.map_err(|e| InsideError::Switch(chain(&e)))?;
        let copy = std::thread::Builder::new().spawn(move || copy_lines(console));
        copy.map_err(|e| InsideError::Switch(format!("cannot start a thread: {e}")))?;
        let mut running = Running { machine, line: BufReader::new(line) };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let setup = MachineSetup { unix_ns: u64::try_from(now).unwrap_or(u64::MAX), interfaces: names };
        let setup = serde_json::to_string(&setup).unwrap_or_default() + "\n";
        debug_assert!(setup.len() as u64 <= MAX_SETUP);
        let answer = running.answer(setup.as_bytes(), BOOT).map_err(|e| running.failure(&e))?;
        match serde_json::from_slice(&answer) {
            Ok(Answer { error: None, .. }) => Ok(running),
            Ok(Answer { error: Some(why), .. }) => Err(InsideError::Switch(printable(&why))),
            Err(e) => Err(InsideError::Switch(format!("the machine's program breaks the protocol: {e}"))),
        }
    }
}

/// Waits until the threads have ended that libraries started for requests to the kernel. A process with
/// several threads gets no user namespace.
fn wait_for_one_thread() -> Result<(), InsideError> {
    let end = Instant::now() + THREADS;
    loop {
        let threads = std::fs::read_dir("/proc/self/task").map(Iterator::count);
        match threads.map_err(|e| InsideError::Switch(format!("cannot list its threads: {e}")))? {
            0 | 1 => return Ok(()),
            n if Instant::now() > end => {
                return Err(InsideError::Switch(format!("{n} threads do not end")));
            }
            _ => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// Makes the tap of a port. It ends with the port's interface.
fn nic(port: &MachinePort) -> Result<Nic, InsideError> {
    let failed = |e: &(dyn Error + 'static)| InsideError::Switch(chain(e));
    let tap = Tap::of(&port.interface, &port.tap).map_err(|e| failed(&e))?;
    let mtu = tap.mtu().map_err(|e| failed(&e))?;
    let file = tap.into_file();
    Ok(Nic { tap: file.into(), address: port.address, mtu })
}

/// Returns the folder where a program is installed, `PREFIX` of `PREFIX/bin/PROGRAM`, if it is not `/usr`.
fn installation(program: &Path) -> Option<PathBuf> {
    let prefix = program.parent()?.parent()?;
    (prefix.components().count() > 1 && !program.starts_with("/usr")).then(|| prefix.to_owned())
}

/// A machine that runs.
pub(super) struct Running {
    machine: SwitchMachine,
    line: BufReader<UnixStream>,
}

impl Running {
    /// Has the machine execute an order, a line. Returns its answer, a line.
    ///
    /// # Errors
    /// It has ended or does not answer in time: it is of no further use.
    pub(super) fn execute(&mut self, order: &[u8]) -> Result<Vec<u8>, InsideError> {
        self.answer(order, ORDER).map_err(|e| self.failure(&e))
    }

    fn answer(&mut self, order: &[u8], longest: Duration) -> io::Result<Vec<u8>> {
        let line = self.line.get_ref();
        line.set_read_timeout(Some(longest))?;
        line.set_write_timeout(Some(longest))?;
        self.line.get_mut().write_all(order)?;
        match read_line(&mut self.line, MAX_RAN)? {
            Some(answer) => Ok(answer),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Waits until a client connects to the socket.
    ///
    /// # Errors
    /// The machine has ended, or says something without being asked.
    pub(super) fn wait_for(&mut self, socket: BorrowedFd<'_>) -> Result<(), InsideError> {
        loop {
            let line = self.line.get_ref().as_fd();
            let mut fds = [
                PollFd::from_borrowed_fd(socket, PollFlags::IN),
                PollFd::from_borrowed_fd(line, PollFlags::IN),
            ];
            // A signal shortens the wait.
            let _ = poll(&mut fds, None);
            let [client, machine] = fds.map(|fd| !fd.revents().is_empty());
            if machine {
                return Err(self.failure(&io::ErrorKind::UnexpectedEof.into()));
            }
            if client {
                return Ok(());
            }
        }
    }

    /// Returns why the machine cannot be used further.
    fn failure(&mut self, error: &io::Error) -> InsideError {
        // Its last words are in the log; QEMU needs a moment to end.
        std::thread::sleep(Duration::from_millis(100));
        InsideError::Switch(match self.machine.ended() {
            Some(how) => format!("the virtual machine has ended ({how})"),
            None => format!("the virtual machine does not answer: {error}"),
        })
    }
}
