//! Placement `pipeline` in a virtual machine: the process that starts it.
//!
//! ```text
//!   interface ── macvtap, in QEMU's network namespace ── QEMU: virtio-net ──► AF_XDP, switch (`guest`)
//!   vhost-user switch ── the machine's memory ────────── virtio-net ────────► (`vhost`)
//!   clients ──► relay ── virtio-serial: frames ─────────────────────────────► desk
//! ```
//!
//! This process reads no packet and parses no client's request. If it ends, so does QEMU; with QEMU ends its
//! network namespace, and with that the taps.

use crate::line::Setup;
use crate::relay::{Entrances, Relay, RelayError};
use crate::run::{SwitchError, check_inside, listen_for_metrics, listen_on};
use crate::surroundings::compartment_user;
use crate::vhost::{Connected, Qemu, VHOST_USER, VhostPort, connect_all, name_inside};
use p4shield_io::ports::CONTROLLER;
use p4shield_line::switch::{FromSwitch, SWITCH_VERSION, ToSwitch};
use p4shield_links::{LinkError, Tap};
use p4shield_runtime::sandbox::new_network;
use p4shield_text::{chain, printable};
use p4shield_vmm::{NetworkDevice, Nic, SwitchMachine, VhostNic, copy_lines};
use rustix::fd::{AsFd as _, BorrowedFd};
use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Longest time until the machine's program asks for its configuration: by emulation, on a loaded machine.
const BOOT: Duration = Duration::from_secs(120);
/// Longest time until the switch forwards: its program is verified by emulation.
const START: Duration = Duration::from_secs(300);
/// Longest time for the machine to end by itself.
const GRACE: Duration = Duration::from_secs(5);
/// Time between two looks for the request to stop.
const LOOK: Duration = Duration::from_millis(100);
/// The most network devices: slots on QEMU's bus.
const MAX_NICS: usize = 24;

/// How a switch's machine is started.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The socket for commands.
    pub socket: PathBuf,
    /// The machine.
    pub machine: p4shield_vmm::Machine,
}

/// Has a switch forward packets in a virtual machine until `stop` is set. Calls `ready` once the ports are
/// open and the socket answers. Must be called while the process has one thread.
///
/// # Errors
/// [`SwitchError`]: the switch did not start, or its machine has ended.
pub fn run_in_machine(
    setup: &Setup,
    launch: &Machine,
    stop: &AtomicBool,
    ready: impl FnOnce(),
) -> Result<(), SwitchError> {
    check_inside(&setup.ports, setup.threads)?;
    let sockets = VhostPort::among(&setup.ports, setup.threads)?;
    let is_interface = |name: &&String| *name != CONTROLLER && !name.starts_with(VHOST_USER);
    let names: Vec<_> = setup.ports.iter().map(|(_, name)| name).filter(is_interface).cloned().collect();
    let ports = names.len() + sockets.len();
    if ports > MAX_NICS {
        return Err(SwitchError::TooManyInside { ports, most: MAX_NICS });
    }
    let metrics = setup.metrics.map(listen_for_metrics).transpose()?.map(|(_, listener)| listener);
    metrics.as_ref().map(|listener| listener.set_nonblocking(true)).transpose().map_err(broken)?;
    let entrances = Entrances { commands: listen_on(&launch.socket)?, metrics };
    let network = Arc::new(new_network().map_err(broken)?);
    let taps = names.iter().enumerate().map(|(n, name)| Tapped::of(name, network.as_fd(), n));
    let taps = taps.collect::<Result<Vec<_>, _>>()?;
    let Some((connected, _listeners)) = connect_all(sockets, stop)? else { return Ok(()) };
    let devices = Devices::of(&taps, connected)?;
    let started = SwitchMachine::start(&launch.machine, compartment_user(), network.as_fd(), devices.all);
    let (machine, line, console) = started.map_err(|e| broken(io::Error::other(chain(&e))))?;
    // From here on QEMU has them: they end with its network namespace.
    taps.into_iter().for_each(|tapped| drop(tapped.tap.into_file()));
    let ending = Arc::new(AtomicBool::new(false));
    let kept = devices.connected.into_iter().try_for_each(|(port, nic)| {
        port.keep(Qemu { nic, network: Arc::clone(&network), ending: Arc::clone(&ending) })
    });
    drop(network);
    let (interfaces, ends) = (devices.interfaces, Arc::clone(&ending));
    let served = kept.map_err(broken).and_then(|()| Relay::new(line).map_err(broken)).and_then(|relay| {
        let copy = std::thread::Builder::new().name("console".to_owned());
        copy.spawn(move || copy_lines(console)).map_err(broken)?;
        Host { relay, entrances, interfaces, ending: ends, said: VecDeque::new() }.serve(setup, stop, ready)
    });
    ending.store(true, Ordering::Relaxed);
    let says_why = !matches!(served, Err(SwitchError::Compartment(_)));
    let how = machine.end(if says_why { GRACE } else { Duration::ZERO });
    match served {
        Err(SwitchError::Ended(_)) => Err(SwitchError::Ended(how)),
        other => other,
    }
}

fn broken(error: impl Into<io::Error>) -> SwitchError {
    SwitchError::Compartment(error.into())
}

/// The network devices of a machine.
#[derive(Default)]
struct Devices {
    all: Vec<NetworkDevice>,
    /// Their addresses, and their names in the machine.
    interfaces: Vec<([u8; 6], String)>,
    /// Connections to vhost-user switches, each with its device.
    connected: Vec<(Connected, VhostNic)>,
}

