//! Notifications of vhost-user devices: the library registers its functions in place of the
//! application's, and calls those in turn.

use super::{
    close, close_all, disconnect_device, disconnect_socket, name_of, prepare, prepare_all, reset_number,
};
use crate::panics::catch_panic;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

type Notify = unsafe extern "C" fn(c_int);
type Query = unsafe extern "C" fn(c_int) -> c_int;

/// `struct rte_vhost_device_ops`; `shim.c` asserts the layout.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Ops {
    new_device: Option<Query>,
    destroy_device: Option<Notify>,
    vring_state_changed: Option<unsafe extern "C" fn(c_int, u16, c_int) -> c_int>,
    features_changed: Option<unsafe extern "C" fn(c_int, u64) -> c_int>,
    new_connection: Option<Query>,
    destroy_connection: Option<Notify>,
    guest_notified: Option<Notify>,
    reserved: usize,
}

/// An application's functions for one socket, and the library's.
#[derive(Debug)]
struct Registered {
    theirs: Ops,
    ours: Ops,
}

/// Registrations by the socket's path; `None` for the socket of an ethdev.
static SOCKETS: Mutex<BTreeMap<CString, Option<&'static Registered>>> = Mutex::new(BTreeMap::new());
/// Registrations by device number, for functions that DPDK calls often.
static NOTIFIED: [AtomicPtr<Registered>; super::MAX_DEVICES] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; super::MAX_DEVICES];

fn sockets() -> MutexGuard<'static, BTreeMap<CString, Option<&'static Registered>>> {
    SOCKETS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the functions to register for a socket in place of the application's. They are never
/// freed, because DPDK keeps their address.
///
/// # Safety
/// `theirs` is null or points to a structure that is never freed.
pub(crate) unsafe fn replace_ops(path: &CStr, theirs: *const Ops) -> *const Ops {
    // SAFETY: as the caller promises.
    let Some(theirs_now) = (unsafe { theirs.as_ref() }) else { return theirs };
    if is_in_net_vhost(theirs.cast()) {
        sockets().insert(path.to_owned(), None);
        return theirs;
    }
    let ours = Ops {
        new_device: Some(new_device),
        destroy_device: Some(destroy_device),
        vring_state_changed: Some(vring_state_changed),
        // DPDK only checks whether this one is set; the others may be set even if the application's are not.
        features_changed: theirs_now.features_changed,
        new_connection: Some(new_connection),
        destroy_connection: Some(destroy_connection),
        guest_notified: theirs_now.guest_notified.map(|_| guest_notified as Notify),
        reserved: theirs_now.reserved,
    };
    let registered: &'static Registered = Box::leak(Box::new(Registered { theirs: *theirs_now, ours }));
    sockets().insert(path.to_owned(), Some(registered));
    &raw const registered.ours
}

/// Disconnects the devices of a socket that was unregistered.
pub(crate) fn unregistered(path: &CStr) {
    disconnect_socket(path);
    sockets().remove(path);
}

/// Returns whether a socket belongs to an ethdev.
pub(super) fn belongs_to_ethdev(path: &CStr) -> bool {
    matches!(sockets().get(path), Some(None))
}

/// Returns whether an address lies in DPDK's `net_vhost` driver, whose vhost-user ports are ethdevs.
fn is_in_net_vhost(at: *const c_void) -> bool {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: dladdr takes any address, and fills `info` unless it returns 0.
    unsafe {
        if libc::dladdr(at, info.as_mut_ptr()) == 0 {
            return false;
        }
        let file = info.assume_init().dli_fname;
        !file.is_null() && CStr::from_ptr(file).to_string_lossy().contains("librte_net_vhost")
    }
}

/// Returns the application's functions for a device, from the table by device number: the device's
/// socket may be unregistered already.
fn theirs(vid: c_int) -> Ops {
    let slot = usize::try_from(vid).ok().and_then(|vid| NOTIFIED.get(vid));
    // SAFETY: `replace_ops` leaked the stored values.
    let known = slot.and_then(|s| unsafe { s.load(Ordering::Acquire).as_ref() });
    known.map(|r| r.theirs).unwrap_or_default()
}

/// Enters a device into the table by device number.
fn register_device(vid: c_int) {
    let registered = name_of(vid).and_then(|path| sockets().get(&path).copied().flatten());
    if let (Some(registered), Ok(number)) = (registered, usize::try_from(vid))
        && let Some(slot) = NOTIFIED.get(number)
    {
        slot.store(std::ptr::from_ref(registered).cast_mut(), Ordering::Release);
    }
}

unsafe extern "C" fn new_connection(vid: c_int) -> c_int {
    catch_panic("handling a connection", || {
        reset_number(vid);
        register_device(vid);
    });
    // SAFETY: the application's own function, called as DPDK would call it; likewise below.
    theirs(vid).new_connection.map_or(0, |f| unsafe { f(vid) })
}

unsafe extern "C" fn new_device(vid: c_int) -> c_int {
    catch_panic("handling a new device", || {
        register_device(vid);
        prepare_all(vid);
    });
    // SAFETY: see `new_connection`.
    theirs(vid).new_device.map_or(0, |f| unsafe { f(vid) })
}

unsafe extern "C" fn vring_state_changed(vid: c_int, queue: u16, enabled: c_int) -> c_int {
    catch_panic("handling a queue's state", || {
        register_device(vid);
        if enabled != 0 {
            prepare(vid, queue);
        }
    });
    // SAFETY: see `new_connection`.
    let result = theirs(vid).vring_state_changed.map_or(0, |f| unsafe { f(vid, queue, enabled) });
    if enabled == 0 {
        catch_panic("closing a queue", || close(vid, queue));
    }
    result
}

/// The application no longer polls the device when its function returns.
unsafe extern "C" fn destroy_device(vid: c_int) {
    if let Some(f) = theirs(vid).destroy_device {
        // SAFETY: see `new_connection`.
        unsafe { f(vid) };
    }
    catch_panic("closing a device's queues", || close_all(vid));
}

unsafe extern "C" fn destroy_connection(vid: c_int) {
    if let Some(f) = theirs(vid).destroy_connection {
        // SAFETY: see `new_connection`.
        unsafe { f(vid) };
    }
    catch_panic("disconnecting a device", || disconnect_device(vid));
}

unsafe extern "C" fn guest_notified(vid: c_int) {
    if let Some(f) = theirs(vid).guest_notified {
        // SAFETY: see `new_connection`.
        unsafe { f(vid) };
    }
}
