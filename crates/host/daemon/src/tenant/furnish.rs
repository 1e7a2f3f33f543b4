//! What a tenant's programs need, told to whoever runs them: a P4 VM, or a switch that does itself.

use super::Charge;
use super::pages::Page;
use super::process::{ANSWER, Process, VERIFY};
use crate::attachment::{Ask, SwitchKey};
use crate::text::chain;
use p4shield_control::{ClientError, Hello, MAX_OBJECTS, PROTOCOL_VERSION, ProgramSlot, Reply, Request};
use p4shield_seal::TenantKey;
use rustix::fs::{MemfdFlags, memfd_create};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Objects of a program; none: no program.
pub(super) type Objects = Vec<Vec<u8>>;

/// Info page and log page of a VM.
pub(super) type Pages = [Option<Page>; 2];

/// What whoever runs a tenant's programs is asked.
pub(super) struct Question<'a> {
    pub(super) request: Request,
    /// The digest of a program that is to be loaded, if it was verified.
    pub(super) approved: Option<[u8; 32]>,
    pub(super) descriptors: &'a [BorrowedFd<'a>],
    pub(super) timeout: Duration,
}

impl Question<'_> {
    /// Without descriptors, to be answered at once.
    pub(super) const fn new(request: Request) -> Self {
        Self { request, approved: None, descriptors: &[], timeout: ANSWER }
    }
}

/// Whoever runs a tenant's programs.
pub(super) trait Runner {
    /// Asks, and waits for the answer.
    fn ask(&mut self, question: Question<'_>) -> Result<Reply, ClientError>;
}

/// It verifies programs itself.
impl Runner for Process {
    fn ask(&mut self, question: Question<'_>) -> Result<Reply, ClientError> {
        Self::ask(self, question.request, question.descriptors, question.timeout)
    }
}

/// A switch that runs programs itself.
pub(super) struct Inline<'a> {
    pub(super) charge: &'a Charge,
    pub(super) switch: SwitchKey,
}

impl Runner for Inline<'_> {
    fn ask(&mut self, question: Question<'_>) -> Result<Reply, ClientError> {
        let Question { request, approved, descriptors, timeout } = question;
        let Charge { index, tenant, attachment, .. } = self.charge;
        let ask = Ask { tenant: *index, approved, geometry: tenant.geometry, request, descriptors, timeout };
        attachment.ask(self.switch, ask)
    }
}

/// The first message, and memory with the tenant's key. Logs begin with an epoch of `min_epoch` or above.
///
/// # Errors
/// The key file.
pub(super) fn hello(charge: &Charge, min_epoch: u64) -> Result<(Hello, Option<OwnedFd>), String> {
    let tenant = &charge.tenant;
    let key = tenant.key_file.as_deref().map(TenantKey::load).transpose().map_err(|e| chain(&e))?;
    let key = key.map(|k| memory(k.expose())).transpose().map_err(|e| chain(&e))?;
    let millis = |d: Duration| u32::try_from(d.as_millis()).unwrap_or(u32::MAX).max(1);
    let hello = Hello {
        version: PROTOCOL_VERSION,
        tenant: tenant.name.clone(),
        key: key.is_some(),
        no_program: tenant.no_program.verdict() as u8,
        age_limit_ms: millis(tenant.age_limit),
        log_interval_ms: millis(tenant.log_interval),
        budget: tenant.budget,
        min_epoch,
    };
    Ok((hello, key))
}

/// Makes the tenant's VMs known, with their pages if they are given.
pub(super) fn set_vms(
    to: &mut impl Runner,
    charge: &Charge,
    pages: Option<&[Pages]>,
) -> Result<(), ClientError> {
    for (v, vm) in charge.tenant.vms.iter().enumerate() {
        let [info, log] = pages.map_or([None, None], |p| p[v].each_ref().map(Option::as_ref));
        let descriptors: Vec<_> = [info, log].into_iter().flatten().map(AsFd::as_fd).collect();
        let (info, log) = (info.is_some(), log.is_some());
        let request = Request::SetVm { vm: v as u16, name: vm.name.clone(), info, log };
        to.ask(Question { descriptors: &descriptors, ..Question::new(request) })?;
    }
    Ok(())
}

/// Hands a program over and waits until it runs; without objects, takes the one away that runs. The digest of what runs.
pub(super) fn load(
    to: &mut impl Runner,
    slot: ProgramSlot,
    objects: &Objects,
    approved: Option<[u8; 32]>,
) -> Result<Option<[u8; 32]>, ClientError> {
    if objects.is_empty() {
        return to.ask(Question::new(Request::UnloadProgram { slot })).map(|_| None);
    }
    let bytes = objects.concat();
    if bytes.len() > MAX_OBJECTS {
        let message = format!("the objects have {} bytes, at most {MAX_OBJECTS}", bytes.len());
        return Err(ClientError::Failed(message));
    }
    let fd = memory(&bytes).map_err(|e| ClientError::Failed(chain(&e)))?;
    // Each length is at most that of all, which is far below 2^32.
    let lengths = objects.iter().map(|o| o.len() as u32).collect();
    let request = Request::LoadProgram { slot, name: "program".to_owned(), objects: lengths };
    let descriptors = &[fd.as_fd()];
    match to.ask(Question { request, approved, descriptors, timeout: VERIFY })? {
        Reply::Loaded { digest, .. } => Ok(Some(digest)),
        _ => Err(ClientError::Unexpected),
    }
}

/// Memory with these bytes, to be sent.
fn memory(bytes: &[u8]) -> std::io::Result<OwnedFd> {
    use std::io::Write;
    let fd = memfd_create("p4shield", MemfdFlags::CLOEXEC)?;
    let mut file = std::fs::File::from(fd);
    file.write_all(bytes)?;
    Ok(file.into())
}
