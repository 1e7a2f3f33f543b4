//! The functions that are replaced, as the next library in line has them.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use libc::{c_char, c_int, c_uint, c_ulong, epoll_event, msghdr, nfds_t, off_t, pollfd, sigset_t};
use libc::{size_t, sockaddr, socklen_t, ssize_t, timespec};

use crate::rest::Rest;

/// A function's address, looked up when it is first called: other libraries call before our constructors would run.
struct Symbol {
    name: &'static CStr,
    at: AtomicPtr<c_void>,
}

impl Symbol {
    const fn new(name: &'static CStr) -> Self {
        Self { name, at: AtomicPtr::new(std::ptr::null_mut()) }
    }

    #[inline]
    fn get(&self) -> *mut c_void {
        let at = self.at.load(Relaxed);
        if at.is_null() { self.find() } else { at }
    }

    #[cold]
    fn find(&self) -> *mut c_void {
        // SAFETY: the name ends in a zero.
        let at = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if at.is_null() {
            // A libc without one of these would not have started the program that calls it.
            std::process::abort();
        }
        self.at.store(at, Relaxed);
        at
    }
}

macro_rules! functions {
    ($($name:ident = $symbol:literal: ($($arg:ty),*) -> $result:ty;)*) => {$(
        #[doc = concat!("`", stringify!($symbol), "`.")]
        #[inline]
        pub(crate) fn $name() -> unsafe extern "C" fn($($arg),*) -> $result {
            static SYMBOL: Symbol = Symbol::new($symbol);
            // SAFETY: the type is that of the function with this name in libc.
            unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($arg),*) -> $result>(SYMBOL.get()) }
        }
    )*};
}

functions! {
    socket = c"socket": (c_int, c_int, c_int) -> c_int;
    setsockopt = c"setsockopt": (c_int, c_int, c_int, *const c_void, socklen_t) -> c_int;
    mmap = c"mmap": (*mut c_void, size_t, c_int, c_int, c_int, off_t) -> *mut c_void;
    bind = c"bind": (c_int, *const sockaddr, socklen_t) -> c_int;
    close = c"close": (c_int) -> c_int;
    close_range = c"close_range": (c_uint, c_uint, c_int) -> c_int;
    dup = c"dup": (c_int) -> c_int;
    dup2 = c"dup2": (c_int, c_int) -> c_int;
    dup3 = c"dup3": (c_int, c_int, c_int) -> c_int;
    fcntl = c"fcntl": (c_int, c_int, c_ulong) -> c_int;
    sendto = c"sendto": (c_int, *const c_void, size_t, c_int, *const sockaddr, socklen_t) -> ssize_t;
    send = c"send": (c_int, *const c_void, size_t, c_int) -> ssize_t;
    sendmsg = c"sendmsg": (c_int, *const msghdr, c_int) -> ssize_t;
    recvfrom = c"recvfrom": (c_int, *mut c_void, size_t, c_int, *mut sockaddr, *mut socklen_t) -> ssize_t;
    recv = c"recv": (c_int, *mut c_void, size_t, c_int) -> ssize_t;
    recvmsg = c"recvmsg": (c_int, *mut msghdr, c_int) -> ssize_t;
    poll = c"poll": (*mut pollfd, nfds_t, c_int) -> c_int;
    ppoll = c"ppoll": (*mut pollfd, nfds_t, *const timespec, *const sigset_t) -> c_int;
    epoll_ctl = c"epoll_ctl": (c_int, c_int, c_int, *mut epoll_event) -> c_int;
    epoll_wait = c"epoll_wait": (c_int, *mut epoll_event, c_int, c_int) -> c_int;
    epoll_pwait = c"epoll_pwait": (c_int, *mut epoll_event, c_int, c_int, *const sigset_t) -> c_int;
}

/// `ppoll` on what a thread sleeps for.
///
/// # Safety
/// The mask is null or one.
pub(crate) unsafe fn wait_for(rest: &mut Rest, mask: *const sigset_t) -> c_int {
    let time = rest.time.map(|t| timespec {
        tv_sec: (t / 1_000_000_000) as libc::time_t,
        tv_nsec: (t % 1_000_000_000) as libc::c_long,
    });
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let set = rest.entries();
    // SAFETY: a slice of entries, a time that lives, and the caller's mask.
    unsafe { ppoll()(set.as_mut_ptr(), set.len() as nfds_t, time, mask) }
}

/// The family of a socket; none if this is no socket.
pub(crate) fn domain(fd: c_int) -> Option<c_int> {
    let mut domain: c_int = 0;
    let mut len = size_of::<c_int>() as socklen_t;
    // SAFETY: the kernel writes at most `len` bytes of a live integer.
    let result = unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_DOMAIN, (&raw mut domain).cast(), &raw mut len)
    };
    (result == 0).then_some(domain)
}

/// The name of an interface of the calling thread's network namespace.
pub(crate) fn interface_name(index: u32) -> Option<String> {
    let mut name = [0 as c_char; libc::IF_NAMESIZE];
    // SAFETY: the buffer has the size that the function is documented to need.
    let found = unsafe { libc::if_indextoname(index, name.as_mut_ptr()) };
    if found.is_null() {
        return None;
    }
    // SAFETY: the function ended the name with a zero.
    unsafe { CStr::from_ptr(found) }.to_str().ok().map(str::to_owned)
}

/// Has a call fail with this error.
pub(crate) fn fail(errno: c_int) -> c_int {
    // SAFETY: the calling thread's own variable.
    unsafe { *libc::__errno_location() = errno };
    -1
}

/// What the last failed call of this thread failed with.
pub(crate) fn errno() -> c_int {
    // SAFETY: the calling thread's own variable.
    unsafe { *libc::__errno_location() }
}
