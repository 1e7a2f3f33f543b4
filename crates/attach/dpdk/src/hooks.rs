//! The functions of DPDK that the library replaces in a process that preloads it.
//!
//! Each function does its part and calls the next function of its name in the dynamic linker's
//! order, which is DPDK's. If there is none, the process has no such DPDK, and the call fails.
//! Panics do not leave these functions (`panics`).
//!
//! Ports of ethdev continue in `ethdev`, guests' queues in `vhost`.

use crate::bypass::{refuse_flow, refuses_rule, report_bypass};
use crate::dpdk::next_symbol;
use crate::ethdev;
use crate::mbuf::{Mbuf, RawMbuf};
use crate::panics::catch_panic;
use crate::pool;
use crate::secondary;
use crate::shim;
use crate::transmit_queue::poll_pending;
use crate::vhost::{self, QueueRole, SendRole, replace_ops};
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::MaybeUninit;
use std::sync::OnceLock;

/// Evaluates to the next function of this name, which has this signature. If there is none, returns
/// `$failure` from the function that uses it.
macro_rules! next_function {
    ($name:ident: fn($($arg:ty),*) -> $ret:ty, else $failure:expr) => {{
        static NEXT: OnceLock<Option<unsafe extern "C" fn($($arg),*) -> $ret>> = OnceLock::new();
        let next = *NEXT.get_or_init(|| {
            let at = catch_panic("looking up a function", || next_symbol(concat!(stringify!($name), "\0")))??;
            // SAFETY: DPDK's function of that name has this signature.
            Some(unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($arg),*) -> $ret>(at) })
        });
        let Some(next) = next else { return $failure };
        next
    }};
}

/// Starts DPDK; refuses a secondary process.
///
/// # Safety
/// As DPDK's function of this name. This holds for all functions of this module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_eal_init(count: c_int, words: *mut *mut c_char) -> c_int {
    let real = next_function!(rte_eal_init: fn(c_int, *mut *mut c_char) -> c_int, else -1);
    // SAFETY: the caller's arguments; likewise below.
    let requested =
        catch_panic("reading DPDK's arguments", || unsafe { secondary::is_requested(count, words) });
    if requested == Some(true) {
        return secondary::refuse();
    }
    // SAFETY: as above.
    let result = unsafe { real(count, words) };
    // DPDK has resolved `--proc-type=auto`.
    if result >= 0 && catch_panic("reading the process type", secondary::is_secondary) == Some(true) {
        return secondary::refuse();
    }
    result
}

/// Adds callbacks to a port and starts it.
///
/// # Safety
/// As DPDK's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_eth_dev_start(port: u16) -> c_int {
    let real = next_function!(rte_eth_dev_start: fn(u16) -> c_int, else -libc::ENOSYS);
    let ready = catch_panic("preparing a port", || ethdev::before_start(port));
    if let Err(errno) = ready.unwrap_or(Err(libc::ENOTSUP)) {
        return -errno;
    }
    // SAFETY: the caller's arguments.
    let result = unsafe { real(port) };
    if result == 0 {
        catch_panic("recording a port's start", || ethdev::after_start(port));
    }
    result
}

/// Stops a port and frees its held packets.
///
/// # Safety
/// As DPDK's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_eth_dev_stop(port: u16) -> c_int {
    let real = next_function!(rte_eth_dev_stop: fn(u16) -> c_int, else -libc::ENOSYS);
    // SAFETY: the caller's arguments.
    let result = unsafe { real(port) };
    if result == 0 {
        catch_panic("stopping a port", || ethdev::after_stop(port));
    }
    result
}

/// Closes a port.
///
/// # Safety
/// As DPDK's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_eth_dev_close(port: u16) -> c_int {
    let real = next_function!(rte_eth_dev_close: fn(u16) -> c_int, else -libc::ENOSYS);
    catch_panic("closing a port", || ethdev::before_close(port));
    // SAFETY: the caller's arguments.
    unsafe { real(port) }
}

/// Sets up a receive queue and records the size of its pool.
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
    let real = next_function!(
        rte_eth_rx_queue_setup: fn(u16, u16, u16, c_uint, *const c_void, *mut c_void) -> c_int,
        else -libc::ENOSYS
    );
    // SAFETY: the caller's arguments.
    unsafe {
        let result = real(port, queue, descriptors, socket, conf, pool);
        if result == 0 {
            catch_panic("recording a pool", || pool::record(port, pool));
        }
        result
    }
}

/// Registers the library's device functions for a vhost-user socket in place of the application's.
///
/// # Safety
/// As DPDK's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_vhost_driver_callback_register(
    path: *const c_char,
    ops: *const c_void,
) -> c_int {
    let real = next_function!(
        rte_vhost_driver_callback_register: fn(*const c_char, *const c_void) -> c_int,
        else -1
    );
    // SAFETY: the caller's arguments; the replacement of `ops` is never freed.
    unsafe {
        let replaced =
            || if path.is_null() { ops } else { replace_ops(CStr::from_ptr(path), ops.cast()).cast() };
        match catch_panic("registering a vhost-user socket", replaced) {
            Some(ops) => real(path, ops),
            None => -1,
        }
    }
}

/// Unregisters a vhost-user socket.
///
/// # Safety
/// As DPDK's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_vhost_driver_unregister(path: *const c_char) -> c_int {
    let real = next_function!(rte_vhost_driver_unregister: fn(*const c_char) -> c_int, else -1);
    // SAFETY: the caller's arguments.
    unsafe {
        let result = real(path);
        if result == 0 && !path.is_null() {
            catch_panic("unregistering a vhost-user socket", || vhost::unregistered(CStr::from_ptr(path)));
        }
        result
    }
}

