//! Ports of a thread that may be network interfaces, DPDK devices, capture files, and that of the controller.
//!
//! Without a DPDK device, no library of DPDK is loaded.

use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::Duration;

use p4shield_dpdk_ports::{DpdkConfig, DpdkPorts, FurtherDevices, OpenDevices};
use p4shield_switch::{ExchangePorts, MAX_PORTS, PacketIo, Refused, Unsent, Way};

use crate::afxdp::{self, AfxdpConfig, AfxdpPorts, InterfacePort};
use crate::controller::Controller;
use crate::pcap::{self, PcapPorts, PortFiles};

/// The prefix of a DPDK device's name.
pub const DPDK: &str = "dpdk:";

/// The prefix of the names of capture files: one to read and one to write, separated by a comma. Either may
/// be empty.
pub const PCAP: &str = "pcap:";

/// The name of the controller's port ([`Controller`]). No interface has a colon in its name.
pub const CONTROLLER: &str = "cpu:controller";

/// The ports, and how those of DPDK are opened.
#[derive(Clone, Debug, Default)]
pub struct PortsConfig {
    /// Names in the order of the ports' numbers: interfaces, DPDK devices after [`DPDK`], capture files after
    /// [`PCAP`], or [`CONTROLLER`].
    pub names: Vec<String>,
    /// EAL's options, separated by blanks; see [`DpdkConfig::options`].
    pub dpdk_options: Option<String>,
    /// The library for DPDK devices; see [`DpdkConfig::library`].
    pub dpdk_library: Option<PathBuf>,
}

/// Ports that are open.
#[derive(Debug)]
pub struct OpenPorts {
    /// Those of the calling thread.
    pub ports: Ports,
    /// The ways of the calling thread, by place.
    pub ways: Vec<Way>,
    /// The parts of further threads.
    pub further: Vec<FurtherPorts>,
    /// The index of each place's interface.
    pub indexes: Vec<Option<u32>>,
}

/// The part of a further thread, on its way there.
#[derive(Debug)]
pub struct FurtherPorts {
    places: Vec<Place>,
    interfaces: AfxdpPorts,
    devices: Option<FurtherDevices>,
    /// The thread's ways, by place.
    pub ways: Vec<Way>,
}

impl FurtherPorts {
    /// Returns the ports of the calling thread.
    ///
    /// # Errors
    /// [`Error::Device`]: DPDK takes no further thread.
    pub fn into_ports(self) -> Result<Ports, Error> {
        let Self { places, interfaces, devices, .. } = self;
        let devices = devices.map(FurtherDevices::into_ports).transpose()?.flatten();
        Ok(Ports { places, interfaces, devices, files: PcapPorts::default(), controller: None })
    }
}

