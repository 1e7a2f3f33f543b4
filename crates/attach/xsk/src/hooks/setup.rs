//! Making, setting up and binding sockets; mapping rings.

use std::ffi::c_void;
use std::sync::Arc;

use libc::{c_int, off_t, size_t, sockaddr, socklen_t};
use p4shield_xsk_relay::frames::UmemGeometry;

use crate::library::{Library, is_forked, lets_pass, library};
use crate::rings::Which;
use crate::socket::Socket;
use crate::umem::{Taken, Umem};
use crate::{real, table};

/// `struct xdp_umem_reg` of Linux 4.18: without flags.
const MEMORY_V1: usize = 24;
/// `XDP_UMEM_UNALIGNED_CHUNK_FLAG`.
const UNALIGNED: u32 = 1;

/// `socket`: one of family AF_XDP is remembered, or refused where packets could not be mediated.
///
/// # Safety
/// As for `socket`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: takes no pointers.
    let fd = unsafe { real::socket()(domain, kind, protocol) };
    if domain != libc::AF_XDP || fd < 0 {
        return fd;
    }
    let why = if is_forked() {
        "the process was forked from one that has AF_XDP sockets"
    } else if library().is_err() {
        "see the line above"
    } else if table::put(fd, Socket::make(fd)) {
        return fd;
    } else {
        table::take(fd);
        "its descriptor's number is too high"
    };
    if lets_pass(why) {
        return fd;
    }
    // SAFETY: the descriptor is new.
    unsafe { real::close()(fd) };
    real::fail(libc::EACCES)
}

/// `setsockopt`: what is told of packet memory and rings is remembered.
///
/// # Safety
/// As for `setsockopt`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    option: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    let known = table::get(fd).or_else(|| if level == libc::SOL_XDP { adopt(fd) } else { None });
    let Some(socket) = known else {
        // SAFETY: the caller's call.
        return unsafe { real::setsockopt()(fd, level, option, value, len) };
    };
    // Read once, before the kernel does: what it accepts is what is remembered, or the application cheats itself.
    // SAFETY: the caller promises `len` bytes; the kernel would read them, too.
    let words = unsafe { read(value, len) };
    let memory = (level, option) == (libc::SOL_XDP, libc::XDP_UMEM_REG) && len as usize >= MEMORY_V1;
    // SAFETY: the application hands its buffer over with this very call.
    let Ok(umem) = memory.then(|| unsafe { registering(&words, len) }).transpose() else {
        tracing::error!(
            "packet memory that a tenant's P4 VM reads cannot be registered once more: write zero_copy = \"off\" for all \
             ports of this program"
        );
        return real::fail(libc::EACCES);
    };
    // SAFETY: the caller's call.
    let result = unsafe { real::setsockopt()(fd, level, option, value, len) };
    if result < 0 {
        return result;
    }
    match (level, option) {
        (libc::SOL_XDP, libc::XDP_UMEM_REG) => {
            let geometry = UmemGeometry::new(words[1], words[2] as u32, is_unaligned(&words, len)).ok();
            if let Some((geometry, umem)) = geometry.zip(umem) {
                // SAFETY: the kernel has just accepted it.
                unsafe { socket.memory_registered(words[0] as usize as *mut c_void, geometry, umem) };
            }
        }
        (libc::SOL_XDP, _) => {
            if let Some(which) = Which::of_option(option) {
                socket.ring_made(which, words[0] as u32);
            }
        }
        (libc::SOL_SOCKET, libc::SO_BUSY_POLL | libc::SO_PREFER_BUSY_POLL) => {
            socket.busy_polls.store(true, std::sync::atomic::Ordering::Relaxed);
        }
        _ => {}
    }
    result
}

/// Whether chunks of packet memory begin anywhere, by what is registered.
fn is_unaligned(words: &[u64; 4], len: socklen_t) -> bool {
    len as usize > MEMORY_V1 && words[3] as u32 & UNALIGNED != 0
}

/// Packet memory that is about to be registered.
///
/// # Safety
/// It is the application's, which hands it over.
#[cold]
unsafe fn registering(words: &[u64; 4], len: socklen_t) -> Result<Arc<Umem>, Taken> {
    let start = words[0] as usize;
    let addresses = start..start.saturating_add(words[1] as usize);
    let wanted = library().is_ok_and(Library::wants_packets);
    // SAFETY: the caller's promise; nobody writes a buffer while it is being registered.
    unsafe { Umem::registering(addresses, is_unaligned(words, len), wanted) }
}

