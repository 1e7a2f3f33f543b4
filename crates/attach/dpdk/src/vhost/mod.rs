//! vhost-user ports that a switch polls with `rte_vhost_dequeue_burst`, which bypasses the
//! callbacks of ethdev, and sends to with `rte_vhost_enqueue_burst`.
//!
//! Lanes are made when DPDK notifies the application that a device is ready or a queue was enabled,
//! before the application polls it; [`ops`] receives these notifications. A vhost-user port that is
//! an ethdev (`net_vhost`) has receive callbacks (`ethdev`).
//!
//! A burst continues in [`MediatedQueue::process`] or [`TransmitQueue::send`].

mod ops;

pub(crate) use ops::{replace_ops, unregistered};

use crate::dpdk::next_symbol;
use crate::ethdev::log_queue_counts;
use crate::library::{Library, library};
use crate::mediated_queue::{MediatedQueue, QueueCounts};
use crate::panics::catch_panic;
use crate::transmit_queue::{Enqueue, TransmitQueue};
use p4shield_attach::{PortId, PortInfo};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// DPDK's limits of devices, and of queue pairs per device (`RTE_MAX_VHOST_DEVICE`, `VHOST_MAX_QUEUE_PAIRS`).
const MAX_DEVICES: usize = 1024;
const MAX_PAIRS: usize = 128;
/// Programs see a vhost-user port as this number plus its device number, which keeps it apart from
/// ethdev's ports.
const FIRST_NUMBER: u32 = 0x1_0000;

/// Treatment of a device's queue.
#[derive(Clone, Copy, Debug)]
pub(crate) enum QueueRole {
    /// The queue is mediated here.
    Mediated(&'static MediatedQueue),
    /// The queue belongs to an ethdev, whose callbacks mediate it.
    Ethdev,
    /// The queue cannot be mediated: its packets are freed.
    Unknown,
}

/// Mediated queues by device number and queue pair; null where there is none.
static QUEUES: [[AtomicPtr<MediatedQueue>; MAX_PAIRS]; MAX_DEVICES] =
    [const { [const { AtomicPtr::new(std::ptr::null_mut()) }; MAX_PAIRS] }; MAX_DEVICES];

/// Queues to the guests by device number and queue pair; null where there is none.
static TRANSMIT_QUEUES: [[AtomicPtr<TransmitQueue>; MAX_PAIRS]; MAX_DEVICES] =
    [const { [const { AtomicPtr::new(std::ptr::null_mut()) }; MAX_PAIRS] }; MAX_DEVICES];

/// Devices, by number, to whose guests packets pass unjudged: they are judged elsewhere.
static OPEN: [AtomicBool; MAX_DEVICES] = [const { AtomicBool::new(false) }; MAX_DEVICES];

/// Devices, by number, that belong to an ethdev.
static ETHDEVS: [AtomicBool; MAX_DEVICES] = [const { AtomicBool::new(false) }; MAX_DEVICES];

fn ethdev(vid: c_int) -> Option<&'static AtomicBool> {
    ETHDEVS.get(usize::try_from(vid).ok()?)
}

fn open(vid: c_int) -> Option<&'static AtomicBool> {
    OPEN.get(usize::try_from(vid).ok()?)
}

/// Forgets what the device was that had this number before.
fn reset_number(vid: c_int) {
    for flag in [ethdev(vid), open(vid)].into_iter().flatten() {
        flag.store(false, Ordering::Release);
    }
}

/// A connected device.
#[derive(Debug)]
struct Device {
    path: CString,
    port: PortId,
}

#[derive(Debug, Default)]
struct Devices {
    connected: BTreeMap<usize, Device>,
    /// Mediated queues of disconnected devices, for reuse.
    spare: Vec<&'static MediatedQueue>,
}

static DEVICES: Mutex<Devices> = Mutex::new(Devices { connected: BTreeMap::new(), spare: Vec::new() });

fn devices() -> MutexGuard<'static, Devices> {
    DEVICES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the mediated queue of a device's queue, if it has one.
#[inline]
fn mediated(vid: c_int, queue: u16) -> Option<&'static MediatedQueue> {
    let queues = QUEUES.get(usize::try_from(vid).ok()?)?;
    // SAFETY: `MediatedQueue::new` made the stored values, which are never freed.
    unsafe { queues.get(usize::from(queue) / 2)?.load(Ordering::Acquire).as_ref() }
}

/// Returns the role of a queue that the switch polls.
#[inline]
pub(crate) fn queue_role(vid: c_int, queue: u16) -> QueueRole {
    match mediated(vid, queue) {
        Some(queue) => QueueRole::Mediated(queue),
        None if ethdev(vid).is_some_and(|e| e.load(Ordering::Acquire)) => QueueRole::Ethdev,
        None => {
            catch_panic("preparing a guest's queue", || late_role(vid, queue)).unwrap_or(QueueRole::Unknown)
        }
    }
}

