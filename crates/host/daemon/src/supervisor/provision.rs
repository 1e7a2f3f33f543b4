//! Provisioning of what runs a tenant's programs (a P4 VM, or a switch with placement `inline`): key, VMs and
//! programs.

use super::SupervisorConfig;
use super::pages::Page;
use super::{ANSWER_TIMEOUT, VERIFY_TIMEOUT};
use crate::attachment::{InlineRequest, SwitchKey};
use crate::config::Tenant;
use crate::programs::ProgramKey;
use crate::rotation::keys::{Keys, KeysToSend};
use p4shield_abi::{Direction, FailPolicy, Verdict};
use p4shield_compartment::Compartment;
use p4shield_control::{
    AgentDemand, ClientError, Hello, MAX_OBJECTS, PROTOCOL_VERSION, ProgramSlot, Reply, Request, ResourceId,
    Resources, VmKeys,
};
use std::time::Duration;

/// The objects of a program; empty: no program.
pub(super) type Objects = Vec<Vec<u8>>;

/// The info page, the log page and the handshake page of a VM.
pub(super) type Pages = [Option<Page>; 3];

/// A control request to a [`ProgramHost`].
pub(super) struct ProgramRequest<'a> {
    pub(super) request: Request,
    /// The digest of the program to load, if a P4 VM has verified it.
    pub(super) approved: Option<[u8; 32]>,
    pub(super) resources: &'a Resources<'a>,
    pub(super) timeout: Duration,
}

impl ProgramRequest<'_> {
    /// Returns a request without resources that is answered at once.
    pub(super) const fn new(request: Request) -> Self {
        Self { request, approved: None, resources: const { &Resources::none() }, timeout: ANSWER_TIMEOUT }
    }
}

/// What runs a tenant's programs: a P4 VM or a switch.
pub(super) trait ProgramHost {
    /// Sends a request and waits for the reply.
    fn request(&mut self, request: ProgramRequest<'_>) -> Result<Reply, ClientError>;
}

/// A P4 VM verifies programs itself.
impl ProgramHost for dyn Compartment + '_ {
    fn request(&mut self, request: ProgramRequest<'_>) -> Result<Reply, ClientError> {
        self.call(request.request, request.resources, request.timeout)
    }
}

/// A switch that runs programs itself.
pub(super) struct InlineSwitch<'a> {
    pub(super) config: &'a SupervisorConfig,
    pub(super) switch: SwitchKey,
}

impl ProgramHost for InlineSwitch<'_> {
    fn request(&mut self, request: ProgramRequest<'_>) -> Result<Reply, ClientError> {
        let ProgramRequest { request, approved, resources, timeout } = request;
        let SupervisorConfig { index, tenant, attachment, .. } = self.config;
        let geometry = tenant.geometry;
        let request = InlineRequest { tenant: *index, approved, geometry, request, resources, timeout };
        attachment.request_inline(self.switch, request)
    }
}

/// Returns the first message. Logs start with an epoch of at least `min_epoch`.
pub(super) fn hello(config: &SupervisorConfig, min_epoch: u64) -> Hello {
    let tenant = &config.tenant;
    Hello {
        version: PROTOCOL_VERSION,
        tenant: tenant.name.clone(),
        door: None,
        no_program: tenant.no_program.verdict() as u8,
        age_limit_ms: millis(tenant.age_limit).max(1),
        log_interval_ms: millis(tenant.log_interval).max(1),
        budget: tenant.budget,
        min_epoch,
    }
}

/// Returns a duration in milliseconds, rounded up.
pub(super) fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX)
}

/// Announces the tenant's VMs, with their pages and keys if pages are given.
pub(super) fn set_vms(
    host: &mut (impl ProgramHost + ?Sized),
    config: &SupervisorConfig,
    keys: &mut Keys,
    pages: Option<&[Pages]>,
) -> Result<(), ClientError> {
    for (v, _) in config.tenant.numbered_vms() {
        set_vm(host, v, &config.tenant, keys, pages.map(|p| &p[v]))?;
    }
    Ok(())
}

