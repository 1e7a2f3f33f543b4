//! The placement `inline`: programs in this process, between the daemon that loads them and the lanes that judge with them.

use p4shield_abi::channel::{Geometry, Request as Asked};
use p4shield_channel::Response as Verdict;
use p4shield_control::{Reply, Request};
use p4shield_mediator::{InlineBatch, InlineEngine};
use p4shield_runtime::inline::{Judge, Judging, Programs};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

/// The programs of each tenant that has some here. The link thread's alone: loading takes its time.
#[derive(Default)]
pub(crate) struct Tenants {
    /// Those that judge.
    judging: BTreeMap<u16, Programs>,
    /// Those that are to, and do not have all their programs yet.
    coming: BTreeMap<u16, Programs>,
}

impl Tenants {
    /// Carries out what the daemon asks of a tenant's programs.
    pub(crate) fn handle(
        &mut self,
        (tenant, geometry): (u16, Geometry),
        approved: Option<[u8; 32]>,
        request: Request,
        descriptors: Vec<OwnedFd>,
    ) -> Reply {
        let Request::Hello(hello) = request else {
            let programs = self.coming.get_mut(&tenant).or_else(|| self.judging.get_mut(&tenant));
            let reply = programs.map(|p| p.handle(request, approved, descriptors));
            return reply.unwrap_or_else(|| Reply::Failed("the first message has to be Hello".to_owned()));
        };
        match Programs::new(&hello, geometry, descriptors) {
            Ok(programs) => {
                self.coming.insert(tenant, programs);
                Programs::greeting()
            }
            Err(why) => Reply::Failed(why),
        }
    }

    /// Those that were coming are there. What lanes are to judge with from now on; none if none were coming.
    pub(crate) fn judge(&mut self, tenant: u16) -> Option<Judge> {
        // Those before publish their last log records, before the first of the new ones.
        drop(self.judging.remove(&tenant));
        let mut programs = self.coming.remove(&tenant)?;
        let judge = programs.judge();
        self.judging.insert(tenant, programs);
        Some(judge)
    }

    /// Whether nobody has programs here.
    pub(crate) fn is_empty(&self) -> bool {
        self.judging.is_empty()
    }

    /// Forgets all: the tenants are others now.
    pub(crate) fn clear(&mut self) {
        self.judging.clear();
        self.coming.clear();
    }

    /// Looks at information and logs of tenants for whom nothing comes.
    pub(crate) fn look(&self) {
        self.judging.values().for_each(Programs::look);
    }
}

/// A mediator's way to judge with a tenant's programs in this process, made from any other's.
#[must_use]
pub fn engine(judge: &Judge) -> Box<dyn InlineEngine> {
    Box::new(Here(judge.another()))
}

/// A lane's access to a tenant's programs.
struct Here(Judge);

impl InlineEngine for Here {
    fn run(&mut self, work: &mut dyn FnMut(&mut dyn InlineBatch)) -> bool {
        self.0.run(|judging| work(&mut At(judging)))
    }
}

struct At<'a, 'b>(&'a mut Judging<'b>);

impl InlineBatch for At<'_, '_> {
    fn header_bytes(&self) -> usize {
        self.0.header_bytes()
    }

    fn judge(&mut self, request: &Asked, header: &[u8]) -> Verdict<'_> {
        self.0.judge(request, header)
    }
}
