//! The functions of DPDK that are ours in a process that has preloaded us.
//!
//! Each does its part and calls the one behind it, which the dynamic linker would have found without us. Where that is
//! missing the process has no such DPDK, and the call fails. No panic of ours gets out (`contain`).

use crate::bypass::{explain, refuse, refuses_rule};
use crate::contain::contained;
use crate::dpdk::next;
use crate::mbuf::{Mbuf, RawMbuf};
use crate::pool;
use crate::secondary;
use crate::shim;
use crate::vhost::{self, Place};
use crate::{ethdev, vhost::registered};
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::MaybeUninit;
use std::sync::OnceLock;

/// The function of this name and signature behind ours.
macro_rules! real {
    ($name:ident: fn($($arg:ty),*) $(-> $ret:ty)?) => {{
        static REAL: OnceLock<Option<unsafe extern "C" fn($($arg),*) $(-> $ret)?>> = OnceLock::new();
        *REAL.get_or_init(|| {
            let at = contained("looking a function up", || next(concat!(stringify!($name), "\0")))??;
            // SAFETY: DPDK's function of that name has this signature, which is ours, too.
            Some(unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($arg),*) $(-> $ret)?>(at) })
        })
    }};
}

/// Starts DPDK, unless as a secondary process.
///
/// # Safety
/// As DPDK's; so it is for all functions here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_eal_init(count: c_int, words: *mut *mut c_char) -> c_int {
    let Some(real) = real!(rte_eal_init: fn(c_int, *mut *mut c_char) -> c_int) else { return -1 };
    // SAFETY: the caller's arguments; so it is below.
    let asked = contained("reading DPDK's arguments", || unsafe { secondary::is_asked_for(count, words) });
    if asked == Some(true) {
        return secondary::refuse();
    }
    // SAFETY: as above.
    let result = unsafe { real(count, words) };
    // Whether `auto` made it one is known by now.
    if result >= 0 && contained("looking what process it is", secondary::is_one) == Some(true) {
        return secondary::refuse();
    }
    result
}

/// Starts a port, mediated.
///
/// # Safety
/// As DPDK's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_eth_dev_start(port: u16) -> c_int {
    let Some(real) = real!(rte_eth_dev_start: fn(u16) -> c_int) else { return -libc::ENOSYS };
    let ready = contained("preparing a port", || ethdev::before_start(port));
    if let Err(errno) = ready.unwrap_or(Err(libc::ENOTSUP)) {
        return -errno;
    }
    // SAFETY: the caller's arguments.
    let result = unsafe { real(port) };
    if result == 0 {
        contained("noting a port's start", || ethdev::started(port));
    }
    result
}

/// Stops a port, and frees what is held.
///
/// # Safety
/// As DPDK's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_eth_dev_stop(port: u16) -> c_int {
    let Some(real) = real!(rte_eth_dev_stop: fn(u16) -> c_int) else { return -libc::ENOSYS };
    // SAFETY: the caller's arguments.
    let result = unsafe { real(port) };
    if result == 0 {
        contained("stopping a port", || ethdev::stopped(port));
    }
    result
}

/// Closes a port.
///
/// # Safety
/// As DPDK's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_eth_dev_close(port: u16) -> c_int {
    let Some(real) = real!(rte_eth_dev_close: fn(u16) -> c_int) else { return -libc::ENOSYS };
    contained("closing a port", || ethdev::before_close(port));
    // SAFETY: the caller's arguments.
    unsafe { real(port) }
}

/// Sets a receive queue up, and learns from which pool it takes its buffers.
///
/// # Safety
/// As DPDK's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_eth_rx_queue_setup(
    port: u16,
    queue: u16,
    descriptors: u16,
    socket: c_uint,
    conf: *const c_void,
    pool: *mut c_void,
) -> c_int {
    let Some(real) =
        real!(rte_eth_rx_queue_setup: fn(u16, u16, u16, c_uint, *const c_void, *mut c_void) -> c_int)
    else {
        return -libc::ENOSYS;
    };
    // SAFETY: the caller's arguments.
    unsafe {
        let result = real(port, queue, descriptors, socket, conf, pool);
        if result == 0 {
            contained("noting a pool", || pool::given(port, pool));
        }
        result
    }
}

/// Hears of vhost-user devices.
///
/// # Safety
/// As DPDK's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_vhost_driver_callback_register(
    path: *const c_char,
    ops: *const c_void,
) -> c_int {
    let Some(real) = real!(rte_vhost_driver_callback_register: fn(*const c_char, *const c_void) -> c_int)
    else {
        return -1;
    };
    // SAFETY: the caller's arguments; ours in the place of `ops` stay where they are for ever.
    unsafe {
        let registered =
            || if path.is_null() { ops } else { registered(CStr::from_ptr(path), ops.cast()).cast() };
        match contained("registering a vhost-user socket", registered) {
            Some(ops) => real(path, ops),
            None => -1,
        }
    }
}

/// Forgets a socket's vhost-user devices.
///
/// # Safety
/// As DPDK's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_vhost_driver_unregister(path: *const c_char) -> c_int {
    let Some(real) = real!(rte_vhost_driver_unregister: fn(*const c_char) -> c_int) else { return -1 };
    // SAFETY: the caller's arguments.
    unsafe {
        let result = real(path);
        if result == 0 && !path.is_null() {
            contained("forgetting a vhost-user socket", || vhost::unregistered(CStr::from_ptr(path)));
        }
        result
    }
}

