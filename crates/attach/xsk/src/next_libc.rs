//! The replaced functions as the next library in the search order defines them, usually libc.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use libc::{c_char, c_int, c_uint, c_ulong, epoll_event, msghdr, nfds_t, off_t, pollfd, sigset_t};
use libc::{size_t, sockaddr, socklen_t, ssize_t, timespec};

/// The address of a function, looked up at its first call, since other libraries call it before this
/// library's constructors would run.
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
        // SAFETY: the name ends with a zero byte.
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
            unsafe {
                std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($arg),*) -> $result>(SYMBOL.get())
            }
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

/// Returns the address family of a socket; `None` if `fd` is not a socket.
pub(crate) fn domain(fd: c_int) -> Option<c_int> {
    let mut domain: c_int = 0;
    let mut len = size_of::<c_int>() as socklen_t;
    // SAFETY: the kernel writes at most `len` bytes of a live integer.
    let result = unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_DOMAIN, (&raw mut domain).cast(), &raw mut len)
    };
    (result == 0).then_some(domain)
}

/// Returns the name of an interface in the calling thread's network namespace.
pub(crate) fn interface_name(index: u32) -> Option<String> {
    let mut name = [0 as c_char; libc::IF_NAMESIZE];
    // SAFETY: the buffer has the size that the function is documented to need.
    let found = unsafe { libc::if_indextoname(index, name.as_mut_ptr()) };
    if found.is_null() {
        return None;
    }
    // SAFETY: the function has ended the name with a zero byte.
    unsafe { CStr::from_ptr(found) }.to_str().ok().map(str::to_owned)
}

/// Sets `errno` and returns -1, the result of a failed call.
pub(crate) fn fail(errno: c_int) -> c_int {
    // SAFETY: the calling thread's own variable.
    unsafe { *libc::__errno_location() = errno };
    -1
}

/// Returns the calling thread's `errno`.
pub(crate) fn errno() -> c_int {
    // SAFETY: the calling thread's own variable.
    unsafe { *libc::__errno_location() }
}

/// Makes the empty send call on which the kernel reads a socket's transmit ring.
pub(crate) fn send_empty(fd: c_int) -> ssize_t {
    // SAFETY: sends nothing, so no buffer is read; there is no address.
    unsafe { sendto()(fd, std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0) }
}
