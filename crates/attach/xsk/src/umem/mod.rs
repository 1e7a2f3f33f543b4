//! Packet memory that a P4 VM may read: whose it is, and until when.
//!
//! When the application registers packet memory it is not known yet which interfaces its sockets will be bound to. So the
//! buffer becomes shared memory then (the kernel takes hold of its pages at once, later is too late), and stays this
//! process's own secret. Only the first `bind` decides: if the interface is a port of one tenant alone, whose
//! configuration says so, that tenant's P4 VM may have the memory from then on; if not, nobody ever gets it.
//!
//! ```text
//!  registered ──► bound to a port of alice's alone ──► alice's ──► bound to another's port: that bind is refused
//!       └───────► bound to any other port ───────────► nobody's, for good: header copies
//! ```
//!
//! In doubt there are copies. A buffer that was written to before it was registered is left as it is: an allocator may have
//! used it for anything, and nobody is to read what.

mod maps;
mod shared;

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use p4shield_attach::Packets;

use shared::Shared;
pub(crate) use shared::separate;

/// Why a buffer is left as it is.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unfit {
    /// No port wants it.
    #[error("no port of the configuration has zero_copy = \"auto\"")]
    Unwanted,
    /// Something of the application's own may be in it.
    #[error(
        "the application wrote to its buffer before it registered it, and what is in there is not the tenant's"
    )]
    Used,
    /// Chunks without alignment: what is between packets is not known.
    #[error(
        "its chunks begin anywhere, so that the application may keep something of its own between packets"
    )]
    Unaligned,
    /// Shared memory, a file, or not all there.
    #[error("its buffer is not private memory")]
    NotPrivate,
    /// Of pages that cannot be replaced.
    #[error("its buffer does not begin and end with a page, or has pages of several sizes")]
    Pages,
    /// The same bytes are in two packet memories.
    #[error("its buffer is registered more than once")]
    Twice,
    /// More buffers than are remembered.
    #[error("there are too many packet memories")]
    TooMany,
    /// The system.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why not.
        source: std::io::Error,
    },
}

/// Who may read a packet memory.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Claim {
    /// Nobody yet.
    Open,
    /// The P4 VM of this tenant.
    Tenant(String),
    /// Nobody ever, and why.
    Nobody(String),
}

/// A buffer that the application has registered as packet memory, or is about to.
#[derive(Debug)]
pub(crate) struct Umem {
    addresses: Range<usize>,
    claim: Mutex<Claim>,
    /// None: the buffer is as the application made it.
    shared: Option<Shared>,
    /// Others of the same bytes, whose memory must not change as long as this one is registered.
    _others: Vec<Arc<Self>>,
}

/// All that may be registered.
static ALL: Mutex<Vec<Weak<Umem>>> = Mutex::new(Vec::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A tenant's P4 VM reads memory that somebody else's packets would come into.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Taken;

impl Umem {
    /// Before the kernel is told of a buffer. When this is dropped, it is private memory again.
    ///
    /// # Safety
    /// As for [`Shared::take`].
    ///
    /// # Errors
    /// A P4 VM reads the buffer already, which is registered once more.
    pub(crate) unsafe fn registering(
        addresses: Range<usize>,
        unaligned: bool,
        wanted: bool,
    ) -> Result<Arc<Self>, Taken> {
        let mut all = lock(&ALL);
        all.retain(|u| u.strong_count() > 0);
        let overlaps = |u: &Arc<Self>| u.addresses.start < addresses.end && addresses.start < u.addresses.end;
        let others: Vec<_> = all.iter().filter_map(Weak::upgrade).filter(overlaps).collect();
        for other in &others {
            other.claim(Err(Unfit::Twice.to_string()))?;
        }
        let shared = match () {
            () if !others.is_empty() => Err(Unfit::Twice),
            () if !wanted => Err(Unfit::Unwanted),
            () if unaligned => Err(Unfit::Unaligned),
            // SAFETY: the caller's promise; and no packet memory that we know of has these bytes.
            () => unsafe { Shared::take(addresses.clone()) },
        };
        let umem = Arc::new(Self::of(addresses, shared, others));
        all.push(Arc::downgrade(&umem));
        Ok(umem)
    }

    /// A buffer that is shared memory now, or why it is not, which is the reason for header copies.
    fn of(addresses: Range<usize>, shared: Result<Shared, Unfit>, others: Vec<Arc<Self>>) -> Self {
        let claim = match &shared {
            Ok(_) => Claim::Open,
            Err(why) => Claim::Nobody(why.to_string()),
        };
        Self { addresses, claim: Mutex::new(claim), shared: shared.ok(), _others: others }
    }

    /// A socket of this memory is bound to a port whose packets are all `whose`, or why they are nobody's.
    ///
    /// # Errors
    /// The memory is read by another's P4 VM.
    pub(crate) fn claim(&self, whose: Result<&str, String>) -> Result<(), Taken> {
        let mut claim = lock(&self.claim);
        let next = match (&*claim, whose) {
            (Claim::Open, Ok(tenant)) => Claim::Tenant(tenant.to_owned()),
            (Claim::Open, Err(why)) => Claim::Nobody(why),
            (Claim::Tenant(has), Ok(tenant)) if has == tenant => return Ok(()),
            (Claim::Tenant(_), _) => return Err(Taken),
            (Claim::Nobody(_), _) => return Ok(()),
        };
        *claim = next;
        Ok(())
    }

    /// What the claimant's P4 VM may read.
    ///
    /// # Errors
    /// Why there are header copies.
    pub(crate) fn packets(&self) -> Result<Packets, String> {
        let tenant = match &*lock(&self.claim) {
            Claim::Tenant(tenant) => tenant.clone(),
            Claim::Nobody(why) => return Err(why.clone()),
            Claim::Open => return Err("no socket is bound yet".to_owned()),
        };
        let memory = self.shared.as_ref().ok_or("its buffer is the application's own")?.memory();
        Ok(Packets { tenant, memory: Arc::clone(memory), addresses: self.addresses.clone() })
    }
}

#[cfg(test)]
pub(crate) mod tests;