/// Announces a VM, with its pages and keys if pages are given.
pub(super) fn set_vm(
    host: &mut (impl ProgramHost + ?Sized),
    number: usize,
    tenant: &Tenant,
    keys: &mut Keys,
    pages: Option<&Pages>,
) -> Result<(), ClientError> {
    let [info, log, handshake] = pages.map_or([None; 3], |p| p.each_ref().map(Option::as_ref));
    let sealed = info.is_some() || log.is_some();
    let mut resources = Resources::none();
    let [info, log, handshake] = [info, log, handshake].map(|page| page.map(|page| resources.add(page)));
    let to_send = keys.of(tenant, number).filter(|_| sealed);
    let sent = to_send.as_ref().map(|KeysToSend { current, previous }| VmKeys {
        current: resources.add_bytes(current.expose()),
        previous: previous.as_ref().map(|(key, left)| (resources.add_bytes(key.expose()), millis(*left))),
    });
    let vm = &tenant.vms[number];
    let demand =
        |h: &crate::config::Handshake| AgentDemand { key: h.agent_key, without_evidence: h.is_sample };
    let handshake = handshake.zip(vm.handshake.as_ref().map(demand));
    let name = vm.name.clone();
    let request = Request::SetVm { vm: number as u16, name, info, log, handshake, keys: sent };
    host.request(ProgramRequest { resources: &resources, ..ProgramRequest::new(request) })?;
    if sealed {
        keys.gave(tenant, number);
    }
    Ok(())
}

/// Announces the configured programs: until such a program runs, the tenant's `fail` policy applies to its
/// packets, not `no_program`.
pub(super) fn expect_programs(
    host: &mut (impl ProgramHost + ?Sized),
    config: &SupervisorConfig,
) -> Result<(), ClientError> {
    let fallback = match config.tenant.fail {
        FailPolicy::Drop => Verdict::Drop,
        FailPolicy::Pass => Verdict::Pass,
    };
    for (v, vm) in config.tenant.numbered_vms() {
        for direction in Direction::ALL {
            let place = config.tenant.place_of(direction);
            let key = ProgramKey::new(&config.tenant.name, &vm.name, place);
            if config.programs.expects(&key, !vm.programs[place as usize].is_empty()) {
                let slot = ProgramSlot::new(v as u16, direction);
                let request = Request::ExpectProgram { slot, fallback: fallback as u8 };
                host.request(ProgramRequest::new(request))?;
            }
        }
    }
    Ok(())
}

/// Loads a program and waits until it runs, or unloads it if there are no objects. Returns the digest.
pub(super) fn load(
    host: &mut (impl ProgramHost + ?Sized),
    slot: ProgramSlot,
    objects: &Objects,
    approved: Option<[u8; 32]>,
) -> Result<Option<[u8; 32]>, ClientError> {
    if objects.is_empty() {
        return host.request(ProgramRequest::new(Request::UnloadProgram { slot })).map(|_| None);
    }
    let request = |name, (objects, lengths)| Request::LoadProgram { slot, name, objects, lengths };
    send_objects(host, objects, approved, request).map(Some)
}

/// Has a P4 VM verify a program without running it, and waits for the result. Returns the digest.
pub(super) fn stage(
    host: &mut (impl ProgramHost + ?Sized),
    slot: ProgramSlot,
    objects: &Objects,
) -> Result<[u8; 32], ClientError> {
    let request = |name, (objects, lengths)| Request::StageProgram { slot, name, objects, lengths };
    send_objects(host, objects, None, request)
}

fn send_objects(
    host: &mut (impl ProgramHost + ?Sized),
    objects: &Objects,
    approved: Option<[u8; 32]>,
    request: impl FnOnce(String, (ResourceId, Vec<u32>)) -> Request,
) -> Result<[u8; 32], ClientError> {
    let bytes = objects.concat();
    if bytes.len() > MAX_OBJECTS {
        let message = format!("the objects have {} bytes; at most {MAX_OBJECTS} are allowed", bytes.len());
        return Err(ClientError::Failed(message));
    }
    // Each length is at most MAX_OBJECTS, which is far below 2^32.
    let lengths = objects.iter().map(|o| o.len() as u32).collect();
    let mut resources = Resources::none();
    let request = request("program".to_owned(), (resources.add_bytes(&bytes), lengths));
    let resources = &resources;
    match host.request(ProgramRequest { request, approved, resources, timeout: VERIFY_TIMEOUT })? {
        Reply::Loaded { digest, .. } => Ok(digest),
        _ => Err(ClientError::Unexpected),
    }
}
