//! The C part: see `shim.c`.

use std::ffi::{c_char, c_int, c_void};

/// Destination of the packets that a flow rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Steering(c_int);

impl Steering {
    /// They may reach another port or a VM without the switch.
    pub(crate) const BYPASSES: Self = Self(1);
}

/// The used part of `struct rte_eth_dev_info`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct DeviceInfo {
    /// Receive queues, as configured.
    pub(crate) rx_queues: u16,
    /// Not 0 if the port belongs to a bonding device, which delivers the same packets.
    pub(crate) bonded: u16,
    /// The kernel's number of the port's interface, or 0.
    pub(crate) interface: u32,
}

/// `rte_eth_dev_info_get`.
pub(crate) type DevInfoGet = unsafe extern "C" fn(u16, *mut c_void) -> c_int;

unsafe extern "C" {
    /// Returns the time stamp counter. Always safe.
    pub(crate) safe fn p4s_cycles() -> u64;
    /// Returns year * 100 + month of the DPDK whose headers the library was built with. Always safe.
    pub(crate) safe fn p4s_built_for() -> u32;
    /// Returns the bytes of a buffer of a packet pool, headroom included.
    pub(crate) fn p4s_pool_data_room(pool: *mut c_void) -> u16;
    /// Returns the number of buffers of a packet pool, free or not.
    pub(crate) fn p4s_pool_size(pool: *const c_void) -> u32;
    /// Calls `get` for a port and fills `out`; returns the result of `get`.
    pub(crate) fn p4s_port(get: DevInfoGet, port: u16, out: *mut DeviceInfo) -> c_int;
    /// Inspects one action; sets `which` to its name if packets bypass the switch.
    pub(crate) fn p4s_action(action: *const c_void, which: *mut *const c_char) -> Steering;
    /// Inspects a rule.
    pub(crate) fn p4s_rule(
        attr: *const c_void,
        actions: *const c_void,
        which: *mut *const c_char,
    ) -> Steering;
    /// Inspects a template of rules' actions.
    pub(crate) fn p4s_template(
        attr: *const c_void,
        actions: *const c_void,
        which: *mut *const c_char,
    ) -> Steering;
}
