//! The C part: see `shim.c`.

use std::ffi::{c_char, c_int, c_void};

/// What a flow rule does with the packets that it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Steering(c_int);

impl Steering {
    /// They may reach another port or a VM without us.
    pub(crate) const GOES_ROUND: Self = Self(1);
}

/// The part of `struct rte_eth_dev_info` that we need.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct PortShape {
    /// Receive queues, as configured.
    pub(crate) rx_queues: u16,
    /// Not 0 if the port belongs to a bonding device, by which its packets come as well.
    pub(crate) bonded: u16,
    /// The kernel's number of the interface behind it, or 0.
    pub(crate) interface: u32,
}

/// `rte_eth_dev_info_get`.
pub(crate) type DevInfoGet = unsafe extern "C" fn(u16, *mut c_void) -> c_int;

unsafe extern "C" {
    /// The time stamp counter. Always safe.
    pub(crate) safe fn p4s_cycles() -> u64;
    /// Year * 100 + month of the DPDK whose headers we were built with. Always safe.
    pub(crate) safe fn p4s_built_for() -> u32;
    /// Bytes of a fresh buffer of a packet pool, head room included.
    pub(crate) fn p4s_pool_data_room(pool: *mut c_void) -> u16;
    /// Buffers of a packet pool, free or not.
    pub(crate) fn p4s_pool_size(pool: *const c_void) -> u32;
    /// Asks `get` about a port; what it returns if not 0.
    pub(crate) fn p4s_port(get: DevInfoGet, port: u16, out: *mut PortShape) -> c_int;
    /// Of one action; `which` is set to its name if packets go round us.
    pub(crate) fn p4s_action(action: *const c_void, which: *mut *const c_char) -> Steering;
    /// Of a rule.
    pub(crate) fn p4s_rule(
        attr: *const c_void,
        actions: *const c_void,
        which: *mut *const c_char,
    ) -> Steering;
    /// Of a template of rules' actions.
    pub(crate) fn p4s_template(
        attr: *const c_void,
        actions: *const c_void,
        which: *mut *const c_char,
    ) -> Steering;
}
