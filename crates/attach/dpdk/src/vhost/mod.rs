//! Ports of vhost-user that a switch polls by `rte_vhost_dequeue_burst`, which no callback of ethdev sees.
//!
//! Lanes are made when DPDK tells the application that a device is ready or a queue was enabled, before the application
//! polls it. How we hear of it is [`ops`]'s matter. A vhost-user port that is an ethdev (`net_vhost`) has receive
//! callbacks and is left to them.

mod ops;

pub(crate) use ops::{registered, unregistered};

use crate::cell::Cell;
use crate::contain::contained;
use crate::dpdk::next;
use crate::ethdev::tell_tally;
use crate::library::{Library, library};
use p4shield_attach::{PortId, PortInfo};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// The most devices and queue pairs of a device that DPDK has (`RTE_MAX_VHOST_DEVICE`, `VHOST_MAX_QUEUE_PAIRS`).
const MAX_DEVICES: usize = 1024;
const MAX_PAIRS: usize = 128;
/// Programs see a vhost-user port as this and its device number, apart from ethdev's ports.
const FIRST_NUMBER: u32 = 0x1_0000;

/// What a device's queue is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// It has a cell.
    Cell(&'static Cell),
    /// An ethdev's: its callbacks see to it.
    Ethdev,
    /// There can be none: what comes is to be freed.
    Nowhere,
}

/// Cells by device number and queue pair; null where there is none.
static CELLS: [[AtomicPtr<Cell>; MAX_PAIRS]; MAX_DEVICES] =
    [const { [const { AtomicPtr::new(std::ptr::null_mut()) }; MAX_PAIRS] }; MAX_DEVICES];

/// Devices, by number, that were found to be ethdevs'.
static ETHDEVS: [AtomicBool; MAX_DEVICES] = [const { AtomicBool::new(false) }; MAX_DEVICES];

fn ethdev(vid: c_int) -> Option<&'static AtomicBool> {
    ETHDEVS.get(usize::try_from(vid).ok()?)
}

/// A device is no ethdev's, whatever had its number before.
fn connected(vid: c_int) {
    if let Some(ethdev) = ethdev(vid) {
        ethdev.store(false, Ordering::Release);
    }
}

/// A device that is connected.
#[derive(Debug)]
struct Device {
    path: CString,
    port: PortId,
}

#[derive(Debug, Default)]
struct Devices {
    connected: BTreeMap<usize, Device>,
    /// Cells of devices that are gone.
    spare: Vec<&'static Cell>,
}

static DEVICES: Mutex<Devices> = Mutex::new(Devices { connected: BTreeMap::new(), spare: Vec::new() });

fn devices() -> MutexGuard<'static, Devices> {
    DEVICES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The cell of a queue, if it has one.
#[inline]
fn cell(vid: c_int, queue: u16) -> Option<&'static Cell> {
    let cells = CELLS.get(usize::try_from(vid).ok()?)?;
    // SAFETY: what is stored was made by `Cell::new`, and is never freed.
    unsafe { cells.get(usize::from(queue) / 2)?.load(Ordering::Acquire).as_ref() }
}

/// The place of a queue that is polled.
#[inline]
pub(crate) fn place(vid: c_int, queue: u16) -> Place {
    match cell(vid, queue) {
        Some(cell) => Place::Cell(cell),
        None if ethdev(vid).is_some_and(|e| e.load(Ordering::Acquire)) => Place::Ethdev,
        None => contained("preparing a guest's queue", || unprepared(vid, queue)).unwrap_or(Place::Nowhere),
    }
}

/// A queue that was disabled rests: what it holds is freed.
fn rest(vid: c_int, queue: u16) {
    if let Some(cell) = cell(vid, queue) {
        cell.close();
    }
}

/// A queue is polled that we did not hear of: an ethdev's, or one whose application registered nothing with DPDK.
#[cold]
fn unprepared(vid: c_int, queue: u16) -> Place {
    match name_of(vid) {
        Some(path) if ops::is_ethdevs(&path) => {
            if let Some(ethdev) = ethdev(vid) {
                ethdev.store(true, Ordering::Release);
            }
            Place::Ethdev
        }
        Some(_) => prepare(vid, queue).map_or(Place::Nowhere, Place::Cell),
        None => Place::Nowhere,
    }
}

