//! What would lead packets round us, and that it is refused.
//!
//! A rule in a card that sends packets to another port or into a VM, a guest's queues in the hands of hardware: no
//! software sees those packets, so no program does. Such a call fails for the application as it would on hardware that
//! cannot do it (Open vSwitch then forwards in software), and the operator is told. What only spreads packets over
//! receive queues is let through.

use crate::contain::contained;
use crate::dpdk::{self, Unusable};
use crate::library::library;
use crate::shim::Steering;
use p4shield_attach::Remark;
use std::ffi::{CStr, c_char, c_int, c_void};

/// `RTE_FLOW_ERROR_TYPE_ACTION`.
const ERROR_OF_ACTION: c_int = 16;

/// Whether a rule is refused. `look` is asked where the rule's packets go, and for the action that leads there. One that
/// could not be looked at is.
pub(crate) fn refuses_rule(port: u16, look: impl FnOnce(*mut *const c_char) -> Steering) -> bool {
    contained("looking at a flow rule", || goes_round(port, look)).unwrap_or(true)
}

fn goes_round(port: u16, look: impl FnOnce(*mut *const c_char) -> Steering) -> bool {
    let mut which: *const c_char = std::ptr::null();
    if look(&raw mut which) != Steering::GOES_ROUND {
        return false;
    }
    let which = if which.is_null() {
        "an unknown action".into()
    } else {
        // SAFETY: the shim sets it to one of its string constants.
        unsafe { CStr::from_ptr(which) }.to_string_lossy()
    };
    refuse(&format!(
        "a flow rule of port {port} ({which}) would lead packets past the programs and was refused; turn hardware \
         offload off (other_config:hw-offload=false)"
    ));
    true
}

/// Fills an application's `struct rte_flow_error`, which may be null, and sets `rte_errno`.
pub(crate) fn explain(error: *mut c_void) {
    const WHY: &CStr = c"P4 Shield: the rule would lead packets past the tenants' programs";
    match dpdk::dpdk() {
        // SAFETY: the caller's pointer is null or a flow error, and the text is never freed.
        Ok(dpdk) => unsafe {
            (dpdk.rte_flow_error_set)(error, libc::ENOTSUP, ERROR_OF_ACTION, std::ptr::null(), WHY.as_ptr());
        },
        Err(Unusable::Missing(_) | Unusable::Abi { .. }) => {}
    }
}

/// Tells the operator about something that was refused.
pub(crate) fn refuse(what: &str) {
    contained("telling of what was refused", || {
        if let Ok(library) = library() {
            library.remark(None, Remark::Bypass(what.to_owned()));
        }
    });
}
