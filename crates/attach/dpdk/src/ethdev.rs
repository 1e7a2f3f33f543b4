//! Ports of ethdev: lanes behind receive callbacks.
//!
//! Callbacks are added before the driver starts, so that no packet comes without them, and taken away when the device
//! goes. DPDK can take one away only while the queue is configured, and a driver may forget its queues before we hear of
//! its end; such a callback is *stale* until a device with the same number comes, and is taken away then.

use crate::cell::{Cell, Tally};
use crate::contain::contained;
use crate::dpdk::EventCallback;
use crate::library::{Library, library};
use crate::mbuf::RawMbuf;
use crate::pool;
use crate::shim::{self, PortShape};
use p4shield_attach::{PortId, PortInfo, Remark};
use std::cell::Cell as Slot;
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

/// A callback as DPDK knows it. Only ever given back.
#[derive(Clone, Copy, Debug)]
struct Callback(*const c_void);

// SAFETY: never followed by us.
unsafe impl Send for Callback {}

/// A queue, and what DPDK holds of it.
#[derive(Debug)]
struct Queue {
    cell: &'static Cell,
    callback: Option<Callback>,
    /// The callback belongs to a device that is gone.
    stale: bool,
}

#[derive(Debug, Default)]
struct Port {
    /// While there is a device.
    session: Option<(PortId, String)>,
    started: bool,
    queues: Vec<Queue>,
}

static PORTS: Mutex<BTreeMap<u16, Port>> = Mutex::new(BTreeMap::new());

fn ports() -> MutexGuard<'static, BTreeMap<u16, Port>> {
    PORTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a port's packets come to us, before it is started.
///
/// # Errors
/// A number of `errno.h` if they would not; the port must not be started then.
pub(crate) fn before_start(port: u16) -> Result<(), c_int> {
    let library = library().map_err(|refusal| {
        tracing::error!(port, %refusal, "port not started");
        libc::ENOTSUP
    })?;
    listen_for_ends(library);
    let mut shape = PortShape::default();
    // SAFETY: the function is DPDK's, and `shape` is ours to write.
    if unsafe { shim::p4s_port(library.dpdk.rte_eth_dev_info_get, port, &raw mut shape) } != 0 {
        return Ok(()); // No such port: let DPDK say so.
    }
    let mut ports = ports();
    let known = ports.entry(port).or_default();
    if shape.bonded != 0 {
        forget(library, port, known);
        library.remark(None, Remark::Note(format!("port {port} is mediated where its bonding device is")));
        return Ok(());
    }
    install(library, port, known, shape)?;
    pool::check(library, port, ports.values().map(|p| p.queues.len()).sum());
    Ok(())
}

/// Callbacks and lanes for so many queues.
fn install(library: &'static Library, number: u16, port: &mut Port, shape: PortShape) -> Result<(), c_int> {
    let (id, name) = port.session.get_or_insert_with(|| {
        let info = describe(library, number, shape.interface);
        let name = info.name.clone();
        (library.session.port_up(info), name)
    });
    for queue in 0..shape.rx_queues {
        if port.queues.len() <= usize::from(queue) {
            let cell = library.cell();
            port.queues.push(Queue { cell, callback: None, stale: false });
        }
        let place = &mut port.queues[usize::from(queue)];
        if place.stale {
            remove(library, number, queue, place);
            place.callback = None; // Not removed: it was not there any more.
            place.stale = false;
        }
        let id = *id;
        place.cell.open(move |refused| library.lane(id, queue.into(), refused));
        if place.callback.is_none() {
            place.callback = Some(add(library, number, queue, place.cell).map_err(|()| {
                tracing::error!(
                    port = name,
                    "not started: this DPDK was built without receive callbacks (RTE_ETHDEV_RXTX_CALLBACKS), so \
                     nobody would be asked about its packets"
                );
                libc::ENOTSUP
            })?);
        }
    }
    Ok(())
}

fn add(library: &Library, port: u16, queue: u16, cell: &'static Cell) -> Result<Callback, ()> {
    let data = std::ptr::from_ref(cell).cast_mut().cast();
    // SAFETY: `received` is a receive callback, and the cell is never freed.
    let callback = unsafe { (library.dpdk.rte_eth_add_first_rx_callback)(port, queue, received, data) };
    if callback.is_null() { Err(()) } else { Ok(Callback(callback)) }
}