/// Makes the lane of a queue that will be polled.
fn prepare(vid: c_int, queue: u16) -> Option<&'static Cell> {
    let library = library().ok()?;
    let number = usize::try_from(vid).ok()?;
    let pair = usize::from(queue) / 2;
    let slot = CELLS.get(number)?.get(pair)?;
    let path = name_of(vid)?;
    let mut devices = devices();
    if devices.connected.get(&number).is_some_and(|d| d.path != path) {
        disconnect(library, &mut devices, number);
    }
    let device = devices.connected.entry(number).or_insert_with(|| {
        let port = library.session.port_up(describe(&path, number));
        Device { path, port }
    });
    let port = device.port;
    // SAFETY: as in `cell`.
    let cell = unsafe { slot.load(Ordering::Acquire).as_ref() }
        .or_else(|| devices.spare.pop())
        .unwrap_or_else(|| library.cell());
    cell.open(move |refused| library.lane(port, pair as u32, refused));
    slot.store(std::ptr::from_ref(cell).cast_mut(), Ordering::Release);
    Some(cell)
}

/// Makes the lanes of all queues that a device has by now.
fn prepare_all(vid: c_int) {
    // The guest's transmit queues are those with odd numbers.
    for queue in (1..queues_of(vid)).step_by(2) {
        prepare(vid, queue);
    }
}

/// All queues of a device rest: its pool may go next.
fn rest_all(vid: c_int) {
    (0..MAX_PAIRS as u16).for_each(|pair| rest(vid, 2 * pair));
}

/// A device is gone.
fn gone(vid: c_int) {
    if let (Ok(library), Ok(number)) = (library(), usize::try_from(vid)) {
        disconnect(library, &mut devices(), number);
    }
}

/// All devices of a socket are gone.
fn gone_with(path: &CStr) {
    let Ok(library) = library() else { return };
    let mut devices = devices();
    let of_path = devices.connected.iter().filter(|(_, d)| d.path.as_c_str() == path);
    for number in of_path.map(|(n, _)| *n).collect::<Vec<_>>() {
        disconnect(library, &mut devices, number);
    }
}

fn disconnect(library: &Library, devices: &mut Devices, number: usize) {
    let Some(device) = devices.connected.remove(&number) else { return };
    let name = device.path.to_string_lossy();
    for (pair, slot) in CELLS.get(number).into_iter().flatten().enumerate() {
        // SAFETY: as in `cell`.
        let Some(cell) = (unsafe { slot.swap(std::ptr::null_mut(), Ordering::AcqRel).as_ref() }) else {
            continue;
        };
        cell.close();
        tell_tally(&name, pair, cell.tally());
        devices.spare.push(cell);
    }
    library.session.port_down(device.port);
}

/// A port is called as its socket; also as the socket's file, which for a server port is the interface's name.
fn describe(path: &CStr, number: usize) -> PortInfo {
    let name = path.to_string_lossy().into_owned();
    let file = Path::new(&name).file_name().map(|f| f.to_string_lossy().into_owned());
    // `MAX_DEVICES` at most.
    PortInfo { aliases: file.into_iter().collect(), name, number: FIRST_NUMBER + number as u32 }
}

/// The path of a device's socket.
fn name_of(vid: c_int) -> Option<CString> {
    let mut name: [c_char; libc::PATH_MAX as usize] = [0; libc::PATH_MAX as usize];
    // SAFETY: the array is as long as told, and DPDK terminates what it writes.
    unsafe {
        let got = (vhost()?.rte_vhost_get_ifname)(vid, name.as_mut_ptr(), name.len());
        (got == 0).then(|| CStr::from_ptr(name.as_ptr()).to_owned())
    }
}

fn queues_of(vid: c_int) -> u16 {
    // SAFETY: the function takes any number.
    vhost().map_or(0, |v| unsafe { (v.rte_vhost_get_vring_num)(vid) })
}

/// Functions of DPDK's vhost library, which an application may lack.
#[derive(Debug)]
struct Vhost {
    rte_vhost_get_ifname: unsafe extern "C" fn(c_int, *mut c_char, usize) -> c_int,
    rte_vhost_get_vring_num: unsafe extern "C" fn(c_int) -> u16,
}

fn vhost() -> Option<&'static Vhost> {
    static VHOST: OnceLock<Option<Vhost>> = OnceLock::new();
    VHOST
        .get_or_init(|| {
            let (name, count) = (next("rte_vhost_get_ifname\0")?, next("rte_vhost_get_vring_num\0")?);
            // SAFETY: these have had these signatures since they are part of DPDK's stable ABI.
            Some(unsafe {
                Vhost {
                    rte_vhost_get_ifname: std::mem::transmute::<
                        *mut c_void,
                        unsafe extern "C" fn(c_int, *mut c_char, usize) -> c_int,
                    >(name),
                    rte_vhost_get_vring_num: std::mem::transmute::<
                        *mut c_void,
                        unsafe extern "C" fn(c_int) -> u16,
                    >(count),
                }
            })
        })
        .as_ref()
}
