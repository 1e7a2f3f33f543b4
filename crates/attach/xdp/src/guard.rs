//! Keeps the host's own network stack off a wire, also after the end of this process.
//!
//! This process holds the XDP program: when it ends, in whatever way, the program goes, and frames from
//! a VM would reach the host's stack. While it runs, the stack itself may send into the wire (router
//! solicitations, multicast reports) and bypass every program. A traffic-control filter that drops
//! everything closes both ways. AF_XDP frames never pass it: on receive, XDP comes first; on transmit,
//! the kernel's direct transmit skips traffic control. The filter belongs to the interface and not to a
//! process.

use std::os::fd::BorrowedFd;

use libbpf_rs::{TC_EGRESS, TC_INGRESS, TcAttachPoint, TcHook, TcHookBuilder};

/// Priority and handle of the filter, by which a later process finds it again.
const PRIORITY: u32 = 1;
const HANDLE: u32 = 0x5034; // "P4"

fn hook(program: BorrowedFd<'_>, interface: u32, point: TcAttachPoint) -> TcHook {
    TcHookBuilder::new(program)
        .ifindex(interface.cast_signed())
        .replace(true)
        .handle(HANDLE)
        .priority(PRIORITY)
        .hook(point)
}

/// Closes the interface to everything but AF_XDP.
///
/// # Errors
/// The kernel's error; `clsact` and the BPF classifier are needed.
pub fn close(program: BorrowedFd<'_>, interface: u32) -> libbpf_rs::Result<()> {
    for point in [TC_INGRESS, TC_EGRESS] {
        hook(program, interface, point).create()?.attach()?;
    }
    Ok(())
}

/// Returns whether the interface is closed in both directions. `program` is the one that closes: the kernel
/// finds its filter by the place, so another process may have loaded and attached it.
#[must_use]
pub fn is_closed(program: BorrowedFd<'_>, interface: u32) -> bool {
    [TC_INGRESS, TC_EGRESS].into_iter().all(|point| hook(program, interface, point).query().is_ok())
}

/// Opens the interface again, only on the operator's request, when a wire is removed.
///
/// # Errors
/// The kernel's error.
pub fn open(program: BorrowedFd<'_>, interface: u32) -> libbpf_rs::Result<()> {
    for point in [TC_INGRESS, TC_EGRESS] {
        hook(program, interface, point).detach()?;
    }
    Ok(())
}
