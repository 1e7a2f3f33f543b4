//! Check that a switch's packet pools are large enough for held packets.
//!
//! The tenants' `max_held` bounds the packets that a lane holds. They occupy buffers of the pool
//! that the switch receives into. If one tenant's P4 VM stopped answering, held packets could use
//! up the pool, and its neighbours would lose packets. The library warns the operator of such a
//! configuration.

use crate::library::Library;
use crate::shim;
use p4shield_attach::Notice;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

/// Buffers of the pool that a port receives into.
static SIZES: Mutex<BTreeMap<u16, u32>> = Mutex::new(BTreeMap::new());

/// Records the size of the pool that a port's queue uses.
///
/// # Safety
/// `pool` is null or a packet pool.
pub(crate) unsafe fn record(port: u16, pool: *const c_void) {
    if !pool.is_null() {
        // SAFETY: as the caller promises.
        let size = unsafe { shim::p4s_pool_size(pool) };
        SIZES.lock().unwrap_or_else(PoisonError::into_inner).insert(port, size);
    }
}

/// Warns if one tenant may hold more than half of a port's pool, given the number of lanes in the process.
pub(crate) fn check(library: &Library, port: u16, lanes: usize) {
    let size = SIZES.lock().unwrap_or_else(PoisonError::into_inner).get(&port).copied();
    let tenants = library.session.tenants();
    let largest = tenants.tenants.iter().max_by_key(|t| t.max_held);
    let (Some(size), Some(tenant)) = (size, largest) else { return };
    let most = max_held_packets(tenant.max_held, lanes);
    if most > u64::from(size) / 2 {
        library.remark(
            None,
            Notice::Note(format!(
                "tenant {} may hold {most} packets ({} a direction in each of {lanes} queues), and port \
                 {port}'s pool has {size} buffers; lower its max_held, or give the switch more memory",
                tenant.name, tenant.max_held
            )),
        );
    }
}

/// Returns the most packets that a tenant may hold in a number of lanes, both directions together.
const fn max_held_packets(max_held: usize, lanes: usize) -> u64 {
    (max_held as u64).saturating_mul(2).saturating_mul(lanes as u64)
}
