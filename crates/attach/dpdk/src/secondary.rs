//! Secondary processes of DPDK: refused.
//!
//! Receive callbacks belong to the process that added them. A secondary process polls the ports that the primary one has
//! started and configured, so there is no moment at which we could add ours before packets flow, and the queues that it
//! polls are, to the primary's callbacks, not polled at all. Such a process is told so and does not start.

use crate::bypass::explain;
use crate::dpdk::{self, next};
use p4shield_attach::log;
use std::ffi::{CStr, c_char, c_int};

/// `RTE_PROC_SECONDARY`.
const SECONDARY: c_int = 1;
/// Where DPDK's own arguments end.
const END: &CStr = c"--";

/// Whether DPDK's arguments ask for a secondary process by name.
///
/// # Safety
/// `words` points to `count` C strings, as `main` gets them.
pub(crate) unsafe fn is_asked_for(count: c_int, words: *const *mut c_char) -> bool {
    let Ok(count) = usize::try_from(count) else { return false };
    if words.is_null() {
        return false;
    }
    // SAFETY: as the caller promises.
    let words = unsafe { std::slice::from_raw_parts(words, count) };
    let words = words.iter().map_while(|word| {
        // SAFETY: as the caller promises, unless a word is missing.
        (!word.is_null()).then(|| unsafe { CStr::from_ptr(*word) })
    });
    asks(words.take_while(|word| *word != END))
}

/// `--proc-type=secondary`, in one word or two.
fn asks<'a>(words: impl Iterator<Item = &'a CStr>) -> bool {
    let mut value_follows = false;
    for word in words.map(CStr::to_bytes) {
        if value_follows && word == b"secondary" || word == b"--proc-type=secondary" {
            return true;
        }
        value_follows = word == b"--proc-type";
    }
    false
}

/// Whether this process is a secondary one, once DPDK runs.
pub(crate) fn is_one() -> bool {
    let Some(at) = next("rte_eal_process_type\0") else { return false };
    // SAFETY: DPDK's function of that name takes nothing and returns an enumeration.
    let process_type =
        unsafe { std::mem::transmute::<*mut std::ffi::c_void, unsafe extern "C" fn() -> c_int>(at) };
    // SAFETY: it has no requirements.
    unsafe { process_type() == SECONDARY }
}

/// Says why, and what `rte_eal_init` is to return.
pub(crate) fn refuse() -> c_int {
    crate::contain::contained("refusing a secondary process", || {
        log::start();
        tracing::error!(
            "a secondary DPDK process (--proc-type) was refused: the packets that it receives would pass unjudged; let the \
             primary process receive, or take libp4shield_dpdk.so out of this one's LD_PRELOAD"
        );
        // What DPDK leaves in `rte_errno`, if it has got that far.
        if dpdk::dpdk().is_ok() {
            explain(std::ptr::null_mut());
        }
    });
    -1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_dpdks_own_arguments_count() {
        let asked = |words: &[&CStr]| {
            let mut words: Vec<_> = words.iter().map(|w| w.as_ptr().cast_mut()).collect();
            let count = words.len() as c_int;
            words.push(std::ptr::null_mut());
            // SAFETY: as many C strings as told.
            unsafe { is_asked_for(count, words.as_ptr()) }
        };
        assert!(asked(&[c"x", c"--proc-type=secondary"]));
        assert!(asked(&[c"x", c"-n", c"--proc-type", c"secondary", c"--", c"-i"]));
        assert!(!asked(&[c"x", c"--proc-type=primary"]));
        assert!(!asked(&[c"x", c"--", c"--proc-type=secondary"]));
        assert!(!asked(&[c"secondary"]) && !asked(&[]));
        // SAFETY: nothing is read.
        assert!(unsafe { !is_asked_for(3, std::ptr::null()) && !is_asked_for(-1, std::ptr::null()) });
    }
}
