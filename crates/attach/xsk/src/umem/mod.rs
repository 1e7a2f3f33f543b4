//! The application's UMEM: which tenant's P4 VM may read it, and until when.
//!
//! When the application registers a UMEM, the interfaces of its sockets are not known yet. So the buffer
//! becomes shared memory at that time, since the kernel pins its pages at once, and no other process
//! gets its descriptor yet. The first `bind` decides: if the interface is a port of one tenant and the
//! configuration allows it, that tenant's P4 VM may map the memory from then on; otherwise no P4 VM ever
//! gets it.
//!
//! ```text
//!  registered ──► bound to a port of tenant a ──► readable by a ──► binds to other ports are refused
//!       └───────► bound to any other port ──────► private for good: header copies
//! ```
//!
//! In doubt P4 VMs get header copies. A buffer that was written to before its registration stays as it
//! is: an allocator may have used it for other data, which no P4 VM may read.

mod access;
mod shared;
mod smaps;

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use p4shield_attach::Packets;

pub(crate) use access::AccessConflict;
use access::NotShareable;
use shared::SharedBuffer;
pub(crate) use shared::make_all_private;

/// Which P4 VM may read a UMEM.
#[derive(Clone, Debug, PartialEq, Eq)]
enum UmemAccess {
    /// No socket is bound yet.
    Undecided,
    /// The P4 VM of this tenant.
    Tenant(String),
    /// No P4 VM, for this reason.
    Denied(String),
}

/// A buffer that the application has registered as UMEM, or is about to register.
#[derive(Debug)]
pub(crate) struct RegisteredUmem {
    addresses: Range<usize>,
    access: Mutex<UmemAccess>,
    /// `None` if the buffer is still the application's own memory.
    shared: Option<SharedBuffer>,
    /// Other UMEMs of the same bytes, whose memory must not change while this one is registered.
    _others: Vec<Arc<Self>>,
}

/// All registered UMEMs.
static ALL: Mutex<Vec<Weak<RegisteredUmem>>> = Mutex::new(Vec::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RegisteredUmem {
    /// Prepares a buffer for its registration with the kernel. Dropping the result makes it private
    /// memory again.
    ///
    /// # Safety
    /// As for [`SharedBuffer::take`].
    ///
    /// # Errors
    /// A P4 VM already reads the buffer, which the application registers once more.
    pub(crate) unsafe fn registering(
        addresses: Range<usize>,
        unaligned: bool,
        wanted: bool,
    ) -> Result<Arc<Self>, AccessConflict> {
        let mut all = lock(&ALL);
        all.retain(|u| u.strong_count() > 0);
        let overlaps = |u: &Arc<Self>| u.addresses.start < addresses.end && addresses.start < u.addresses.end;
        let others: Vec<_> = all.iter().filter_map(Weak::upgrade).filter(overlaps).collect();
        for other in &others {
            other.decide_access(Err(NotShareable::RegisteredTwice.to_string()))?;
        }
        let shared = match () {
            () if !others.is_empty() => Err(NotShareable::RegisteredTwice),
            () if !wanted => Err(NotShareable::Unwanted),
            () if unaligned => Err(NotShareable::Unaligned),
            // SAFETY: the caller's promise; and no other registered UMEM has these bytes.
            () => unsafe { SharedBuffer::take(addresses.clone()) },
        };
        let umem = Arc::new(Self::of(addresses, shared, others));
        all.push(Arc::downgrade(&umem));
        Ok(umem)
    }

    /// Describes a buffer that is shared memory, or one that stays private for a reason.
    fn of(
        addresses: Range<usize>,
        shared: Result<SharedBuffer, NotShareable>,
        others: Vec<Arc<Self>>,
    ) -> Self {
        let access = match &shared {
            Ok(_) => UmemAccess::Undecided,
            Err(why) => UmemAccess::Denied(why.to_string()),
        };
        Self { addresses, access: Mutex::new(access), shared: shared.ok(), _others: others }
    }

    /// Decides on the bind of a socket: `reader` is the tenant that owns all packets of the port, or the
    /// reason that there is none.
    ///
    /// # Errors
    /// Another tenant's P4 VM reads the UMEM.
    pub(crate) fn decide_access(&self, reader: Result<String, String>) -> Result<(), AccessConflict> {
        let mut access = lock(&self.access);
        let next = match (&*access, reader) {
            (UmemAccess::Undecided, Ok(tenant)) => UmemAccess::Tenant(tenant),
            (UmemAccess::Undecided, Err(why)) => UmemAccess::Denied(why),
            (UmemAccess::Tenant(has), Ok(tenant)) if *has == tenant => return Ok(()),
            (UmemAccess::Tenant(_), _) => return Err(AccessConflict),
            (UmemAccess::Denied(_), _) => return Ok(()),
        };
        *access = next;
        Ok(())
    }

    /// Returns the memory that the tenant's P4 VM may map.
    ///
    /// # Errors
    /// Reason why P4 VMs get header copies.
    pub(crate) fn packets(&self) -> Result<Packets, String> {
        let tenant = match &*lock(&self.access) {
            UmemAccess::Tenant(tenant) => tenant.clone(),
            UmemAccess::Denied(why) => return Err(why.clone()),
            UmemAccess::Undecided => return Err("no socket is bound yet".to_owned()),
        };
        let memory = self.shared.as_ref().ok_or("its buffer is the application's own")?.memory();
        Ok(Packets { tenant, memory: Arc::clone(memory), addresses: self.addresses.clone() })
    }
}

#[cfg(test)]
pub(crate) mod tests;
