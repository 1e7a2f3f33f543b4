//! The functions that create, set up and bind sockets and map rings.

use std::ffi::c_void;
use std::sync::Arc;

use libc::{c_int, off_t, size_t, sockaddr, socklen_t};
use p4shield_xsk_relay::frames::UmemGeometry;

use crate::mediation::Mediation;
use crate::next_libc;
use crate::process::{allows_unmediated, is_forked, mediation};
use crate::rings::RingKind;
use crate::socket::{SOCKETS, XskSocket};
use crate::umem::{AccessConflict, RegisteredUmem};

/// Bytes of `struct xdp_umem_reg` in Linux 4.18, without flags.
const UMEM_REG_V1: usize = 24;
/// `XDP_UMEM_UNALIGNED_CHUNK_FLAG`.
const UNALIGNED: u32 = 1;

/// `socket`: records an AF_XDP socket, or refuses it if its packets could not be mediated.
///
/// # Safety
/// As for `socket`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: takes no pointers.
    let fd = unsafe { next_libc::socket()(domain, kind, protocol) };
    if domain != libc::AF_XDP || fd < 0 {
        return fd;
    }
    let why = if is_forked() {
        "its process was forked from one that has AF_XDP sockets"
    } else if mediation().is_err() {
        "the library could not start (see the previous error)"
    } else if SOCKETS.put(fd, XskSocket::make(fd)) {
        return fd;
    } else {
        SOCKETS.take(fd);
        "its descriptor has too high a number"
    };
    if allows_unmediated(why) {
        return fd;
    }
    // SAFETY: the descriptor is new.
    unsafe { next_libc::close()(fd) };
    next_libc::fail(libc::EACCES)
}

/// `setsockopt`: records the UMEM and the rings of an AF_XDP socket.
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
    let known = SOCKETS.get(fd).or_else(|| if level == libc::SOL_XDP { adopt(fd) } else { None });
    let Some(socket) = known else {
        // SAFETY: the caller's call.
        return unsafe { next_libc::setsockopt()(fd, level, option, value, len) };
    };
    // Read once, before the kernel reads it. If the application changes the value meanwhile, it deceives
    // only itself.
    // SAFETY: the caller promises `len` readable bytes, which the kernel would read as well.
    let words = unsafe { read(value, len) };
    let registers_umem =
        (level, option) == (libc::SOL_XDP, libc::XDP_UMEM_REG) && len as usize >= UMEM_REG_V1;
    // SAFETY: the application hands over its buffer with this call.
    let Ok(umem) = registers_umem.then(|| unsafe { registering(&words, len) }).transpose() else {
        tracing::error!(
            event = "umem_refused",
            "cannot register a UMEM that a tenant's P4 VM already reads: set zero_copy = \"off\" for all \
             ports of this program"
        );
        return next_libc::fail(libc::EACCES);
    };
    // SAFETY: the caller's call.
    let result = unsafe { next_libc::setsockopt()(fd, level, option, value, len) };
    if result < 0 {
        return result;
    }
    match (level, option) {
        (libc::SOL_XDP, libc::XDP_UMEM_REG) => {
            let geometry = UmemGeometry::new(words[1], words[2] as u32, is_unaligned(&words, len)).ok();
            if let Some((geometry, umem)) = geometry.zip(umem) {
                // SAFETY: the kernel has just accepted it.
                unsafe { socket.umem_registered(words[0] as usize as *mut c_void, geometry, umem) };
            }
        }
        (libc::SOL_XDP, _) => {
            if let Some(kind) = RingKind::of_option(option) {
                socket.ring_created(kind, words[0] as u32);
            }
        }
        (libc::SOL_SOCKET, libc::SO_BUSY_POLL | libc::SO_PREFER_BUSY_POLL) => {
            socket.busy_polls.store(true, std::sync::atomic::Ordering::Relaxed);
        }
        _ => {}
    }
    result
}

/// Returns whether the registration is for unaligned chunks.
fn is_unaligned(words: &[u64; 4], len: socklen_t) -> bool {
    len as usize > UMEM_REG_V1 && words[3] as u32 & UNALIGNED != 0
}

