//! The system calls of AF_XDP that rustix does not provide.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A type that may be the value of a socket option: plain C data without padding.
///
/// # Safety
/// Every bit pattern must be a value of the type.
pub(crate) unsafe trait Plain: Copy {}
// SAFETY: an integer.
unsafe impl Plain for u32 {}
// SAFETY: integers only.
unsafe impl Plain for libc::xdp_mmap_offsets {}
// SAFETY: integers only.
unsafe impl Plain for libc::xdp_statistics {}
// SAFETY: integers only.
unsafe impl Plain for libc::xdp_options {}
// SAFETY: integers only.
unsafe impl Plain for libc::xdp_umem_reg {}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Creates an AF_XDP socket.
pub(crate) fn socket() -> io::Result<OwnedFd> {
    // SAFETY: takes no pointers.
    let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    check(fd)?;
    // SAFETY: a new descriptor that only this function has.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets an option of level `SOL_XDP`.
pub(crate) fn set<T: Plain>(fd: BorrowedFd<'_>, option: libc::c_int, value: &T) -> io::Result<()> {
    // SAFETY: the kernel reads `size_of::<T>()` bytes of a live `T`.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_XDP,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    })
}

/// Reads an option of level `SOL_XDP`. A kernel whose structure is shorter is an error, since its layout
/// differs.
pub(crate) fn get<T: Plain>(fd: BorrowedFd<'_>, option: libc::c_int) -> io::Result<T> {
    // SAFETY: `Plain` promises that all-zero bits are a value.
    let mut value: T = unsafe { std::mem::zeroed() };
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes of a live `T`.
    check(unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_XDP,
            option,
            std::ptr::from_mut(&mut value).cast(),
            &raw mut len,
        )
    })?;
    if (len as usize) < size_of::<T>() {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "the kernel's structure is older than Linux 5.9",
        ));
    }
    Ok(value)
}

/// Binds a socket to a queue of an interface.
pub(crate) fn bind(fd: BorrowedFd<'_>, address: &libc::sockaddr_xdp) -> io::Result<()> {
    let len = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
    // SAFETY: the kernel reads `len` bytes of a live address.
    check(unsafe { libc::bind(fd.as_raw_fd(), std::ptr::from_ref(address).cast(), len) })
}

/// Makes the empty send call on which the kernel reads the transmit ring.
pub(crate) fn kick_transmit(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: sends nothing, so no buffer is read; no address is given.
    let sent =
        unsafe { libc::sendto(fd.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Makes the empty receive call on which a zero-copy driver reads the fill ring.
pub(crate) fn kick_receive(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: receives nothing, so no buffer is written; no address is requested.
    let got = unsafe {
        libc::recvfrom(
            fd.as_raw_fd(),
            std::ptr::null_mut(),
            0,
            libc::MSG_DONTWAIT,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        )
    };
    if got < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
