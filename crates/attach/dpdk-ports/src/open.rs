//! Opens devices, and shares their queues among threads.

use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use p4shield_switch::{Share, Way};

use crate::buffers::{Buffers, KEPT};
use crate::config::DpdkConfig;
use crate::devices::{Devices, OwnedPool};
use crate::eal;
use crate::error::Error;
use crate::interface::{BURST, Device};
use crate::library::Library;
use crate::port::{OVERHEAD, Queues};
use crate::ports::{DpdkPorts, Entered};

/// Bytes of a buffer for packets of an ordinary MTU; longer ones are multiples of half of it.
const ROOM: u16 = 2048;

/// Devices that are open for several threads.
#[derive(Debug)]
pub struct OpenDevices {
    /// The ports of the calling thread.
    pub ports: DpdkPorts,
    /// The ways of the calling thread, by place.
    pub ways: Vec<Way>,
    /// The parts of further threads.
    pub further: Vec<FurtherDevices>,
}

/// The part of a further thread, on its way there.
#[derive(Debug)]
pub struct FurtherDevices {
    part: Option<Part>,
    /// The thread's ways, by place.
    pub ways: Vec<Way>,
}

impl FurtherDevices {
    /// Returns the ports of the calling thread; `None` if no device has a queue for it.
    ///
    /// # Errors
    /// [`Error::Thread`]: DPDK takes no further thread.
    pub fn into_ports(self) -> Result<Option<DpdkPorts>, Error> {
        let Some(part) = self.part else { return Ok(None) };
        let entered = Entered::new(part.pool.library())?;
        Ok(Some(part.into_ports(entered)))
    }
}

/// A thread's part of devices that are open.
#[derive(Debug)]
struct Part {
    queues: Vec<Queues>,
    pool: Arc<OwnedPool>,
    devices: Arc<Devices>,
}

impl Part {
    fn into_ports(self, entered: Option<Entered>) -> DpdkPorts {
        DpdkPorts::new(&self.queues, Buffers::new(self.pool, self.devices), entered)
    }
}

impl DpdkPorts {
    /// Loads the library and starts EAL, unless that has happened, and opens the devices.
    ///
    /// # Errors
    /// [`Error`]: the library is missing, EAL does not start, or a device does not exist or open.
    pub fn open(config: &DpdkConfig) -> Result<Self, Error> {
        Ok(Self::open_for(config, 1)?.ports)
    }

    /// Opens devices as the ports of several threads, of which the calling one is the first. Each thread has
    /// a queue of its own to receive from a device and one to send by, as far as the device has so many. The
    /// devices are closed after the last thread has dropped its part.
    ///
    /// # Errors
    /// As [`DpdkPorts::open`].
    pub fn open_for(config: &DpdkConfig, threads: usize) -> Result<OpenDevices, Error> {
        let threads = threads.max(1);
        let library = eal::start(config)?;
        let entered = Entered::new(library)?;
        let found = find_all(library, &config.devices, threads)?;
        let queues: Vec<Vec<_>> = (0..threads).map(|thread| queues_of(&found, thread)).collect();
        let pools =
            queues.iter().map(|own| make_pool(library, &found, own)).collect::<Result<Vec<_>, _>>()?;
        let mut devices = Devices::new(library, pools.iter().flatten().cloned().collect());
        let mut ways = vec![Vec::new(); threads];
        for (name, Found { number, device, share }) in config.devices.iter().zip(&found) {
            let receivers = 0..share.receivers(device.rx_queues.into());
            let pools = receivers.filter_map(|place| Some(pools[share.thread(place)].as_ref()?.pool()));
            let senders = share.receivers(device.tx_queues.into());
            let device = Device { tx_queues: senders as u16, ..*device };
            devices.open(name, *number, &device, &pools.collect::<Vec<_>>())?;
            for (ways, way) in ways.iter_mut().zip(share.ways(threads, senders)) {
                ways.push(way);
            }
        }
        let devices = Arc::new(devices);
        let part = |(queues, pool): (_, Option<_>)| {
            pool.map(|pool| Part { queues, pool, devices: Arc::clone(&devices) })
        };
        let parts = queues.into_iter().zip(pools).map(part).zip(ways);
        let mut parts = parts.map(|(part, ways)| FurtherDevices { part, ways });
        let FurtherDevices { part, ways } = parts.next().ok_or(Error::NoDevice)?;
        let ports = part.ok_or(Error::NoDevice)?.into_ports(entered);
        Ok(OpenDevices { ports, ways, further: parts.collect() })
    }
}

