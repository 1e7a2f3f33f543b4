//! Refusal of configurations whose packets would bypass the programs.
//!
//! A card's flow rule may send packets to another port or into a VM, and hardware may serve a
//! guest's queues. The switch does not see such packets, so no program judges them. The call fails
//! as on hardware without the feature (Open vSwitch then forwards in software), and the library
//! reports it. Rules that only distribute packets to receive queues are allowed.

use crate::dpdk::{self, Unusable};
use crate::library::library;
use crate::panics::catch_panic;
use crate::shim::Steering;
use p4shield_attach::Notice;
use std::ffi::{CStr, c_char, c_int, c_void};

/// `RTE_FLOW_ERROR_TYPE_ACTION`.
const ERROR_OF_ACTION: c_int = 16;

/// Returns whether a rule is refused. `inspect` returns where the rule's packets go, and sets the
/// action's name. A rule that cannot be inspected is refused.
pub(crate) fn refuses_rule(port: u16, inspect: impl FnOnce(*mut *const c_char) -> Steering) -> bool {
    catch_panic("inspecting a flow rule", || bypasses(port, inspect)).unwrap_or(true)
}

fn bypasses(port: u16, inspect: impl FnOnce(*mut *const c_char) -> Steering) -> bool {
    let mut which: *const c_char = std::ptr::null();
    if inspect(&raw mut which) != Steering::BYPASSES {
        return false;
    }
    let which = if which.is_null() {
        "an unknown action".into()
    } else {
        // SAFETY: the shim sets it to one of its string constants.
        unsafe { CStr::from_ptr(which) }.to_string_lossy()
    };
    report_bypass(&format!(
        "a flow rule of port {port} ({which}) would bypass the programs and was refused; turn hardware \
         offload off (other_config:hw-offload=false)"
    ));
    true
}

/// Fills an application's `struct rte_flow_error`, which may be null, and sets `rte_errno`. Returns null, the
/// result of a refused call.
pub(crate) fn refuse_flow(error: *mut c_void) -> *mut c_void {
    const WHY: &CStr = c"P4 Shield: the rule's packets would bypass the tenants' programs";
    match dpdk::dpdk() {
        // SAFETY: the caller's pointer is null or a flow error, and the text is never freed.
        Ok(dpdk) => unsafe {
            (dpdk.rte_flow_error_set)(error, libc::ENOTSUP, ERROR_OF_ACTION, std::ptr::null(), WHY.as_ptr());
        },
        Err(Unusable::Missing(_) | Unusable::Abi { .. }) => {}
    }
    std::ptr::null_mut()
}

/// Reports a refused configuration to the operator.
pub(crate) fn report_bypass(what: &str) {
    catch_panic("reporting a bypass", || {
        if let Ok(library) = library() {
            library.remark(None, Notice::Bypass(what.to_owned()));
        }
    });
}