impl Devices {
    fn of(taps: &[Tapped], connected: Vec<Connected>) -> Result<Self, SwitchError> {
        let mut devices = Self::default();
        for tapped in taps {
            let tap = tapped.tap.as_fd().try_clone_to_owned().map_err(broken)?;
            let address = devices.name(tapped.interface.clone());
            devices.all.push(NetworkDevice::Tap(Nic { tap, address, mtu: tapped.mtu }));
        }
        for port in connected {
            let nic = port.device(devices.name(port.interface()));
            devices.all.push(NetworkDevice::VhostUser(nic.clone()));
            devices.connected.push((port, nic));
        }
        Ok(devices)
    }

    /// Notes the name of a further device, and returns its address: locally administered, and known to the
    /// machine only, which finds its devices by them.
    fn name(&mut self, interface: String) -> [u8; 6] {
        let address = [0x02, b'P', b'4', 0, 0, self.all.len() as u8];
        self.interfaces.push((address, interface));
        address
    }
}

/// A network interface, and the tap with its packets.
struct Tapped {
    interface: String,
    tap: Tap,
    mtu: u32,
}

impl Tapped {
    /// Makes the tap in the network namespace of QEMU: it ends with that, however this process ends, also
    /// while it waits for a DPDK switch.
    fn of(interface: &str, namespace: BorrowedFd<'_>, number: usize) -> Result<Self, LinkError> {
        let tap = Tap::of_in(namespace, interface, &format!("tap{number}"))?;
        p4shield_links::start_in(namespace, tap.name())?;
        let mtu = tap.mtu()?;
        Ok(Self { interface: interface.to_owned(), tap, mtu })
    }
}

/// This side of the line.
struct Host {
    relay: Relay,
    entrances: Entrances,
    interfaces: Vec<([u8; 6], String)>,
    /// Set before the machine is told to end: a port that loses its connection then is no problem.
    ending: Arc<AtomicBool>,
    /// Messages that are not read yet.
    said: VecDeque<FromSwitch>,
}

impl Host {
    /// Configures the switch, and passes the bytes of clients on until `stop` is set.
    fn serve(mut self, setup: &Setup, stop: &AtomicBool, ready: impl FnOnce()) -> Result<(), SwitchError> {
        let mut inside = setup.clone();
        inside.ports.iter_mut().for_each(|(number, name)| *name = name_inside(*number, name));
        let json = serde_json::to_vec(&inside).map_err(|e| broken(io::Error::from(e)))?;
        let booted = self.wait_for(BOOT, stop)?;
        match booted {
            None => return Ok(()),
            Some(FromSwitch::Booted { version: SWITCH_VERSION }) => {}
            Some(_) => return Err(broken(io::Error::other(OTHER_IMAGE))),
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let interfaces = std::mem::take(&mut self.interfaces);
        let unix_ns = u64::try_from(now).unwrap_or(u64::MAX);
        self.relay.send(&ToSwitch::Setup { json, unix_ns, interfaces }).map_err(ended)?;
        match self.wait_for(START, stop)? {
            None => return self.stop(),
            Some(FromSwitch::Forwarding) => ready(),
            Some(_) => return Err(broken(io::Error::other("its program breaks the protocol"))),
        }
        while !stop.load(Ordering::Relaxed) {
            let said = self.relay.round(Some(&mut self.entrances), LOOK).map_err(ended)?;
            self.said.extend(said);
            while let Some(message) = self.said.pop_front() {
                refusal(message)?;
            }
        }
        self.stop()
    }

    /// Waits for the next message of the switch; `None`: `stop` is set.
    fn wait_for(&mut self, longest: Duration, stop: &AtomicBool) -> Result<Option<FromSwitch>, SwitchError> {
        let end = Instant::now() + longest;
        while !stop.load(Ordering::Relaxed) {
            if Instant::now() > end {
                let late = format!("it does not start within {} s", longest.as_secs());
                return Err(broken(io::Error::new(io::ErrorKind::TimedOut, late)));
            }
            if let Some(message) = self.said.pop_front() {
                return refusal(message).map(Some);
            }
            self.said.extend(self.relay.round(None, LOOK).map_err(ended)?);
        }
        Ok(None)
    }

    /// Has the switch end.
    fn stop(mut self) -> Result<(), SwitchError> {
        self.ending.store(true, Ordering::Relaxed);
        let end = Instant::now() + GRACE;
        let mut sent = self.relay.send(&ToSwitch::Stop);
        while sent.is_ok() && Instant::now() < end {
            sent = self.relay.round(None, LOOK).map(drop);
        }
        Ok(())
    }
}

/// Returns the error that the switch reports, or its message.
fn refusal(message: FromSwitch) -> Result<FromSwitch, SwitchError> {
    match message {
        FromSwitch::Refused(why) => Err(SwitchError::Refused(printable(&why))),
        FromSwitch::Failed(why) => Err(SwitchError::Inside(printable(&why))),
        other => Ok(other),
    }
}

fn ended(error: RelayError) -> SwitchError {
    match error {
        RelayError::Ended => SwitchError::Ended(String::new()),
        other => broken(io::Error::other(chain(&other))),
    }
}

const OTHER_IMAGE: &str = "its image is of another version; build it with `p4shield image build --switch` of \
                           the same version";
