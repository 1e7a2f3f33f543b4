//! Placement `inline`: the tenants whose programs run in this process.
//!
//! The programs live in `libp4shield_inline.so` (`library`). The control thread loads that
//! library when the daemon's configuration asks for it, passes the daemon's requests on, and gives
//! each lane a [`LoadedEngine`].

#[allow(unsafe_code)]
mod library;

pub use library::{InlineLibrary, LoadError, LoadedEngine, LoadedPrograms};

use p4shield_abi::channel::Geometry;
use p4shield_control::{Reply, Request};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

/// The programs of each tenant that has some in this process. Only the control thread uses them:
/// loading a program takes time.
#[derive(Default)]
pub(crate) struct InlineTenants {
    /// Programs that lanes use.
    active: BTreeMap<u16, LoadedPrograms>,
    /// Programs that the daemon has not loaded completely.
    pending: BTreeMap<u16, LoadedPrograms>,
}

impl InlineTenants {
    /// Executes the daemon's request on a tenant's programs. A program that is loaded must have the digest
    /// `approved`.
    pub(crate) fn handle(
        &mut self,
        (tenant, geometry): (u16, Geometry),
        approved: Option<[u8; 32]>,
        request: Request,
        descriptors: Vec<OwnedFd>,
    ) -> Reply {
        if let Request::Hello(_) = request {
            let library = match InlineLibrary::load() {
                Ok(library) => library,
                Err(e) => return Reply::Failed(e.to_string()),
            };
            let (programs, reply) = library.create(geometry, request, descriptors);
            self.pending.extend(programs.map(|p| (tenant, p)));
            return reply;
        }
        let programs = self.pending.get_mut(&tenant).or_else(|| self.active.get_mut(&tenant));
        let reply = programs.map(|p| p.execute(request, approved, descriptors));
        reply.unwrap_or_else(|| Reply::Failed("the first message has to be Hello".to_owned()))
    }

    /// Activates a tenant's pending programs. Returns what lanes judge with from now on; `None` if
    /// no programs were pending.
    pub(crate) fn activate(&mut self, tenant: u16) -> Option<LoadedEngine> {
        // The previous programs publish their last log records before the new ones publish their first.
        drop(self.active.remove(&tenant));
        let mut programs = self.pending.remove(&tenant)?;
        let engine = programs.engine();
        self.active.insert(tenant, programs);
        engine
    }

    /// Returns whether no tenant has active programs here.
    pub(crate) fn is_empty(&self) -> bool {
        self.active.is_empty()
    }

    /// Destroys the programs of tenants that are gone.
    pub(crate) fn retain(&mut self, is_kept: impl Fn(u16) -> bool) {
        self.active.retain(|tenant, _| is_kept(*tenant));
        self.pending.retain(|tenant, _| is_kept(*tenant));
    }

    /// Reads new in-VM information and publishes logs of tenants without packets.
    pub(crate) fn maintain(&self) {
        self.active.values().for_each(LoadedPrograms::maintain);
    }
}