/// A device that was found, and the threads that share it.
struct Found {
    number: u16,
    device: Device,
    share: Share,
}

impl Found {
    /// Returns a thread's queues.
    fn queues(&self, thread: usize) -> Queues {
        let place = self.share.place(thread) as u16;
        let own = |queues| (place < queues).then_some(place);
        let Device { rx_queues, tx_queues, mtu, .. } = self.device;
        Queues { number: self.number, mtu, rx: own(rx_queues), tx: own(tx_queues) }
    }
}

/// Returns a thread's queues of each device.
fn queues_of(found: &[Found], thread: usize) -> Vec<Queues> {
    found.iter().map(|device| device.queues(thread)).collect()
}

/// Finds the devices, and describes them.
fn find_all(library: Library, names: &[String], threads: usize) -> Result<Vec<Found>, Error> {
    let mut all: Vec<Found> = Vec::new();
    for (first, name) in names.iter().enumerate() {
        let (number, device) = find(library, name)?;
        if all.iter().any(|other| other.number == number) {
            return Err(Error::Twice { device: name.clone() });
        }
        all.push(Found { number, device, share: Share { threads, first } });
    }
    Ok(all)
}

/// Finds a device, and describes it.
///
/// # Errors
/// There is no such device, or it does not both receive and send.
fn find(library: Library, name: &str) -> Result<(u16, Device), Error> {
    let unknown = |source, log| Error::Unknown { device: name.to_owned(), log, source };
    let invalid = |_| unknown(std::io::ErrorKind::InvalidInput.into(), String::new());
    let text = CString::new(name).map_err(invalid)?;
    let number = library.find(&text).map_err(|e| unknown(e, library.log()))?;
    let device = library.describe(number).map_err(|e| unknown(e, library.log()))?;
    if device.rx_queues == 0 || device.tx_queues == 0 {
        let (receive, transmit) = (device.rx_queues, device.tx_queues);
        return Err(Error::NoQueue { device: name.to_owned(), receive, transmit });
    }
    Ok((number, device))
}

/// Makes a thread's buffers for full rings of its queues, each as long as the devices' longest packet. A
/// thread without a queue needs none.
fn make_pool(library: Library, found: &[Found], queues: &[Queues]) -> Result<Option<Arc<OwnedPool>>, Error> {
    static POOLS: AtomicU32 = AtomicU32::new(0);
    if !queues.iter().any(Queues::is_any) {
        return Ok(None);
    }
    let of_port = |(Found { device, .. }, own): (&Found, &Queues)| {
        let rings = [own.rx.map(|_| device.rx_ring), own.tx.map(|_| device.tx_ring)];
        rings.into_iter().flatten().map(u32::from).sum::<u32>() + 2 * BURST as u32
    };
    let descriptors: u32 = found.iter().zip(queues).map(of_port).sum();
    let mtu = queues.iter().map(|own| own.mtu).max().unwrap_or_default();
    let room = mtu.saturating_add(OVERHEAD).max(ROOM).div_ceil(ROOM / 2).saturating_mul(ROOM / 2);
    let name = format!("p4shield{}", POOLS.fetch_add(1, Ordering::Relaxed));
    OwnedPool::new(library, &name, descriptors + KEPT as u32, room).map(|pool| Some(Arc::new(pool)))
}
