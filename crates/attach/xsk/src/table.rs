//! Which file descriptors are AF_XDP sockets: the question that every replaced function asks first.
//!
//! One load for a process that has none, two for one that has. An entry is a pointer to something that is never freed
//! (a closed socket's place is used again, and what it held is gone), so asking takes no lock and no count.

use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use libc::c_int;

use crate::socket::Socket;

/// Descriptors that can be told apart. Beyond, AF_XDP sockets are refused; untouched pages of this cost nothing.
const DESCRIPTORS: usize = 1 << 20;

static ENTRIES: [AtomicPtr<Socket>; DESCRIPTORS] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; DESCRIPTORS];
/// Whether there ever was one, in this process and not in the one that forked it.
static ANY: AtomicBool = AtomicBool::new(false);

/// The AF_XDP socket that a descriptor is, if it is one.
#[inline]
pub(crate) fn get(fd: c_int) -> Option<&'static Socket> {
    if !ANY.load(Relaxed) {
        return None;
    }
    let entry = ENTRIES.get(usize::try_from(fd).ok()?)?;
    // SAFETY: entries are null or come from a `&'static Socket`.
    unsafe { entry.load(Acquire).as_ref() }
}

/// A descriptor is this socket from now on. `false` if its number is too high to be remembered.
pub(crate) fn put(fd: c_int, socket: &'static Socket) -> bool {
    let Some(entry) = usize::try_from(fd).ok().and_then(|n| ENTRIES.get(n)) else { return false };
    entry.store(std::ptr::from_ref(socket).cast_mut(), Release);
    ANY.store(true, Release);
    true
}

/// A descriptor is none any more. Returns what it was.
pub(crate) fn take(fd: c_int) -> Option<&'static Socket> {
    get(fd)?;
    let entry = ENTRIES.get(usize::try_from(fd).ok()?)?;
    // SAFETY: as in `get`.
    unsafe { entry.swap(std::ptr::null_mut(), Acquire).as_ref() }
}

/// A descriptor of this socket, if there is one.
pub(crate) fn find(socket: &Socket) -> Option<c_int> {
    within(0, u32::MAX).find(|&fd| get(fd).is_some_and(|s| std::ptr::eq(s, socket)))
}

/// The descriptors of a range that are AF_XDP sockets.
pub(crate) fn within(first: u32, last: u32) -> impl Iterator<Item = c_int> {
    let end = (last as usize).saturating_add(1).min(DESCRIPTORS);
    let any = ANY.load(Relaxed);
    let range = if any { (first as usize).min(end)..end } else { 0..0 };
    range.filter(|&n| !ENTRIES[n].load(Relaxed).is_null()).map(|n| n as c_int)
}

/// In a forked child: its descriptors are the parent's sockets, which it must not move.
pub(crate) fn forget_all() {
    ANY.store(false, Release);
}
