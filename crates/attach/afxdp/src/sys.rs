//! The socket option of AF_XDP that rustix does not have.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `XDP_MAX_TX_SKB_BUDGET` (Linux 6.17), which libc does not define yet.
const MAX_TX_BUDGET: libc::c_int = 9;

/// Sets the number of packets that one call sends in copy mode.
pub(crate) fn set_transmit_budget(fd: BorrowedFd<'_>, packets: u32) -> io::Result<()> {
    let (value, len) = (std::ptr::from_ref(&packets).cast(), size_of::<u32>() as libc::socklen_t);
    // SAFETY: the kernel reads the bytes of a live integer.
    let result = unsafe { libc::setsockopt(fd.as_raw_fd(), libc::SOL_XDP, MAX_TX_BUDGET, value, len) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