/// Takes packets from a guest, judged.
///
/// # Safety
/// As DPDK's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_vhost_dequeue_burst(
    vid: c_int,
    queue: u16,
    pool: *mut c_void,
    packets: *mut *mut RawMbuf,
    count: u16,
) -> u16 {
    let Some(real) =
        real!(rte_vhost_dequeue_burst: fn(c_int, u16, *mut c_void, *mut *mut RawMbuf, u16) -> u16)
    else {
        return 0;
    };
    // SAFETY: the caller's arguments.
    let received = unsafe { real(vid, queue, pool, packets, count) };
    // SAFETY: the caller's array has room for `count` packets; the first `received` are there and are ours.
    let slots = unsafe { std::slice::from_raw_parts(packets.cast::<Cell<MaybeUninit<_>>>(), count.into()) };
    match vhost::place(vid, queue) {
        // SAFETY: as above.
        Place::Cell(cell) => unsafe { cell.burst(slots, received.into()) as u16 },
        Place::Ethdev => received,
        Place::Nowhere => {
            for slot in &slots[..usize::from(received).min(slots.len())] {
                // SAFETY: as above.
                if let Some(packet) = unsafe { Mbuf::from_raw(slot.get().assume_init()) } {
                    packet.free();
                }
            }
            0
        }
    }
}

/// Refused: a guest's queue whose packets are copied by a DMA engine is taken from by functions that we do not see.
///
/// # Safety
/// As DPDK's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_vhost_async_channel_register(_vid: c_int, _queue: u16) -> c_int {
    refuse("asynchronous vhost (DMA) would lead packets past the programs and was refused; turn it off");
    -1
}

/// Refused: as [`rte_vhost_async_channel_register`].
///
/// # Safety
/// As DPDK's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_vhost_async_channel_register_thread_unsafe(vid: c_int, queue: u16) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { rte_vhost_async_channel_register(vid, queue) }
}

/// Refused: a card would serve the guest's queues.
///
/// # Safety
/// As DPDK's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_vhost_driver_attach_vdpa_device(
    _path: *const c_char,
    _device: *mut c_void,
) -> c_int {
    refuse("a vDPA device would lead a guest's packets past the programs and was refused; use vhost-user");
    -1
}

/// Refused: the card would send what it receives without showing it.
///
/// # Safety
/// As DPDK's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_eth_rx_hairpin_queue_setup(
    _port: u16,
    _queue: u16,
    _descriptors: u16,
    _conf: *const c_void,
) -> c_int {
    refuse("a hairpin queue would lead packets past the programs and was refused");
    -libc::ENOTSUP
}

/// Makes a flow rule, unless it leads packets round us.
///
/// # Safety
/// As DPDK's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_flow_create(
    port: u16,
    attr: *const c_void,
    pattern: *const c_void,
    actions: *const c_void,
    error: *mut c_void,
) -> *mut c_void {
    let Some(real) = real!(
        rte_flow_create: fn(u16, *const c_void, *const c_void, *const c_void, *mut c_void) -> *mut c_void
    ) else {
        return std::ptr::null_mut();
    };
    let whole = !attr.is_null() && !actions.is_null();
    // SAFETY: the caller's arguments.
    if whole && refuses_rule(port, |which| unsafe { shim::p4s_rule(attr, actions, which) }) {
        explain(error);
        return std::ptr::null_mut();
    }
    // SAFETY: the caller's arguments.
    unsafe { real(port, attr, pattern, actions, error) }
}

/// Makes a template for flow rules' actions, unless it leads packets round us.
///
/// # Safety
/// As DPDK's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_flow_actions_template_create(
    port: u16,
    attr: *const c_void,
    actions: *const c_void,
    masks: *const c_void,
    error: *mut c_void,
) -> *mut c_void {
    let Some(real) = real!(
        rte_flow_actions_template_create:
            fn(u16, *const c_void, *const c_void, *const c_void, *mut c_void) -> *mut c_void
    ) else {
        return std::ptr::null_mut();
    };
    let whole = !attr.is_null() && !actions.is_null();
    // SAFETY: the caller's arguments.
    if whole && refuses_rule(port, |which| unsafe { shim::p4s_template(attr, actions, which) }) {
        explain(error);
        return std::ptr::null_mut();
    }
    // SAFETY: the caller's arguments.
    unsafe { real(port, attr, actions, masks, error) }
}

/// Makes an action that rules refer to, unless it leads packets round us.
///
/// # Safety
/// As DPDK's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_flow_action_handle_create(
    port: u16,
    conf: *const c_void,
    action: *const c_void,
    error: *mut c_void,
) -> *mut c_void {
    let Some(real) = real!(
        rte_flow_action_handle_create: fn(u16, *const c_void, *const c_void, *mut c_void) -> *mut c_void
    ) else {
        return std::ptr::null_mut();
    };
    // SAFETY: the caller's arguments.
    if !action.is_null() && refuses_rule(port, |which| unsafe { shim::p4s_action(action, which) }) {
        explain(error);
        return std::ptr::null_mut();
    }
    // SAFETY: the caller's arguments.
    unsafe { real(port, conf, action, error) }
}

/// As [`rte_flow_action_handle_create`], by a queue of operations.
///
/// # Safety
/// As DPDK's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_flow_async_action_handle_create(
    port: u16,
    queue: u32,
    attr: *const c_void,
    conf: *const c_void,
    action: *const c_void,
    data: *mut c_void,
    error: *mut c_void,
) -> *mut c_void {
    let Some(real) = real!(
        rte_flow_async_action_handle_create:
            fn(u16, u32, *const c_void, *const c_void, *const c_void, *mut c_void, *mut c_void) -> *mut c_void
    ) else {
        return std::ptr::null_mut();
    };
    // SAFETY: the caller's arguments.
    if !action.is_null() && refuses_rule(port, |which| unsafe { shim::p4s_action(action, which) }) {
        explain(error);
        return std::ptr::null_mut();
    }
    // SAFETY: the caller's arguments.
    unsafe { real(port, queue, attr, conf, action, data, error) }
}