/// Treatment of what the switch sends to a device's queue.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SendRole {
    /// The VM's program judges it here.
    Judged(&'static TransmitQueue),
    /// It was judged where it entered the switch.
    Open,
    /// The queue cannot be mediated: what is sent is lost.
    Unknown,
}

/// Returns the role of a queue to which the switch sends.
#[inline]
pub(crate) fn send_role(vid: c_int, queue: u16) -> SendRole {
    if open(vid).is_some_and(|open| open.load(Ordering::Acquire)) {
        return SendRole::Open;
    }
    match transmit(vid, queue) {
        Some(queue) => SendRole::Judged(queue),
        None => catch_panic("preparing a queue to a guest", || late_send_role(vid, queue))
            .unwrap_or(SendRole::Unknown),
    }
}

/// Determines the role of a queue without notification, as [`late_role`] does.
#[cold]
fn late_send_role(vid: c_int, queue: u16) -> SendRole {
    match name_of(vid) {
        Some(path) if ops::belongs_to_ethdev(&path) => {
            if let Some(open) = open(vid) {
                open.store(true, Ordering::Release);
            }
            SendRole::Open
        }
        Some(_) => prepare_send(vid, usize::from(queue) / 2).unwrap_or(SendRole::Unknown),
        None => SendRole::Unknown,
    }
}

/// Returns the queue to a guest, if it has one. It stays in its place when the device disconnects.
#[inline]
fn transmit(vid: c_int, queue: u16) -> Option<&'static TransmitQueue> {
    let queues = TRANSMIT_QUEUES.get(usize::try_from(vid).ok()?)?;
    // SAFETY: `TransmitQueue::new` made the stored values, which are never freed.
    unsafe { queues.get(usize::from(queue) / 2)?.load(Ordering::Acquire).as_ref() }
}

/// Makes the lane of a queue to a guest, unless the configuration judges its packets elsewhere. Returns its
/// role; `None` if it cannot be mediated.
fn prepare_send(vid: c_int, pair: usize) -> Option<SendRole> {
    let library = library().ok()?;
    let number = usize::try_from(vid).ok()?;
    let slot = TRANSMIT_QUEUES.get(number)?.get(pair)?;
    let enqueue = vhost()?.rte_vhost_enqueue_burst;
    let mut devices = devices();
    let port = connect(library, &mut devices, vid, number)?;
    let is_open = !library.session.wants_transmit(port);
    OPEN.get(number)?.store(is_open, Ordering::Release);
    if is_open {
        return Some(SendRole::Open);
    }
    // SAFETY: as in `transmit`.
    let queue = unsafe { slot.load(Ordering::Acquire).as_ref() }
        .unwrap_or_else(|| TransmitQueue::new(library.clock, library.dpdk, enqueue));
    // `MAX_DEVICES` and `MAX_PAIRS` at most.
    let target = (number as c_int, 2 * pair as u16);
    queue.open(target, move |refused| library.transmit_lane(port, pair as u32, refused));
    slot.store(std::ptr::from_ref(queue).cast_mut(), Ordering::Release);
    Some(SendRole::Judged(queue))
}

/// Closes a queue that was disabled, which frees its held packets.
fn close(vid: c_int, queue: u16) {
    if !queue.is_multiple_of(2) {
        if let Some(queue) = mediated(vid, queue) {
            queue.close();
        }
    } else if let Some(queue) = transmit(vid, queue) {
        queue.close();
    }
}

/// Determines the role of a queue without notification: it belongs to an ethdev, or its application
/// registered no functions with DPDK.
#[cold]
fn late_role(vid: c_int, queue: u16) -> QueueRole {
    match name_of(vid) {
        Some(path) if ops::belongs_to_ethdev(&path) => {
            if let Some(ethdev) = ethdev(vid) {
                ethdev.store(true, Ordering::Release);
            }
            QueueRole::Ethdev
        }
        Some(_) => {
            prepare_receive(vid, usize::from(queue) / 2).map_or(QueueRole::Unknown, QueueRole::Mediated)
        }
        None => QueueRole::Unknown,
    }
}

/// Makes the lane of a queue before the switch uses it. Queues with odd numbers are those from the guest.
/// Returns whether it is ready.
fn prepare(vid: c_int, queue: u16) -> bool {
    if queue.is_multiple_of(2) {
        prepare_send(vid, usize::from(queue) / 2).is_some()
    } else {
        prepare_receive(vid, usize::from(queue) / 2).is_some()
    }
}

