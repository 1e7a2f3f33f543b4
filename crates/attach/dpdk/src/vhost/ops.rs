//! How we hear of vhost-user devices: in the place of the application's own functions, which we call in turn.

use super::{connected, gone, gone_with, name_of, prepare, prepare_all, rest, rest_all};
use crate::contain::contained;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

type Notify = unsafe extern "C" fn(c_int);
type Answer = unsafe extern "C" fn(c_int) -> c_int;

/// `struct rte_vhost_device_ops`; `shim.c` asserts the layout.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Ops {
    new_device: Option<Answer>,
    destroy_device: Option<Notify>,
    vring_state_changed: Option<unsafe extern "C" fn(c_int, u16, c_int) -> c_int>,
    features_changed: Option<unsafe extern "C" fn(c_int, u64) -> c_int>,
    new_connection: Option<Answer>,
    destroy_connection: Option<Notify>,
    guest_notified: Option<Notify>,
    reserved: usize,
}

/// An application's functions for one socket, and ours.
#[derive(Debug)]
struct Registered {
    theirs: Ops,
    ours: Ops,
}

/// By path of socket. None: an ethdev's.
static SOCKETS: Mutex<BTreeMap<CString, Option<&'static Registered>>> = Mutex::new(BTreeMap::new());
/// Whose functions a device's are, by device number, for one that is called often.
static NOTIFIED: [AtomicPtr<Registered>; super::MAX_DEVICES] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; super::MAX_DEVICES];

fn sockets() -> MutexGuard<'static, BTreeMap<CString, Option<&'static Registered>>> {
    SOCKETS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What to register for a socket in place of the application's functions. They are kept for ever: DPDK keeps the
/// address.
///
/// # Safety
/// `theirs` is null or points to functions that stay where they are.
pub(crate) unsafe fn registered(path: &CStr, theirs: *const Ops) -> *const Ops {
    // SAFETY: as the caller promises.
    let Some(theirs_now) = (unsafe { theirs.as_ref() }) else { return theirs };
    if is_in_ethdevs_driver(theirs.cast()) {
        sockets().insert(path.to_owned(), None);
        return theirs;
    }
    let ours = Ops {
        new_device: Some(new_device),
        destroy_device: Some(destroy_device),
        vring_state_changed: Some(vring_state_changed),
        // DPDK asks only whether this one is there; the others may be where theirs are not.
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

/// A socket is no more.
pub(crate) fn unregistered(path: &CStr) {
    gone_with(path);
    sockets().remove(path);
}

/// Whether a socket is that of an ethdev.
pub(super) fn is_ethdevs(path: &CStr) -> bool {
    matches!(sockets().get(path), Some(None))
}

/// Whether an address lies in DPDK's driver that makes ethdevs of vhost-user ports.
fn is_in_ethdevs_driver(at: *const c_void) -> bool {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: dladdr takes any address, and fills `info` if it returns another number than 0.
    unsafe {
        if libc::dladdr(at, info.as_mut_ptr()) == 0 {
            return false;
        }
        let file = info.assume_init().dli_fname;
        !file.is_null() && CStr::from_ptr(file).to_string_lossy().contains("librte_net_vhost")
    }
}

/// The application's functions for a device. From a copy by device number, which does for a device whose socket is gone
/// already.
fn theirs(vid: c_int) -> Ops {
    let slot = usize::try_from(vid).ok().and_then(|vid| NOTIFIED.get(vid));
    // SAFETY: what is stored was leaked by `registered`.
    let known = slot.and_then(|s| unsafe { s.load(Ordering::Acquire).as_ref() });
    known.map(|r| r.theirs).unwrap_or_default()
}

/// Remembers whose functions a device's are.
fn meet(vid: c_int) {
    let registered = name_of(vid).and_then(|path| sockets().get(&path).copied().flatten());
    if let (Some(registered), Ok(number)) = (registered, usize::try_from(vid))
        && let Some(slot) = NOTIFIED.get(number)
    {
        slot.store(std::ptr::from_ref(registered).cast_mut(), Ordering::Release);
    }
}

unsafe extern "C" fn new_connection(vid: c_int) -> c_int {
    contained("hearing of a connection", || {
        connected(vid);
        meet(vid);
    });
    // SAFETY: the application's own function, called as DPDK would; so are those below.
    theirs(vid).new_connection.map_or(0, |f| unsafe { f(vid) })
}

unsafe extern "C" fn new_device(vid: c_int) -> c_int {
    contained("hearing of a device", || {
        meet(vid);
        prepare_all(vid);
    });
    // SAFETY: see `new_connection`.
    theirs(vid).new_device.map_or(0, |f| unsafe { f(vid) })
}

unsafe extern "C" fn vring_state_changed(vid: c_int, queue: u16, enabled: c_int) -> c_int {
    let from_guest = queue % 2 == 1;
    contained("hearing of a queue", || {
        meet(vid);
        if from_guest && enabled != 0 {
            prepare(vid, queue);
        }
    });
    // SAFETY: see `new_connection`.
    let result = theirs(vid).vring_state_changed.map_or(0, |f| unsafe { f(vid, queue, enabled) });
    if from_guest && enabled == 0 {
        contained("a queue's rest", || rest(vid, queue));
    }
    result
}

/// The application has stopped to poll the device when its function returns.
unsafe extern "C" fn destroy_device(vid: c_int) {
    if let Some(f) = theirs(vid).destroy_device {
        // SAFETY: see `new_connection`.
        unsafe { f(vid) };
    }
    contained("a device's rest", || rest_all(vid));
}

unsafe extern "C" fn destroy_connection(vid: c_int) {
    if let Some(f) = theirs(vid).destroy_connection {
        // SAFETY: see `new_connection`.
        unsafe { f(vid) };
    }
    contained("a device's end", || gone(vid));
}

unsafe extern "C" fn guest_notified(vid: c_int) {
    if let Some(f) = theirs(vid).guest_notified {
        // SAFETY: see `new_connection`.
        unsafe { f(vid) };
    }
}