/// Takes a queue's callback away. Its memory is freed: it is called for a device that is stopped or gone.
fn remove(library: &Library, port: u16, queue: u16, place: &mut Queue) {
    let Some(callback) = place.callback else { return };
    // SAFETY: the callback is one that DPDK gave us, and nobody polls the queue.
    unsafe {
        if (library.dpdk.rte_eth_remove_rx_callback)(port, queue, callback.0) == 0 {
            (library.dpdk.rte_free)(callback.0.cast_mut());
            place.callback = None;
        }
    }
}

/// The callback, at each poll of a queue.
unsafe extern "C" fn received(
    _port: u16,
    _queue: u16,
    packets: *mut *mut RawMbuf,
    received: u16,
    room: u16,
    cell: *mut c_void,
) -> u16 {
    // SAFETY: `add` passed a cell that is never freed.
    let cell = unsafe { &*cell.cast::<Cell>() };
    // SAFETY: DPDK passes an array with room for so many packets, the first of which were received and are the
    // caller's.
    unsafe {
        let slots =
            std::slice::from_raw_parts(packets.cast::<Slot<MaybeUninit<_>>>(), room.max(received).into());
        cell.burst(slots, received.into()) as u16
    }
}

/// A port runs.
pub(crate) fn started(port: u16) {
    if let Some(port) = ports().get_mut(&port) {
        port.started = true;
    }
}

/// A port stands still: what is held is freed, since its pool may go next. Its lanes begin anew when it is started.
pub(crate) fn stopped(port: u16) {
    if let Some(port) = ports().get_mut(&port) {
        port.started = false;
        for queue in &port.queues {
            queue.cell.close();
        }
        tell(port);
    }
}

/// A port is about to be closed. One that runs is not: DPDK will refuse.
pub(crate) fn before_close(number: u16) {
    if let (Ok(library), Some(port)) = (library(), ports().get_mut(&number).filter(|p| !p.started)) {
        forget(library, number, port);
    }
}

/// A device is gone, by close or by being unplugged.
unsafe extern "C" fn destroyed(number: u16, _: c_int, _: *mut c_void, _: *mut c_void) -> c_int {
    contained("a device's end", || {
        if let (Ok(library), Some(port)) = (library(), ports().get_mut(&number)) {
            forget(library, number, port);
        }
    });
    0
}

/// Takes callbacks and lanes away. What stays is what DPDK may still call.
fn forget(library: &Library, number: u16, port: &mut Port) {
    port.started = false;
    for (queue, place) in (0..).zip(&mut port.queues) {
        remove(library, number, queue, place);
        place.stale = place.callback.is_some();
        place.cell.close();
    }
    if let Some((id, _)) = &port.session {
        tell(port);
        library.session.port_down(*id);
        port.session = None;
    }
}

/// What became of a port's packets so far.
fn tell(port: &Port) {
    let Some((_, name)) = &port.session else { return };
    for (queue, place) in port.queues.iter().enumerate() {
        tell_tally(name, queue, place.cell.tally());
    }
}

/// What became of a queue's packets, for the operator.
pub(crate) fn tell_tally(port: &str, queue: usize, tally: Tally) {
    let Tally { received, returned, freed, refused } = tally;
    tracing::info!(port, queue, received, returned, freed, refused, held = tally.held(), "stopped");
}

fn listen_for_ends(library: &Library) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let callback: EventCallback = destroyed;
        // SAFETY: `destroyed` is an event callback and needs no data.
        let done = unsafe {
            (library.dpdk.rte_eth_dev_callback_register)(
                ALL_PORTS,
                EVENT_DESTROY,
                callback,
                std::ptr::null_mut(),
            )
        };
        if done != 0 {
            tracing::warn!(error = done, "cannot hear of ports that are unplugged while they run");
        }
    });
}

/// What a port is called: the DPDK device; also the kernel's interface, if it has one.
fn describe(library: &Library, number: u16, interface: u32) -> PortInfo {
    let mut name: [c_char; NAME_BYTES] = [0; NAME_BYTES];
    // SAFETY: the array has the length that DPDK wants; DPDK terminates what it writes.
    let name = unsafe {
        match (library.dpdk.rte_eth_dev_get_name_by_port)(number, name.as_mut_ptr()) {
            0 => CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned(),
            _ => format!("port{number}"),
        }
    };
    PortInfo { name, aliases: interface_name(interface).into_iter().collect(), number: number.into() }
}

/// The kernel's name of an interface, if there is one.
fn interface_name(number: u32) -> Option<String> {
    let mut name: [c_char; libc::IF_NAMESIZE] = [0; libc::IF_NAMESIZE];
    // SAFETY: the array is as long as the function wants, which terminates what it writes, or returns null.
    unsafe {
        let found = !libc::if_indextoname(number, name.as_mut_ptr()).is_null();
        found.then(|| CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned())
    }
}
