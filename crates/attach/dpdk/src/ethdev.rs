//! Ports of ethdev: a receive callback for each receive queue.
//!
//! Callbacks are added before the driver starts, so that no packet arrives without them, and
//! removed when the device is closed. DPDK removes a callback only while its queue is configured,
//! and a driver may release its queues before the library learns of the device's end. Such a
//! callback is *stale*; it is removed when a device with the same number appears.
//!
//! The callback, [`on_receive`], passes each burst to [`MediatedQueue::process`].

use crate::dpdk::EventCallback;
use crate::library::{Library, library};
use crate::mbuf::RawMbuf;
use crate::mediated_queue::{MediatedQueue, QueueCounts};
use crate::panics::catch_panic;
use crate::pool;
use crate::shim::{self, DeviceInfo};
use crate::transmit_queue::poll_pending;
use p4shield_attach::{Notice, PortId, PortInfo};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// `RTE_ETH_ALL`: events of every port.
const ALL_PORTS: u16 = 32;
/// `RTE_ETH_EVENT_DESTROY`.
const EVENT_DESTROY: c_int = 8;
/// `RTE_ETH_NAME_MAX_LEN`.
const NAME_BYTES: usize = 64;

/// DPDK's handle of a callback. Only DPDK dereferences it.
#[derive(Clone, Copy, Debug)]
struct Callback(*const c_void);

// SAFETY: the library never dereferences it.
unsafe impl Send for Callback {}

/// A receive queue and its callback.
#[derive(Debug)]
struct CallbackQueue {
    mediated: &'static MediatedQueue,
    callback: Option<Callback>,
    /// The callback belongs to a device that was removed.
    stale: bool,
}

#[derive(Debug, Default)]
struct Port {
    /// The port's number in the session and its name, while there is a device.
    session: Option<(PortId, String)>,
    started: bool,
    queues: Vec<CallbackQueue>,
}

static PORTS: Mutex<BTreeMap<u16, Port>> = Mutex::new(BTreeMap::new());

fn ports() -> MutexGuard<'static, BTreeMap<u16, Port>> {
    PORTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds callbacks and lanes to a port before it is started.
///
/// # Errors
/// A number of `errno.h` if the port cannot be mediated; the caller must not start it then.
pub(crate) fn before_start(port: u16) -> Result<(), c_int> {
    let library = library().map_err(|refusal| {
        tracing::error!(event = "port_refused", port, %refusal, "port not started");
        libc::ENOTSUP
    })?;
    register_destroy_callback(library);
    let mut device = DeviceInfo::default();
    // SAFETY: the function is DPDK's, and `device` is ours to write.
    if unsafe { shim::p4s_port(library.dpdk.rte_eth_dev_info_get, port, &raw mut device) } != 0 {
        return Ok(()); // No such port: DPDK reports it.
    }
    let mut ports = ports();
    let known = ports.entry(port).or_default();
    if device.bonded != 0 {
        remove_port(library, port, known);
        library.remark(None, Notice::Note(format!("port {port} is mediated at its bonding device")));
        return Ok(());
    }
    install(library, port, known, device)?;
    pool::check(library, port, ports.values().map(|p| p.queues.len()).sum());
    Ok(())
}

/// Adds a callback and a lane to each receive queue of a device.
fn install(library: &'static Library, number: u16, port: &mut Port, device: DeviceInfo) -> Result<(), c_int> {
    let (id, name) = port.session.get_or_insert_with(|| {
        let info = describe(library, number, device.interface);
        let name = info.name.clone();
        (library.session.port_up(info), name)
    });
    for queue in 0..device.rx_queues {
        if port.queues.len() <= usize::from(queue) {
            let mediated = library.mediated_queue();
            port.queues.push(CallbackQueue { mediated, callback: None, stale: false });
        }
        let entry = &mut port.queues[usize::from(queue)];
        if entry.stale {
            remove(library, number, queue, entry);
            entry.callback = None; // DPDK had removed it with the old device.
            entry.stale = false;
        }
        let id = *id;
        entry.mediated.open(move |refused| library.lane(id, queue.into(), refused));
        if entry.callback.is_none() {
            entry.callback = Some(add(library, number, queue, entry.mediated).map_err(|()| {
                tracing::error!(
                    event = "port_refused",
                    port = name,
                    "not started: this DPDK was built without receive callbacks (RTE_ETHDEV_RXTX_CALLBACKS), \
                     so no program would judge its packets"
                );
                libc::ENOTSUP
            })?);
        }
    }
    Ok(())
}

fn add(library: &Library, port: u16, queue: u16, mediated: &'static MediatedQueue) -> Result<Callback, ()> {
    let data = std::ptr::from_ref(mediated).cast_mut().cast();
    // SAFETY: `on_receive` is a receive callback, and its data is never freed.
    let callback = unsafe { (library.dpdk.rte_eth_add_first_rx_callback)(port, queue, on_receive, data) };
    if callback.is_null() { Err(()) } else { Ok(Callback(callback)) }
}

