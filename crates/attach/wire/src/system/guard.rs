//! Keeps the host's own network stack off a wire, also when we are dead.
//!
//! The XDP program is held by our process: when that dies, however it dies, the program goes, and frames that a VM
//! sends would reach the host's stack instead. And while we live the stack itself may talk into the wire (router
//! solicitations, multicast reports), past every program. A traffic-control filter that drops everything closes
//! both ways: frames by AF_XDP never pass it (receiving, XDP comes first; sending, the kernel's direct transmit has
//! no traffic control), and it belongs to the interface and not to a process.

use std::os::fd::BorrowedFd;

use libbpf_rs::{TC_EGRESS, TC_INGRESS, TcAttachPoint, TcHook, TcHookBuilder};

/// Priority and handle of our filter, by which it is found again by whoever comes after us.
const PRIORITY: u32 = 1;
const HANDLE: u32 = 0x5034; // "P4"

fn hook(program: BorrowedFd<'_>, interface: u32, way: TcAttachPoint) -> TcHook {
    TcHookBuilder::new(program)
        .ifindex(interface.cast_signed())
        .replace(true)
        .handle(HANDLE)
        .priority(PRIORITY)
        .hook(way)
}

/// Closes the interface to everything but AF_XDP.
///
/// # Errors
/// What the kernel says; its `clsact` and BPF classifier are needed.
pub fn close(program: BorrowedFd<'_>, interface: u32) -> libbpf_rs::Result<()> {
    for way in [TC_INGRESS, TC_EGRESS] {
        hook(program, interface, way).create()?.attach()?;
    }
    Ok(())
}

/// Opens it again: on the operator's word only, when a wire is removed.
///
/// # Errors
/// What the kernel says.
pub fn open(program: BorrowedFd<'_>, interface: u32) -> libbpf_rs::Result<()> {
    for way in [TC_INGRESS, TC_EGRESS] {
        hook(program, interface, way).detach()?;
    }
    Ok(())
}
