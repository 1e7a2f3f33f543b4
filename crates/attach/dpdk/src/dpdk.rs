//! DPDK's functions, looked up in the process.
//!
//! The first use looks up all functions by name, so the library links no `librte_*` and loads into
//! any process.

use crate::mbuf::layout::{DynField, DynFlag, RawMbuf};
use crate::shim;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

/// Reason why this process's DPDK cannot be mediated.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unusable {
    /// A function that every shared DPDK has is missing.
    #[error(
        "this process has no {0}; is DPDK linked statically into it? Only a dynamically linked DPDK can be \
         mediated"
    )]
    Missing(&'static str),
    /// DPDK has another ABI: its structures may differ.
    #[error(
        "libp4shield_dpdk.so was built for DPDK {built} and this process has {running:?}, which has another \
         ABI; build it against the headers of that version"
    )]
    Abi {
        /// Year and month of the headers' release.
        built: String,
        /// Result of `rte_version()`.
        running: String,
    },
}

/// A receive callback (`rte_rx_callback_fn`): port, queue, packets, their number, room in the
/// array, user data.
pub(crate) type RxCallback = unsafe extern "C" fn(u16, u16, *mut *mut RawMbuf, u16, u16, *mut c_void) -> u16;
/// `rte_eth_dev_cb_fn`: port, event, user data, the event's data.
pub(crate) type EventCallback = unsafe extern "C" fn(u16, c_int, *mut c_void, *mut c_void) -> c_int;

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident: fn($($arg:ty),* $(,)?) $(-> $ret:ty)?;)*) => {
        /// DPDK's functions under their own names; DPDK documents them.
        #[derive(Debug)]
        pub(crate) struct Dpdk {
            $($(#[$doc])* pub(crate) $name: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)*
        }

        impl Dpdk {
            fn find() -> Result<Self, Unusable> {
                Ok(Self { $($name: {
                    let name = stringify!($name);
                    let at = next_symbol(concat!(stringify!($name), "\0")).ok_or(Unusable::Missing(name))?;
                    // SAFETY: the function has this signature in every DPDK since 20.11, and
                    // `check_abi` checks the ABI before the first call that takes a structure.
                    unsafe {
                        std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($arg),*) $(-> $ret)?>(at)
                    }
                },)* })
            }
        }
    };
}

functions! {
    rte_version: fn() -> *const c_char;
    rte_get_tsc_hz: fn() -> u64;
    rte_free: fn(*mut c_void);
    rte_pktmbuf_free_bulk: fn(*mut *mut RawMbuf, c_uint);
    rte_mbuf_dynfield_register: fn(*const DynField) -> c_int;
    rte_mbuf_dynflag_register: fn(*const DynFlag) -> c_int;
    rte_pktmbuf_copy: fn(*const RawMbuf, *mut c_void, u32, u32) -> *mut RawMbuf;
    rte_eth_dev_info_get: fn(u16, *mut c_void) -> c_int;
    rte_eth_dev_get_name_by_port: fn(u16, *mut c_char) -> c_int;
    rte_eth_dev_callback_register: fn(u16, c_int, EventCallback, *mut c_void) -> c_int;
    rte_eth_add_first_rx_callback: fn(u16, u16, RxCallback, *mut c_void) -> *mut c_void;
    rte_eth_remove_rx_callback: fn(u16, u16, *const c_void) -> c_int;
    rte_flow_error_set: fn(*mut c_void, c_int, c_int, *const c_void, *const c_char) -> c_int;
}

/// Returns the process's DPDK.
///
/// # Errors
/// The reason why it is unusable; the first call determines it.
pub(crate) fn dpdk() -> Result<&'static Dpdk, &'static Unusable> {
    static DPDK: OnceLock<Result<Dpdk, Unusable>> = OnceLock::new();
    DPDK.get_or_init(|| {
        let dpdk = Dpdk::find()?;
        check_abi(&dpdk)?;
        Ok(dpdk)
    })
    .as_ref()
}

/// DPDK's libraries whose functions we call.
const LIBRARIES: [&str; 4] = ["ethdev", "vhost", "eal", "mbuf"];

/// Returns the next definition of a function in the dynamic linker's search order. If that order
/// has none, because a driver or plugin loaded DPDK's library, returns that library's function. The
/// name ends in NUL.
pub(crate) fn next_symbol(name: &'static str) -> Option<*mut c_void> {
    let name = CStr::from_bytes_with_nul(name.as_bytes()).ok()?;
    // SAFETY: the name is a C string; dlsym has no other requirement.
    let at = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if at.is_null() { LIBRARIES.iter().find_map(|library| within(library, name)) } else { Some(at) }
}

/// Returns a function of one of DPDK's libraries, if the process has loaded that library.
fn within(library: &str, name: &CStr) -> Option<*mut c_void> {
    let file = CString::new(format!("librte_{library}.so.{}", abi(shim::p4s_built_for()))).ok()?;
    // SAFETY: both are C strings. `RTLD_NOLOAD` loads nothing, and keeping the handle
    // prevents unloading.
    unsafe {
        let library = libc::dlopen(file.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY);
        let at = if library.is_null() { library } else { libc::dlsym(library, name.as_ptr()) };
        (!at.is_null()).then_some(at)
    }
}

fn check_abi(dpdk: &Dpdk) -> Result<(), Unusable> {
    // SAFETY: rte_version returns a C string that is never freed, in every version.
    let running = unsafe { CStr::from_ptr((dpdk.rte_version)()) }.to_string_lossy().into_owned();
    let built = shim::p4s_built_for();
    if parse_version(&running).map(abi) == Some(abi(built)) {
        return Ok(());
    }
    Err(Unusable::Abi { built: format!("{}.{:02}", built / 100, built % 100), running })
}

/// Parses `DPDK 22.11.11` into year * 100 + month.
fn parse_version(text: &str) -> Option<u32> {
    let mut numbers = text.trim_start_matches("DPDK ").split(['.', '-']);
    let (year, month) = (numbers.next()?.parse::<u32>().ok()?, numbers.next()?.parse::<u32>().ok()?);
    (year < 100 && (1..=12).contains(&month)).then_some(year * 100 + month)
}

/// Returns the ABI version of a release: each November release starts one, named after the following year.
const fn abi(version: u32) -> u32 {
    version / 100 + (version % 100 >= 11) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_map_to_their_abi() {
        let of = |text| parse_version(text).map(abi);
        assert_eq!(of("DPDK 22.11.11"), Some(23));
        assert_eq!(of("DPDK 23.07.0"), Some(23));
        assert_eq!(of("DPDK 23.11.2-rc1"), Some(24));
        assert_eq!(of("DPDK 24.11"), Some(25));
        for wrong in ["", "DPDK", "DPDK x.y", "DPDK 22.13", "DPDK 22.0"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }
}