/// An AF_XDP socket that another process made, or this one before `exec`, and that is set up here.
#[cold]
fn adopt(fd: c_int) -> Option<&'static Socket> {
    if is_forked() || real::domain(fd) != Some(libc::AF_XDP) || library().is_err() {
        // What is not known cannot be bound.
        return None;
    }
    let socket = Socket::make(fd);
    if table::put(fd, socket) {
        return Some(socket);
    }
    socket.closing(fd);
    None
}

/// The first bytes of an option's value, as double words; what there is not is zero.
///
/// # Safety
/// `len` bytes can be read at `value`, or it is null.
unsafe fn read(value: *const c_void, len: socklen_t) -> [u64; 4] {
    let mut bytes = [0_u8; 32];
    if !value.is_null() {
        let len = (len as usize).min(bytes.len());
        // SAFETY: the caller's promise, and the buffer has room.
        unsafe { std::ptr::copy_nonoverlapping(value.cast::<u8>(), bytes.as_mut_ptr(), len) };
    }
    let (words, _) = bytes.as_chunks::<8>();
    std::array::from_fn(|n| u64::from_ne_bytes(words[n]))
}

/// `mmap`: a ring is replaced by one of ours.
///
/// # Safety
/// As for `mmap`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn mmap(
    at: *mut c_void,
    len: size_t,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    // SAFETY: the caller's call.
    let ours = table::get(fd).and_then(|s| unsafe { s.map((at, len, prot, flags, offset)) });
    // SAFETY: the caller's call.
    ours.unwrap_or_else(|| unsafe { real::mmap()(at, len, prot, flags, fd, offset) })
}

/// `mmap64`: `mmap`, where offsets have 64 bits anyway.
///
/// # Safety
/// As for `mmap`.
#[cfg(target_pointer_width = "64")]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn mmap64(
    at: *mut c_void,
    len: size_t,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    // SAFETY: the caller's call.
    unsafe { mmap(at, len, prot, flags, fd, offset) }
}

/// `bind`: from now on rings are moved.
///
/// # Safety
/// As for `bind`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    let Some(socket) = table::get(fd) else {
        // SAFETY: the caller's promise.
        let ours = unsafe { is_xdp(address, len) };
        if ours && !lets_pass("it was not seen to be set up: it is another process's, or made past libc") {
            return real::fail(libc::EACCES);
        }
        // SAFETY: the caller's call.
        return unsafe { real::bind()(fd, address, len) };
    };
    if address.is_null() || (len as usize) < size_of::<libc::sockaddr_xdp>() {
        // SAFETY: the caller's call, which the kernel refuses.
        return unsafe { real::bind()(fd, address, len) };
    }
    // SAFETY: the caller promises `len` bytes; every bit pattern is an address.
    let copy = unsafe { address.cast::<libc::sockaddr_xdp>().read_unaligned() };
    if socket.has_foreign_ring() {
        if !lets_pass("it was given rings that were not mapped by libc's mmap") {
            return real::fail(libc::EACCES);
        }
        table::take(fd);
        socket.closing(fd);
        // SAFETY: the caller's call.
        return unsafe { real::bind()(fd, address, len) };
    }
    let shares = copy.sxdp_flags & libc::XDP_SHARED_UMEM != 0;
    let peer = if shares { table::get(copy.sxdp_shared_umem_fd as c_int) } else { None };
    // SAFETY: an address of our own, of which the kernel sees what we saw.
    let result =
        unsafe { real::bind()(fd, (&raw const copy).cast(), size_of::<libc::sockaddr_xdp>() as socklen_t) };
    if result < 0 {
        return result;
    }
    match socket.bound(&copy, peer) {
        Ok(()) => result,
        Err(error) => {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "an AF_XDP socket cannot be mediated, so its bind fails"
            );
            real::fail(libc::EACCES)
        }
    }
}

/// Whether this is an AF_XDP socket's address.
///
/// # Safety
/// `len` bytes can be read at `address`, or it is null.
unsafe fn is_xdp(address: *const sockaddr, len: socklen_t) -> bool {
    if address.is_null() || (len as usize) < size_of::<libc::sa_family_t>() {
        return false;
    }
    // SAFETY: every address begins with its family, and `len` says that it is there.
    let family = unsafe { address.cast::<libc::sa_family_t>().read_unaligned() };
    c_int::from(family) == libc::AF_XDP
}