/// Receives packets from a guest and returns those that programs let pass.
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
    let real = next_function!(
        rte_vhost_dequeue_burst: fn(c_int, u16, *mut c_void, *mut *mut RawMbuf, u16) -> u16,
        else 0
    );
    // SAFETY: the caller's arguments.
    let received = unsafe { real(vid, queue, pool, packets, count) };
    // SAFETY: the caller's array has room for `count` packets; the first `received` are there and are ours.
    let slots = unsafe { std::slice::from_raw_parts(packets.cast::<Cell<MaybeUninit<_>>>(), count.into()) };
    match vhost::queue_role(vid, queue) {
        QueueRole::Mediated(queue) => {
            // SAFETY: as above.
            let passed = unsafe { queue.process(slots, received.into()) as u16 };
            poll_pending(queue.clock());
            passed
        }
        QueueRole::Ethdev => received,
        QueueRole::Unknown => {
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

/// Sends packets to a guest once programs let them pass.
///
/// # Safety
/// As DPDK's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_vhost_enqueue_burst(
    vid: c_int,
    queue: u16,
    packets: *mut *mut RawMbuf,
    count: u16,
) -> u16 {
    let real = next_function!(
        rte_vhost_enqueue_burst: fn(c_int, u16, *mut *mut RawMbuf, u16) -> u16,
        else 0
    );
    match vhost::send_role(vid, queue) {
        // SAFETY: the caller's arguments; likewise below.
        SendRole::Judged(queue) => unsafe { queue.send(packets, count) },
        // SAFETY: as above.
        SendRole::Open => unsafe { real(vid, queue, packets, count) },
        // The caller frees them as packets that were sent.
        SendRole::Unknown => count,
    }
}

/// Refuses DMA for a guest's queue: functions that the library does not replace would receive its packets.
///
/// # Safety
/// As DPDK's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_vhost_async_channel_register(_vid: c_int, _queue: u16) -> c_int {
    report_bypass("asynchronous vhost (DMA) would bypass the programs and was refused; turn it off");
    -1
}

/// Refuses DMA, as [`rte_vhost_async_channel_register`].
///
/// # Safety
/// As DPDK's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_vhost_async_channel_register_thread_unsafe(vid: c_int, queue: u16) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { rte_vhost_async_channel_register(vid, queue) }
}

/// Refuses vDPA: a card would serve the guest's queues.
///
/// # Safety
/// As DPDK's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rte_vhost_driver_attach_vdpa_device(
    _path: *const c_char,
    _device: *mut c_void,
) -> c_int {
    report_bypass("a vDPA device would bypass the programs and was refused; use vhost-user");
    -1
}

/// Refuses hairpin queues: the card would forward packets without the switch.
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
    report_bypass("a hairpin queue would bypass the programs and was refused");
    -libc::ENOTSUP
}

/// Creates a flow rule, unless its packets would bypass the programs.
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
    let real = next_function!(
        rte_flow_create: fn(u16, *const c_void, *const c_void, *const c_void, *mut c_void) -> *mut c_void,
        else std::ptr::null_mut()
    );
    let complete = !attr.is_null() && !actions.is_null();
    // SAFETY: the caller's arguments.
    if complete && refuses_rule(port, |which| unsafe { shim::p4s_rule(attr, actions, which) }) {
        return refuse_flow(error);
    }
    // SAFETY: the caller's arguments.
    unsafe { real(port, attr, pattern, actions, error) }
}

/// Creates a template of flow rules' actions, unless packets would bypass the programs.
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
    let real = next_function!(
        rte_flow_actions_template_create:
            fn(u16, *const c_void, *const c_void, *const c_void, *mut c_void) -> *mut c_void,
        else std::ptr::null_mut()
    );
    let complete = !attr.is_null() && !actions.is_null();
    // SAFETY: the caller's arguments.
    if complete && refuses_rule(port, |which| unsafe { shim::p4s_template(attr, actions, which) }) {
        return refuse_flow(error);
    }
    // SAFETY: the caller's arguments.
    unsafe { real(port, attr, actions, masks, error) }
}

/// Creates an action that rules refer to, unless packets would bypass the programs.
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
    let real = next_function!(
        rte_flow_action_handle_create: fn(u16, *const c_void, *const c_void, *mut c_void) -> *mut c_void,
        else std::ptr::null_mut()
    );
    // SAFETY: the caller's arguments.
    if !action.is_null() && refuses_rule(port, |which| unsafe { shim::p4s_action(action, which) }) {
        return refuse_flow(error);
    }
    // SAFETY: the caller's arguments.
    unsafe { real(port, conf, action, error) }
}

/// Creates an action as [`rte_flow_action_handle_create`] does, through a queue of operations.
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
    let real = next_function!(
        rte_flow_async_action_handle_create:
            fn(u16, u32, *const c_void, *const c_void, *const c_void, *mut c_void, *mut c_void)
                -> *mut c_void,
        else std::ptr::null_mut()
    );
    // SAFETY: the caller's arguments.
    if !action.is_null() && refuses_rule(port, |which| unsafe { shim::p4s_action(action, which) }) {
        return refuse_flow(error);
    }
    // SAFETY: the caller's arguments.
    unsafe { real(port, queue, attr, conf, action, data, error) }
}