/// Returns a device's port, which is added if the device is new.
fn connect(library: &Library, devices: &mut Devices, vid: c_int, number: usize) -> Option<PortId> {
    let path = name_of(vid)?;
    if devices.connected.get(&number).is_some_and(|d| d.path != path) {
        disconnect(library, devices, number);
    }
    let device = devices.connected.entry(number).or_insert_with(|| {
        let port = library.session.port_up(describe(&path, number));
        Device { path, port }
    });
    Some(device.port)
}

fn prepare_receive(vid: c_int, pair: usize) -> Option<&'static MediatedQueue> {
    let library = library().ok()?;
    let number = usize::try_from(vid).ok()?;
    let slot = QUEUES.get(number)?.get(pair)?;
    let mut devices = devices();
    let port = connect(library, &mut devices, vid, number)?;
    // SAFETY: as in `mediated`.
    let mediated = unsafe { slot.load(Ordering::Acquire).as_ref() }
        .or_else(|| devices.spare.pop())
        .unwrap_or_else(|| library.mediated_queue());
    mediated.open(move |refused| library.lane(port, pair as u32, refused));
    slot.store(std::ptr::from_ref(mediated).cast_mut(), Ordering::Release);
    Some(mediated)
}

/// Makes the lanes of all queues of a device.
fn prepare_all(vid: c_int) {
    for queue in 0..queues_of(vid) {
        prepare(vid, queue);
    }
}

/// Closes all queues of a device: the application may free their pool next, and DPDK the device.
fn close_all(vid: c_int) {
    for pair in 0..MAX_PAIRS as u16 {
        close(vid, 2 * pair + 1);
        if let Some(queue) = transmit(vid, 2 * pair) {
            queue.end();
        }
    }
}

/// Disconnects a device.
fn disconnect_device(vid: c_int) {
    if let (Ok(library), Ok(number)) = (library(), usize::try_from(vid)) {
        disconnect(library, &mut devices(), number);
    }
}

/// Disconnects all devices of a socket.
fn disconnect_socket(path: &CStr) {
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
    for (pair, slot) in QUEUES.get(number).into_iter().flatten().enumerate() {
        // SAFETY: as in `mediated`.
        let Some(mediated) = (unsafe { slot.swap(std::ptr::null_mut(), Ordering::AcqRel).as_ref() }) else {
            continue;
        };
        mediated.close();
        log_queue_counts(&name, pair, mediated.counts());
        devices.spare.push(mediated);
    }
    for (pair, slot) in TRANSMIT_QUEUES.get(number).into_iter().flatten().enumerate() {
        // SAFETY: as in `transmit`.
        if let Some(queue) = unsafe { slot.load(Ordering::Acquire).as_ref() } {
            queue.end();
            log_sent_counts(&name, pair, queue.counts());
        }
    }
    library.session.port_down(device.port);
}

/// Logs the counts of what the switch sent to a guest.
fn log_sent_counts(port: &str, queue: usize, counts: QueueCounts) {
    let QueueCounts { received: sent, returned: delivered, freed, refused } = counts;
    tracing::info!(
        event = "guest_queue_stopped",
        port,
        queue,
        sent,
        delivered,
        freed,
        refused,
        held = counts.held(),
        "to a guest"
    );
}

/// Returns a port's names: the socket's path and the socket's file name, which for a server port is
/// the interface's name.
fn describe(path: &CStr, number: usize) -> PortInfo {
    let name = path.to_string_lossy().into_owned();
    let file = Path::new(&name).file_name().map(|f| f.to_string_lossy().into_owned());
    // `MAX_DEVICES` at most.
    PortInfo { aliases: file.into_iter().collect(), name, number: FIRST_NUMBER + number as u32 }
}

/// Returns the path of a device's socket.
fn name_of(vid: c_int) -> Option<CString> {
    let mut name: [c_char; libc::PATH_MAX as usize] = [0; libc::PATH_MAX as usize];
    // SAFETY: the length is the array's, and DPDK terminates what it writes.
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
    rte_vhost_enqueue_burst: Enqueue,
    rte_vhost_get_ifname: unsafe extern "C" fn(c_int, *mut c_char, usize) -> c_int,
    rte_vhost_get_vring_num: unsafe extern "C" fn(c_int) -> u16,
}

fn vhost() -> Option<&'static Vhost> {
    static VHOST: OnceLock<Option<Vhost>> = OnceLock::new();
    VHOST
        .get_or_init(|| {
            let (name, count) =
                (next_symbol("rte_vhost_get_ifname\0")?, next_symbol("rte_vhost_get_vring_num\0")?);
            let enqueue = next_symbol("rte_vhost_enqueue_burst\0")?;
            // SAFETY: these signatures are part of DPDK's stable ABI.
            Some(unsafe {
                Vhost {
                    rte_vhost_enqueue_burst: std::mem::transmute::<*mut c_void, Enqueue>(enqueue),
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