/// Removes a queue's callback and frees its memory. The device is stopped or was removed.
fn remove(library: &Library, port: u16, queue: u16, entry: &mut CallbackQueue) {
    let Some(callback) = entry.callback else { return };
    // SAFETY: DPDK returned the callback, and no thread polls the queue.
    unsafe {
        if (library.dpdk.rte_eth_remove_rx_callback)(port, queue, callback.0) == 0 {
            (library.dpdk.rte_free)(callback.0.cast_mut());
            entry.callback = None;
        }
    }
}

/// Receive callback: DPDK calls it at each poll of a queue, with or without packets.
unsafe extern "C" fn on_receive(
    _port: u16,
    _queue: u16,
    packets: *mut *mut RawMbuf,
    received: u16,
    room: u16,
    data: *mut c_void,
) -> u16 {
    // SAFETY: `add` passed a value that is never freed.
    let mediated = unsafe { &*data.cast::<MediatedQueue>() };
    // SAFETY: DPDK passes an array with room for `room` packets; the first `received` are packets
    // of the caller.
    unsafe {
        let slots =
            std::slice::from_raw_parts(packets.cast::<Cell<MaybeUninit<_>>>(), room.max(received).into());
        let passed = mediated.process(slots, received.into()) as u16;
        poll_pending(mediated.clock());
        passed
    }
}

/// Records that a port was started.
pub(crate) fn after_start(port: u16) {
    if let Some(port) = ports().get_mut(&port) {
        port.started = true;
    }
}

/// Frees the packets that a stopped port's lanes hold: the application may free their pool next.
/// The next start makes new lanes.
pub(crate) fn after_stop(port: u16) {
    if let Some(port) = ports().get_mut(&port) {
        port.started = false;
        for queue in &port.queues {
            queue.mediated.close();
        }
        log_counts(port);
    }
}

/// Removes callbacks and lanes of a port that is about to be closed. DPDK refuses to close a started port.
pub(crate) fn before_close(number: u16) {
    if let (Ok(library), Some(port)) = (library(), ports().get_mut(&number).filter(|p| !p.started)) {
        remove_port(library, number, port);
    }
}

/// Event callback: a device was closed or unplugged.
unsafe extern "C" fn on_destroy(number: u16, _: c_int, _: *mut c_void, _: *mut c_void) -> c_int {
    catch_panic("removing a device", || {
        if let (Ok(library), Some(port)) = (library(), ports().get_mut(&number)) {
            remove_port(library, number, port);
        }
    });
    0
}

/// Removes callbacks and lanes. Callbacks that DPDK may still call become stale.
fn remove_port(library: &Library, number: u16, port: &mut Port) {
    port.started = false;
    for (queue, entry) in (0..).zip(&mut port.queues) {
        remove(library, number, queue, entry);
        entry.stale = entry.callback.is_some();
        entry.mediated.close();
    }
    if let Some((id, _)) = &port.session {
        log_counts(port);
        library.session.port_down(*id);
        port.session = None;
    }
}

/// Logs the packet counts of a port's queues.
fn log_counts(port: &Port) {
    let Some((_, name)) = &port.session else { return };
    for (queue, entry) in port.queues.iter().enumerate() {
        log_queue_counts(name, queue, entry.mediated.counts());
    }
}

/// Logs the packet counts of a queue.
pub(crate) fn log_queue_counts(port: &str, queue: usize, counts: QueueCounts) {
    let QueueCounts { received, returned, freed, refused } = counts;
    tracing::info!(
        event = "port_queue_stopped",
        port,
        queue,
        received,
        returned,
        freed,
        refused,
        held = counts.held(),
        "stopped"
    );
}

fn register_destroy_callback(library: &Library) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let callback: EventCallback = on_destroy;
        // SAFETY: `on_destroy` is an event callback and needs no data.
        let done = unsafe {
            (library.dpdk.rte_eth_dev_callback_register)(
                ALL_PORTS,
                EVENT_DESTROY,
                callback,
                std::ptr::null_mut(),
            )
        };
        if done != 0 {
            tracing::warn!(
                event = "unplug_unseen",
                error = done,
                "cannot detect ports that are unplugged while they run"
            );
        }
    });
}

/// Returns a port's names: the DPDK device and, if it has one, the kernel's interface.
fn describe(library: &Library, number: u16, interface: u32) -> PortInfo {
    let mut name: [c_char; NAME_BYTES] = [0; NAME_BYTES];
    // SAFETY: the array has the length that DPDK requires; DPDK terminates what it writes.
    let name = unsafe {
        match (library.dpdk.rte_eth_dev_get_name_by_port)(number, name.as_mut_ptr()) {
            0 => CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned(),
            _ => format!("port{number}"),
        }
    };
    PortInfo { name, aliases: interface_name(interface).into_iter().collect(), number: number.into() }
}

/// Returns the kernel's name of an interface, if there is one.
fn interface_name(number: u32) -> Option<String> {
    let mut name: [c_char; libc::IF_NAMESIZE] = [0; libc::IF_NAMESIZE];
    // SAFETY: the array has the required length; the function terminates what it writes, or returns null.
    unsafe {
        let found = !libc::if_indextoname(number, name.as_mut_ptr()).is_null();
        found.then(|| CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned())
    }
}