/// Prepares a UMEM that the application is about to register.
///
/// # Safety
/// The application hands over the buffer.
#[cold]
unsafe fn registering(words: &[u64; 4], len: socklen_t) -> Result<Arc<RegisteredUmem>, AccessConflict> {
    let start = words[0] as usize;
    let addresses = start..start.saturating_add(words[1] as usize);
    let wanted = mediation().is_ok_and(Mediation::wants_shared_umem);
    // SAFETY: the caller's promise; no thread writes a buffer while it is being registered.
    unsafe { RegisteredUmem::registering(addresses, is_unaligned(words, len), wanted) }
}

/// Records an AF_XDP socket that another process created, or this one before `exec`, and that this
/// process sets up.
#[cold]
fn adopt(fd: c_int) -> Option<&'static XskSocket> {
    if is_forked() || next_libc::domain(fd) != Some(libc::AF_XDP) || mediation().is_err() {
        // The bind of an unrecorded socket is refused.
        return None;
    }
    let socket = XskSocket::make(fd);
    if SOCKETS.put(fd, socket) {
        return Some(socket);
    }
    socket.descriptor_closing(fd);
    None
}

/// Returns the first 32 bytes of an option's value as double words, with zeros for missing bytes.
///
/// # Safety
/// `len` bytes are readable at `value`, or it is null.
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

/// `mmap`: maps the application's ring in place of the kernel's.
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
    let ours = SOCKETS.get(fd).and_then(|s| unsafe { s.map((at, len, prot, flags, offset)) });
    // SAFETY: the caller's call.
    ours.unwrap_or_else(|| unsafe { next_libc::mmap()(at, len, prot, flags, fd, offset) })
}

/// `mmap64`, the same as `mmap` where offsets have 64 bits.
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

/// `bind`: starts to move the rings of an AF_XDP socket.
///
/// # Safety
/// As for `bind`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    let Some(socket) = SOCKETS.get(fd) else {
        // SAFETY: the caller's promise.
        let ours = unsafe { is_xdp(address, len) };
        if ours && !allows_unmediated("it was not created through libc in this process") {
            return next_libc::fail(libc::EACCES);
        }
        // SAFETY: the caller's call.
        return unsafe { next_libc::bind()(fd, address, len) };
    };
    if address.is_null() || (len as usize) < size_of::<libc::sockaddr_xdp>() {
        // SAFETY: the caller's call, which the kernel refuses.
        return unsafe { next_libc::bind()(fd, address, len) };
    }
    // SAFETY: the caller promises `len` bytes; every bit pattern is an address.
    let copy = unsafe { address.cast::<libc::sockaddr_xdp>().read_unaligned() };
    if socket.has_foreign_ring() {
        if !allows_unmediated("its rings were not mapped through libc's mmap") {
            return next_libc::fail(libc::EACCES);
        }
        SOCKETS.take(fd);
        socket.descriptor_closing(fd);
        // SAFETY: the caller's call.
        return unsafe { next_libc::bind()(fd, address, len) };
    }
    // The application has this library's rings already, so that it cannot go on without mediation.
    if let Err(why) = mediation().map_or(Ok(()), |m| m.receive_unchanged(copy.sxdp_ifindex)) {
        tracing::error!(event = "socket_refused", "an AF_XDP socket is refused: {why}");
        return next_libc::fail(libc::EACCES);
    }
    let shares = copy.sxdp_flags & libc::XDP_SHARED_UMEM != 0;
    let peer = if shares { SOCKETS.get(copy.sxdp_shared_umem_fd as c_int) } else { None };
    // SAFETY: a copy of the address, so that the kernel sees what this library has read.
    let result = unsafe {
        next_libc::bind()(fd, (&raw const copy).cast(), size_of::<libc::sockaddr_xdp>() as socklen_t)
    };
    if result < 0 {
        return result;
    }
    match socket.bound(&copy, peer) {
        Ok(()) => result,
        Err(error) => {
            tracing::error!(
                event = "socket_refused",
                error = &error as &dyn std::error::Error,
                "cannot mediate an AF_XDP socket, so its bind fails"
            );
            next_libc::fail(libc::EACCES)
        }
    }
}

/// Returns whether this is an AF_XDP address.
///
/// # Safety
/// `len` bytes are readable at `address`, or it is null.
unsafe fn is_xdp(address: *const sockaddr, len: socklen_t) -> bool {
    if address.is_null() || (len as usize) < size_of::<libc::sa_family_t>() {
        return false;
    }
    // SAFETY: every address begins with its family, and `len` covers it.
    let family = unsafe { address.cast::<libc::sa_family_t>().read_unaligned() };
    c_int::from(family) == libc::AF_XDP
}