/// The reason why a port cannot be opened, or packets cannot be awaited.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A network interface.
    #[error(transparent)]
    Interface(#[from] afxdp::Error),
    /// A DPDK device.
    #[error(transparent)]
    Device(#[from] p4shield_dpdk_ports::Error),
    /// A capture file.
    #[error(transparent)]
    File(#[from] pcap::Error),
}

/// A port's place among those of its kind.
#[derive(Clone, Copy, Debug)]
enum Place {
    Interface(usize),
    Device(usize),
    File(usize),
    Controller,
    /// Another thread has the port.
    Elsewhere,
}

/// The names of ports by kind, and the places of all.
struct Sorted<'a> {
    places: Vec<Place>,
    interfaces: Vec<&'a str>,
    devices: Vec<String>,
    files: Vec<PortFiles>,
}

impl<'a> Sorted<'a> {
    fn of(names: &'a [String]) -> Self {
        let mut places = Vec::with_capacity(MAX_PORTS);
        let (mut interfaces, mut devices, mut files) = (Vec::new(), Vec::new(), Vec::new());
        for name in names {
            places.push(if name == CONTROLLER {
                Place::Controller
            } else if let Some(device) = name.strip_prefix(DPDK) {
                devices.push(device.to_owned());
                Place::Device(devices.len() - 1)
            } else if let Some(names) = name.strip_prefix(PCAP) {
                files.push(port_files(names));
                Place::File(files.len() - 1)
            } else {
                interfaces.push(name.as_str());
                Place::Interface(interfaces.len() - 1)
            });
        }
        Self { places, interfaces, devices, files }
    }
}

/// The first thread has all ports but interfaces and DPDK devices, which threads share.
const ELSEWHERE: Way = Way { thread: Some(0), has_queue: false };

/// The ports of a thread, opened by [`Ports::open`].
#[derive(Debug)]
pub struct Ports {
    /// By place. Has capacity for all, so that the packet thread allocates nothing.
    places: Vec<Place>,
    interfaces: AfxdpPorts,
    devices: Option<DpdkPorts>,
    files: PcapPorts,
    controller: Option<Box<Controller>>,
}

impl Ports {
    /// Opens the ports for this many threads, of which the calling one is the first.
    ///
    /// # Errors
    /// An interface or a device cannot be opened; then none is.
    pub fn open(config: &PortsConfig, threads: usize) -> Result<OpenPorts, Error> {
        Self::open_by(config, threads, |interfaces| {
            AfxdpPorts::open_for(&AfxdpConfig::new(interfaces), threads)
        })
    }

    /// As [`Ports::open`]; interfaces are opened by `open`, which gets their names.
    ///
    /// # Errors
    /// As [`Ports::open`].
    pub fn open_by(
        config: &PortsConfig,
        threads: usize,
        open: impl FnOnce(Vec<String>) -> Result<Vec<(AfxdpPorts, Vec<Way>)>, afxdp::Error>,
    ) -> Result<OpenPorts, Error> {
        let Sorted { places, interfaces, devices, files } = Sorted::of(&config.names);
        // Outputs are created only if all else is there.
        let mut parts = open(interfaces.into_iter().map(str::to_owned).collect())?;
        let (options, library) = (config.dpdk_options.clone(), config.dpdk_library.clone());
        let dpdk = DpdkConfig { devices, options, library };
        let opened = (!dpdk.devices.is_empty()).then(|| DpdkPorts::open_for(&dpdk, threads)).transpose()?;
        let has_controller = config.names.iter().any(|name| name == CONTROLLER);
        let controller = has_controller.then(|| Box::new(Controller::new()));
        let files = PcapPorts::open(&files)?;
        let index = |place: &Place| match *place {
            Place::Interface(index) => parts.iter().find_map(|(ports, _)| ports.index(index)),
            _ => None,
        };
        let indexes = places.iter().map(index).collect();
        let others = parts.split_off(1);
        let (interfaces, to_interfaces) = parts.swap_remove(0);
        let (devices, to_devices, further_devices) = match opened {
            Some(OpenDevices { ports, ways, further }) => (Some(ports), ways, further),
            None => Default::default(),
        };
        let further_devices = further_devices.into_iter().map(Some).chain(std::iter::repeat_with(|| None));
        let others = others.into_iter().zip(further_devices);
        let further = others.map(|((io, ways), devices)| further(&places, io, &ways, devices)).collect();
        let ways = ways(&places, &to_interfaces, &to_devices, Way::OWN);
        let ports = Self { places, interfaces, devices, files, controller };
        Ok(OpenPorts { ports, ways, further, indexes })
    }

    /// Returns whether all ports are capture files.
    #[must_use]
    pub fn are_files(&self) -> bool {
        self.places.iter().all(|place| matches!(place, Place::File(_)))
    }

    /// Returns the port of the controller, if there is one.
    pub fn controller(&mut self) -> Option<&mut Controller> {
        self.controller.as_deref_mut()
    }
}

/// Returns the part of a further thread from its parts of the interfaces and devices.
fn further(
    places: &[Place],
    interfaces: AfxdpPorts,
    to_interfaces: &[Way],
    devices: Option<FurtherDevices>,
) -> FurtherPorts {
    let mut own = Vec::with_capacity(MAX_PORTS);
    let is_shared = |place: &Place| matches!(place, Place::Interface(_) | Place::Device(_));
    own.extend(places.iter().map(|place| if is_shared(place) { *place } else { Place::Elsewhere }));
    let to_devices = devices.as_ref().map_or(&[][..], |part| &part.ways);
    let ways = ways(places, to_interfaces, to_devices, ELSEWHERE);
    FurtherPorts { places: own, interfaces, devices, ways }
}

/// Returns the ways by place, from those to interfaces and devices, and the one to all else.
fn ways(places: &[Place], to_interfaces: &[Way], to_devices: &[Way], other: Way) -> Vec<Way> {
    let way = |place: &Place| match *place {
        Place::Interface(index) => to_interfaces[index],
        Place::Device(index) => to_devices[index],
        _ => other,
    };
    places.iter().map(way).collect()
}

/// Returns the files of a port from their names.
fn port_files(names: &str) -> PortFiles {
    let (input, output) = names.split_once(',').unwrap_or((names, ""));
    let file = |name: &str| (!name.is_empty()).then(|| PathBuf::from(name));
    PortFiles { input: file(input), output: file(output) }
}

impl PacketIo for Ports {
    type Error = Error;

    fn ports(&self) -> usize {
        self.places.len()
    }

    #[inline]
    fn receive(&mut self, port: usize, most: usize, each: impl FnMut(&[u8])) -> Result<usize, Error> {
        Ok(match (self.places[port], &mut self.devices) {
            (Place::Interface(index), _) => self.interfaces.receive(index, most, each)?,
            (Place::Device(index), Some(devices)) => devices.receive(index, most, each)?,
            (Place::Device(_), None) => 0,
            (Place::File(index), _) => self.files.receive(index, most, each)?,
            (Place::Controller, _) => self.controller.as_mut().map_or(0, |c| c.receive(most, each)),
            (Place::Elsewhere, _) => 0,
        })
    }

    #[inline]
    fn send(&mut self, port: usize, packet: &[u8]) -> bool {
        match (self.places[port], &mut self.devices) {
            (Place::Interface(index), _) => self.interfaces.send(index, packet),
            (Place::Device(index), Some(devices)) => devices.send(index, packet),
            (Place::Device(_), None) => false,
            (Place::File(index), _) => self.files.send(index, packet),
            (Place::Controller, _) => self.controller.as_mut().is_some_and(|c| c.send(packet)),
            (Place::Elsewhere, _) => false,
        }
    }

    fn is_up(&self, port: usize) -> bool {
        match (self.places[port], &self.devices) {
            (Place::Interface(index), _) => self.interfaces.is_up(index),
            (Place::Device(index), Some(devices)) => devices.is_up(index),
            (Place::Device(_), None) | (Place::Elsewhere, _) => false,
            (Place::File(index), _) => self.files.is_up(index),
            (Place::Controller, _) => true,
        }
    }

    fn flush(&mut self) -> Result<(), Error> {
        if let Some(devices) = &mut self.devices {
            devices.flush()?;
        }
        self.interfaces.flush()?;
        Ok(self.files.flush()?)
    }

    fn ended(&self) -> bool {
        self.are_files() && self.files.ended()
    }

    /// A thread that receives from a DPDK device polls, and sleeps for a moment at most: see [`DpdkPorts`].
    fn wait(&mut self, longest: Duration, bell: Option<BorrowedFd<'_>>) -> Result<(), Error> {
        let pause = self.devices.as_mut().map_or(longest, |devices| longest.min(devices.pause()));
        // The thread looks for commands in each round anyway.
        if self.devices.is_some() && pause.is_zero() {
            return Ok(());
        }
        Ok(self.interfaces.wait(pause, bell)?)
    }
}

/// Interfaces come and go; other ports stay until the switch stops.
impl ExchangePorts for Ports {
    type Port = InterfacePort;

    fn exchange(&mut self, place: usize, port: &mut Option<InterfacePort>) -> Result<(), Refused> {
        let next = Place::Interface(self.interfaces.ports());
        match self.places.get(place).copied().unwrap_or(next) {
            Place::Interface(index) => self.interfaces.exchange(index, port)?,
            Place::Device(_) => return Err(Refused("a DPDK device is a port until the switch stops")),
            Place::File(_) => return Err(Refused("a capture file is a port until the switch stops")),
            Place::Controller => return Err(Refused("the CPU port is one until the switch stops")),
            Place::Elsewhere => return Err(Refused("another thread has the port until the switch stops")),
        }
        if place == self.places.len() {
            self.places.push(next);
        }
        Ok(())
    }

    fn unsent(&mut self, place: usize) -> Unsent {
        match self.places[place] {
            Place::Interface(index) => self.interfaces.unsent(index),
            // They do not leave their places.
            Place::Device(_) | Place::File(_) | Place::Controller | Place::Elsewhere => Unsent::default(),
        }
    }

    fn set_up(&mut self, place: usize, up: bool) {
        if let Place::Interface(index) = self.places[place] {
            self.interfaces.set_up(index, up);
        }
    }

    fn lost(&self, place: usize) -> Option<&'static str> {
        match (self.places[place], &self.devices) {
            (Place::Interface(index), _) => self.interfaces.lost(index),
            (Place::Device(index), Some(devices)) => devices.lost(index),
            (Place::Device(_), None) | (Place::File(_) | Place::Controller | Place::Elsewhere, _) => None,
        }
    }
}
