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

/// Priority of the filters.
const PRIORITY: u32 = 1;
/// Handle of the filters by which a later process finds them again: "P4".
const HANDLE: u32 = 0x5034;

/// The filters that close an interface.
#[derive(Clone, Copy, Debug)]
pub struct Guard<'a> {
    programs: [(TcAttachPoint, BorrowedFd<'a>); 2],
    handle: u32,
}

impl<'a> Guard<'a> {
    /// A guard that drops everything by `program`, in both directions.
    #[must_use]
    pub const fn dropping(program: BorrowedFd<'a>) -> Self {
        Self { programs: [(TC_INGRESS, program), (TC_EGRESS, program)], handle: HANDLE }
    }

    /// A guard that drops everything by `dropping`, except for what `outward` sends. An interface may have it
    /// beside the other one.
    #[must_use]
    pub const fn passing(dropping: BorrowedFd<'a>, outward: BorrowedFd<'a>) -> Self {
        Self { programs: [(TC_INGRESS, dropping), (TC_EGRESS, outward)], handle: HANDLE + 1 }
    }

    fn hooks(&self, interface: u32) -> impl Iterator<Item = TcHook> {
        let handle = self.handle;
        self.programs.into_iter().map(move |(point, program)| {
            TcHookBuilder::new(program)
                .ifindex(interface.cast_signed())
                .replace(true)
                .handle(handle)
                .priority(PRIORITY)
                .hook(point)
        })
    }

    /// Closes the interface.
    ///
    /// # Errors
    /// The kernel's error; `clsact` and the BPF classifier are needed.
    pub fn close(&self, interface: u32) -> libbpf_rs::Result<()> {
        self.hooks(interface).try_for_each(|mut hook| hook.create()?.attach().map(drop))
    }

    /// Returns whether the interface is closed in both directions. The kernel finds the filters by their
    /// place, so another process may have loaded and attached them.
    #[must_use]
    pub fn is_closed(&self, interface: u32) -> bool {
        self.hooks(interface).all(|mut hook| hook.query().is_ok())
    }

    /// Opens the interface again, only on the operator's request, as when a wire is removed.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn open(&self, interface: u32) -> libbpf_rs::Result<()> {
        self.hooks(interface).try_for_each(|mut hook| hook.detach())
    }
}
