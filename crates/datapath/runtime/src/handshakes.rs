//! The user VMs whose keys come from handshakes: what the control thread does for them between two requests.

use crate::program::Prover;
use crate::request_handler::{Failure, KnownVm, RequestHandler};
use crate::tenant_settings::age_limit_ms;
use crate::vm_handshake::{HandshakingVm, Own, VmHandshake};
use crate::vm_keys;
use crate::worker::{KeyChange, ProgramRunner, Vm, VmPages, WorkerAnswer, WorkerCommand};
use p4shield_abi::handshake_page::HANDSHAKE_PAGE_SIZE;
use p4shield_channel::SharedMemory;
use p4shield_control::{AgentDemand, Reply, Status, VmStatus};
use p4shield_handshake::{Now, PublicKey, Session, StaticKey, Terms};
use p4shield_seal::{Epoch, Identity, KeyRing, TenantKey};
use p4shield_text::chain;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Time for which the key of the session before is accepted, if the agent does not use the new one.
const WINDOW_MS: u32 = 600_000;

impl<V: Prover, W: ProgramRunner> RequestHandler<V, W> {
    /// Makes a VM known whose keys come from handshakes. It has neither information nor a log until the first
    /// session.
    pub(crate) fn set_handshaking_vm(
        &mut self,
        (vm, name): (u16, &str),
        demand: AgentDemand,
        page: OwnedFd,
        pages: (Option<SharedMemory>, Option<SharedMemory>),
    ) -> Result<Reply, Failure> {
        let memory = SharedMemory::from_page_fd(page, HANDSHAKE_PAGE_SIZE).map_err(|e| chain(&e))?;
        let epoch = self.epochs.next(self.settings.min_epoch).map_err(|e| chain(&e))?.number();
        let terms = Terms {
            age_limit_ms: age_limit_ms(&self.settings.limit),
            passes_without_program: self.settings.passes_without_program,
            agent_key: demand.key.map(PublicKey),
        };
        let binding = terms.binding(&self.settings.name, name);
        let handshake = VmHandshake::new(memory, binding, demand, self.own()?, epoch)?;
        let reply = self.send(WorkerCommand::SetVm(Box::new(Vm::new(vm, VmPages::default()))))?;
        let handshake = Some(Box::new(HandshakingVm { handshake, pages: Some(pages) }));
        self.vms.insert(vm, KnownVm { name: name.to_owned(), key: None, handshake });
        Ok(reply)
    }

    /// Returns the P4 VM's own part in handshakes; makes its key first if there is none.
    fn own(&mut self) -> Result<&Own, Failure> {
        if self.own.is_none() {
            let key = StaticKey::random().map_err(|e| format!("the system returned no random bytes: {e}"))?;
            self.own = Some(Own { key, prover: self.evidence.clone() });
        }
        self.own.as_ref().ok_or_else(|| "the P4 VM has no key".to_owned())
    }

    /// Returns the time until the handshakes want to be polled; none: there are none.
    pub(crate) fn handshake_tick(&self) -> Option<Duration> {
        let handshakes = self.vms.values().filter_map(|vm| vm.handshake.as_ref());
        handshakes.map(|vm| vm.handshake.tick()).min()
    }

    /// Polls the handshake pages, and takes the keys of sessions that were agreed on.
    pub(crate) fn poll_handshakes(&mut self) {
        let now = now();
        let mut agreed = Vec::new();
        for (number, vm) in &mut self.vms {
            let session = vm.handshake.as_mut().and_then(|vm| vm.handshake.step(now));
            agreed.extend(session.map(|session| (*number, session)));
        }
        for (number, session) in agreed {
            if let Err(error) = self.take_session(number, &session) {
                let vm = self.vms.get_mut(&number).and_then(|vm| vm.handshake.as_mut());
                vm.into_iter().for_each(|vm| vm.handshake.note_unusable(&error));
            }
        }
        self.note_uses();
    }

    /// Ends handshakes whose agent has used its new key.
    fn note_uses(&mut self) {
        let waits = |vm: &KnownVm| vm.handshake.as_ref().is_some_and(|vm| vm.handshake.awaits_use());
        if !self.vms.values().any(waits) {
            return;
        }
        let Some(WorkerAnswer::Status(status)) = self.worker.send(WorkerCommand::Status) else { return };
        for VmStatus { vm, keys, .. } in status.vms {
            let Some(known) = self.vms.get_mut(&vm) else { continue };
            let uses = keys.is_some_and(|k| k.agent_follows && Some(k.current) == known.key.map(|id| id.0));
            if let Some(vm) = known.handshake.as_mut().filter(|vm| uses && vm.handshake.awaits_use()) {
                vm.handshake.used();
            }
        }
    }

    /// Takes the key of a session: the first one opens the pages, a later one rotates the key.
    fn take_session(&mut self, number: u16, session: &Session) -> Result<(), Failure> {
        let key = TenantKey::from_bytes(*session.records_key().expose());
        let Some(terms) = self.vms.get(&number).map(|known| self.terms(&known.name)) else { return Ok(()) };
        let Some(known) = self.vms.get_mut(&number) else { return Ok(()) };
        let identity = Identity { tenant: &self.settings.name, vm: &known.name };
        known.key = Some(key.id());
        let command = match known.handshake.as_mut().and_then(|vm| vm.pages.take()) {
            Some(pages) => {
                let epoch = Epoch::from_session(session.epoch());
                let pages = VmPages::open(&identity, &KeyRing::new(key), terms, pages, epoch);
                WorkerCommand::SetPages(number, Box::new(pages.map_err(|e| chain(&e))?))
            }
            None => {
                let change = KeyChange::rotation(number, &key, &identity, vm_keys::until(WINDOW_MS));
                WorkerCommand::ChangeKeys(Box::new(change))
            }
        };
        self.send(command).map(drop)
    }

    /// Adds to a status what the control thread knows of handshakes.
    pub(crate) fn add_handshakes(&self, status: &mut Status) {
        let now = now();
        for vm in &mut status.vms {
            let known = self.vms.get(&vm.vm).and_then(|known| known.handshake.as_ref());
            vm.handshake = known.map(|known| known.handshake.status(now));
        }
    }
}

fn now() -> Now {
    let now = p4shield_seal::Now::read();
    Now { steady_ms: now.mono_ns / 1_000_000, unix_s: now.real_ns / 1_000_000_000 }
}
