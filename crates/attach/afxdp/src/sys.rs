//! The socket options that rustix does not have.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `XDP_MAX_TX_SKB_BUDGET` (Linux 6.17), which libc does not define yet.
const MAX_TX_BUDGET: libc::c_int = 9;

/// Sets the number of packets that one call sends in copy mode.
pub(crate) fn set_transmit_budget(fd: BorrowedFd<'_>, packets: u32) -> io::Result<()> {
    set(fd, libc::SOL_XDP, MAX_TX_BUDGET, &packets)
}

/// Makes an interface promiscuous for a packet socket, or no longer.
pub(crate) fn set_promiscuous(fd: BorrowedFd<'_>, interface: u32, is_on: bool) -> io::Result<()> {
    let membership = libc::packet_mreq {
        mr_ifindex: interface.cast_signed(),
        mr_type: libc::PACKET_MR_PROMISC as libc::c_ushort,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    let option = if is_on { libc::PACKET_ADD_MEMBERSHIP } else { libc::PACKET_DROP_MEMBERSHIP };
    set(fd, libc::SOL_PACKET, option, &membership)
}

/// Sets an option whose value is a plain structure of the kernel's interface.
fn set<T: Copy>(fd: BorrowedFd<'_>, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
    let (value, len) = (std::ptr::from_ref(value).cast(), size_of::<T>() as libc::socklen_t);
    // SAFETY: the kernel reads the bytes of a live value of this length.
    let result = unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, value, len) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
