//! Refusal of DPDK's secondary processes.
//!
//! Receive callbacks belong to the process that added them. A secondary process polls ports that
//! the primary process started, so the library cannot add its callbacks before packets flow, and
//! the primary process's callbacks do not see those packets. A secondary process logs an error and
//! does not start.

use crate::bypass::refuse_flow;
use crate::dpdk::{self, next_symbol};
use p4shield_attach::log;
use std::ffi::{CStr, c_char, c_int};

/// `RTE_PROC_SECONDARY`.
const SECONDARY: c_int = 1;
/// End of DPDK's own arguments.
const END: &CStr = c"--";

/// Returns whether DPDK's arguments request a secondary process.
///
/// # Safety
/// `words` points to `count` C strings, as `main` gets them.
pub(crate) unsafe fn is_requested(count: c_int, words: *const *mut c_char) -> bool {
    let Ok(count) = usize::try_from(count) else { return false };
    if words.is_null() {
        return false;
    }
    // SAFETY: as the caller promises.
    let words = unsafe { std::slice::from_raw_parts(words, count) };
    let words = words.iter().map_while(|word| {
        // SAFETY: as the caller promises, unless the pointer is null.
        (!word.is_null()).then(|| unsafe { CStr::from_ptr(*word) })
    });
    request_secondary(words.take_while(|word| *word != END))
}

/// Returns whether the arguments contain `--proc-type=secondary`, in one word or two.
fn request_secondary<'a>(words: impl Iterator<Item = &'a CStr>) -> bool {
    let mut value_follows = false;
    for word in words.map(CStr::to_bytes) {
        if value_follows && word == b"secondary" || word == b"--proc-type=secondary" {
            return true;
        }
        value_follows = word == b"--proc-type";
    }
    false
}

/// Returns whether this process is a secondary one. DPDK must run.
pub(crate) fn is_secondary() -> bool {
    let Some(at) = next_symbol("rte_eal_process_type\0") else { return false };
    // SAFETY: DPDK's function of that name has no arguments and returns an enumeration.
    let process_type =
        unsafe { std::mem::transmute::<*mut std::ffi::c_void, unsafe extern "C" fn() -> c_int>(at) };
    // SAFETY: it has no requirements.
    unsafe { process_type() == SECONDARY }
}

/// Logs the refusal and returns the result of `rte_eal_init`.
pub(crate) fn refuse() -> c_int {
    crate::panics::catch_panic("refusing a secondary process", || {
        log::start();
        tracing::error!(
            event = "secondary_process_refused",
            "a secondary DPDK process (--proc-type) was refused: no program would judge the packets that it \
             receives; let the primary process receive, or take libp4shield_dpdk.so out of this one's \
             LD_PRELOAD"
        );
        // Sets `rte_errno`, if DPDK is loaded.
        if dpdk::dpdk().is_ok() {
            refuse_flow(std::ptr::null_mut());
        }
    });
    -1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_dpdks_own_arguments_count() {
        let requested = |words: &[&CStr]| {
            let mut words: Vec<_> = words.iter().map(|w| w.as_ptr().cast_mut()).collect();
            let count = words.len() as c_int;
            words.push(std::ptr::null_mut());
            // SAFETY: `words` holds `count` C strings.
            unsafe { is_requested(count, words.as_ptr()) }
        };
        assert!(requested(&[c"x", c"--proc-type=secondary"]));
        assert!(requested(&[c"x", c"-n", c"--proc-type", c"secondary", c"--", c"-i"]));
        assert!(!requested(&[c"x", c"--proc-type=primary"]));
        assert!(!requested(&[c"x", c"--", c"--proc-type=secondary"]));
        assert!(!requested(&[c"secondary"]) && !requested(&[]));
        // SAFETY: nothing is read.
        assert!(unsafe { !is_requested(3, std::ptr::null()) && !is_requested(-1, std::ptr::null()) });
    }
}
