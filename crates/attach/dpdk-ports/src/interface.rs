//! The C interface of `libp4shield_ethdev.so`: see `crates/attach/ethdev/src/shim/shim.h`.

use std::ffi::{CStr, c_char, c_int, c_void};

/// Version of the interface.
pub(crate) const VERSION: u32 = 2;
/// Name of the function that returns the table.
pub(crate) const ENTRY: &CStr = c"p4shield_ethdev_table";
/// Most packets that are received or sent at once.
pub(crate) const BURST: usize = 32;

/// `struct rte_mbuf`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Mbuf {
    opaque: [u8; 0],
}

/// `struct rte_mempool`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Pool {
    opaque: [u8; 0],
}

/// `struct p4s_packet`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct RawPacket {
    pub(crate) bytes: *const u8,
    pub(crate) len: u32,
    pub(crate) is_reusable: u32,
}

/// `struct p4s_device`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Device {
    pub(crate) rx_queues: u16,
    pub(crate) tx_queues: u16,
    pub(crate) rx_ring: u16,
    pub(crate) tx_ring: u16,
    pub(crate) mtu: u16,
}

/// `struct p4s_table`, which documents the functions. None of them is null, and none unwinds.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Table {
    pub(crate) version: u32,
    pub(crate) size: u32,
    pub(crate) start: u64,
    pub(crate) init: unsafe extern "C" fn(c_int, *mut *mut c_char) -> c_int,
    pub(crate) log: unsafe extern "C" fn() -> *const c_char,
    pub(crate) find: unsafe extern "C" fn(*const c_char, *mut u16) -> c_int,
    pub(crate) describe: unsafe extern "C" fn(u16, *mut Device) -> c_int,
    pub(crate) pool: unsafe extern "C" fn(*const c_char, u32, u16) -> *mut Pool,
    pub(crate) free_pool: unsafe extern "C" fn(*mut Pool),
    pub(crate) open: unsafe extern "C" fn(u16, *const Device, *const *mut Pool, *mut *const c_char) -> c_int,
    pub(crate) close: unsafe extern "C" fn(u16),
    pub(crate) is_removed: unsafe extern "C" fn(u16) -> c_int,
    pub(crate) enter: unsafe extern "C" fn() -> c_int,
    pub(crate) leave: unsafe extern "C" fn(),
    pub(crate) receive: unsafe extern "C" fn(u16, u16, *mut Pool, *mut *mut Mbuf, *mut RawPacket, u16) -> u16,
    pub(crate) send: unsafe extern "C" fn(u16, u16, *mut *mut Mbuf, *const u16, u16) -> u16,
    pub(crate) allocate: unsafe extern "C" fn(*mut Pool, *mut *mut Mbuf, u16) -> u16,
    pub(crate) copy: unsafe extern "C" fn(*const Mbuf, *mut u8, u32) -> u32,
    pub(crate) release: unsafe extern "C" fn(*mut *mut Mbuf, u16),
}

/// The exported function.
pub(crate) type Entry = unsafe extern "C" fn() -> *const c_void;
