//! `libp4shield_ethdev.so`: DPDK devices for a P4 switch.
//!
//! The binary does not link DPDK: crate `p4shield-dpdk-ports` loads this library if a port is a DPDK device,
//! and calls it through the table of functions that `shim/shim.h` describes. The library links the
//! distribution's DPDK dynamically; it is written in C, because DPDK's fast functions are inline functions of
//! its headers.
#![deny(unsafe_code)]

use std::ffi::c_void;

#[allow(unsafe_code)]
mod shim {
    use super::c_void;

    unsafe extern "C" {
        /// Returns the table, which is constant. Always safe.
        pub(crate) safe fn p4s_ethdev_table() -> *const c_void;
    }
}

/// Returns the table of functions, which lives as long as the library is loaded.
// SAFETY: no other library has a symbol of this name.
#[allow(unsafe_code)]
#[unsafe(no_mangle)]
pub extern "C" fn p4shield_ethdev_table() -> *const c_void {
    shim::p4s_ethdev_table()
}
