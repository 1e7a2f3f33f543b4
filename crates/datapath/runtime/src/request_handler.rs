//! Execution of the host's requests: links, verifies and compiles programs, adds VMs with their pages,
//! attaches channels.
//!
//! [`Prover`] and [`ProgramRunner`] differ by placement. In a P4 VM a process of its own verifies programs
//! and the worker thread runs them. With the placement `inline` the host's approval replaces the
//! verification, and the switch's threads run programs ([`crate::inline`]).

use crate::bundles::{BuiltBundle, Bundles, NotBuilt};
use crate::program::{self, Prover};
use crate::program_reader::ProgramReader;
use crate::read_memory;
use crate::tenant_settings::{DecidingTerms, TenantSettings};
use crate::vm_handshake::{HandshakingVm, Own};
use crate::vm_keys;
use crate::worker::{KeyChange, ProgramRunner, ServedChannel, Vm, VmPages, WorkerAnswer, WorkerCommand};
use p4shield_abi::channel::Geometry;
use p4shield_abi::info_page::INFO_PAGE_SIZE;
use p4shield_abi::log_page::LOG_PAGE_SIZE;
use p4shield_abi::{Direction, Verdict};
use p4shield_channel::{Doorbell, PacketMemory, Responder, SharedMemory};
use p4shield_control::{
    AgentDemand, BundleRequest, Delivered, Hello, MAX_NAME, MAX_OBJECTS, MAX_VALUES, MAX_VMS,
    PROTOCOL_VERSION, ProgramSlot, Reply, Request, ResourceId, VmKeys, WireGeometry,
};
use p4shield_seal::{AgeLimit, EpochSequence, Identity, KeyId, TenantKey};
use p4shield_text::chain;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use zeroize::Zeroizing;

/// Executes requests.
pub(crate) struct RequestHandler<V, W> {
    pub(crate) verifier: V,
    pub(crate) worker: W,
    pub(crate) settings: TenantSettings,
    pub(crate) vms: BTreeMap<u16, KnownVm>,
    /// The epochs of all logs since the start, also of VMs that were removed: under an epoch that repeats,
    /// nonces would, too.
    pub(crate) epochs: EpochSequence,
    /// The P4 VM's part in handshakes, from the first one on.
    pub(crate) own: Option<Own>,
    /// What collects evidence about this P4 VM.
    pub(crate) evidence: Option<Arc<dyn p4shield_handshake::Prover>>,
    /// Programs that replace others at [`Request::Commit`].
    staged: Vec<(ProgramSlot, Box<program::LoadedProgram>)>,
    /// Bundles whose programs do.
    staged_bundles: Vec<BuiltBundle>,
    bundles: Bundles,
    reader: ProgramReader,
}

/// What the control thread remembers of a VM.
pub(crate) struct KnownVm {
    pub(crate) name: String,
    /// The current key; none: the VM has no pages, or no session yet.
    pub(crate) key: Option<KeyId>,
    /// Its handshakes, if its keys come from them.
    pub(crate) handshake: Option<Box<HandshakingVm>>,
}

/// Reason why a request is answered with [`Reply::Failed`].
pub(crate) type Failure = String;

impl<V: Prover, W: ProgramRunner> RequestHandler<V, W> {
    pub(crate) fn new(verifier: V, worker: W) -> Self {
        let (settings, reader) = (TenantSettings::default(), ProgramReader::default());
        Self {
            verifier,
            worker,
            settings,
            vms: BTreeMap::new(),
            epochs: EpochSequence::default(),
            own: None,
            evidence: None,
            staged: Vec::new(),
            staged_bundles: Vec::new(),
            bundles: Bundles::default(),
            reader,
        }
    }

    /// Presents evidence in handshakes.
    pub(crate) fn with_evidence(self, evidence: Option<Arc<dyn p4shield_handshake::Prover>>) -> Self {
        Self { evidence, ..self }
    }

    /// Stores what the host says of the tenant.
    pub(crate) fn handle_hello(&mut self, hello: &Hello) -> Result<(), Failure> {
        if hello.version != PROTOCOL_VERSION {
            return Err(format!(
                "this P4 VM uses version {PROTOCOL_VERSION} of the control protocol, the host version {}; \
                 restart the \
                 host daemon",
                hello.version
            ));
        }
        check_name("tenant", &hello.tenant)?;
        let max_age = Duration::from_millis(hello.age_limit_ms.into());
        self.settings = TenantSettings {
            name: hello.tenant.clone(),
            limit: AgeLimit { max_age, ..AgeLimit::default() },
            passes_without_program: p4shield_control::verdict(hello.no_program) == Verdict::Pass,
            log_interval_ms: hello.log_interval_ms,
            budget: hello.budget,
            min_epoch: hello.min_epoch,
        };
        Ok(())
    }

    /// Executes a request with the resources that it names.
    pub(crate) fn handle(&mut self, request: Request, mut resources: Delivered) -> Result<Reply, Failure> {
        match request {
            Request::Hello(_) => Err("Hello was received already".to_owned()),
            Request::Adopt { .. } | Request::SetPatience { .. } => {
                Err("what runs these programs outlives no daemon".to_owned())
            }
            Request::SetVm { vm, name, info, log, handshake, keys } => {
                self.set_vm((vm, &name), (info, log), handshake, keys, &mut resources)
            }
            Request::SetKeys { vm, key, window_ms } => {
                let key = vm_keys::read(&taken(&mut resources, key)?)?;
                self.set_keys(vm, window_ms, &key)
            }
            Request::LoadProgram { slot, name, objects, lengths } => {
                self.bundles.allow("a program that is not in a bundle")?;
                self.load(slot, &name, &lengths, &taken(&mut resources, objects)?)
            }
            Request::StageProgram { slot, name, objects, lengths } => {
                self.bundles.allow("a program that is not in a bundle")?;
                self.stage(slot, &name, &lengths, &taken(&mut resources, objects)?)
            }
            Request::PinBundleKey { key } => {
                let begun = !self.vms.is_empty() || !self.staged.is_empty();
                self.bundles.pin(&key, begun).map(|()| Reply::Done)
            }
            Request::LoadBundle(bundle) => self.load_bundle(&bundle, &mut resources, Self::run_bundle),
            Request::StageBundle(bundle) => self.load_bundle(&bundle, &mut resources, Self::stage_bundle),
            Request::FillMaps { slot, values, len } => self.fill(slot, len, &taken(&mut resources, values)?),
            Request::Commit => self.commit(),
            Request::Discard => {
                self.discard_staged();
                Ok(Reply::Done)
            }
            Request::RemoveVm { vm } => {
                self.reader.forget_vm(vm);
                self.bundles.forget_vm(vm);
                self.vms.remove(&vm);
                self.send(WorkerCommand::RemoveVm(vm))
            }
            Request::RaiseEpoch { min_epoch } => {
                self.settings.min_epoch = self.settings.min_epoch.max(min_epoch);
                Ok(Reply::Done)
            }
            Request::ExpectProgram { slot, fallback } => {
                self.send(WorkerCommand::ExpectProgram(slot, p4shield_control::verdict(fallback)))
            }
            Request::UnloadProgram { slot } => {
                self.reader.forget(slot);
                if !self.reader.has_programs(slot.vm) {
                    self.bundles.forget_vm(slot.vm);
                }
                self.send(WorkerCommand::SetProgram(slot, None))
            }
            Request::AttachChannel { channel, geometry, memory, doorbell, packets } => {
                self.attach(channel, geometry, (memory, doorbell, packets), &mut resources)
            }
            Request::DetachChannel { channel } => {
                self.bundles.forget_channel(channel);
                self.send(WorkerCommand::Detach(channel))
            }
            Request::DescribeProgram { slot, maps, schema } => self.reader.describe(slot, maps, schema),
            Request::ReadMap(query) => self.reader.read(&self.worker, &query),
            Request::Status => self.send(WorkerCommand::Status),
            Request::Stop => Ok(Reply::Done),
        }
    }

    /// Forgets the programs that were staged.
    pub(crate) fn discard_staged(&mut self) {
        self.staged.clear();
        self.staged_bundles.clear();
    }

    /// Sends the worker a command. What the worker returns is freed here and not in the worker.
    pub(crate) fn send(&self, command: WorkerCommand) -> Result<Reply, Failure> {
        match self.worker.send(command) {
            Some(
                WorkerAnswer::Done
                | WorkerAnswer::Retired(_)
                | WorkerAnswer::RetiredBoth(_)
                | WorkerAnswer::Removed(_)
                | WorkerAnswer::PagesSet(_)
                | WorkerAnswer::KeysChanged(_)
                | WorkerAnswer::Detached(..),
            ) => Ok(Reply::Done),
            Some(WorkerAnswer::Status(mut status)) => {
                self.add_handshakes(&mut status);
                Ok(Reply::Status(status))
            }
            Some(WorkerAnswer::Failed(why)) => Err(why),
            Some(WorkerAnswer::Copied(_, result)) => result.map(|()| Reply::Done).map_err(|e| e.to_string()),
            None => Err("the worker has ended".to_owned()),
        }
    }

    fn set_vm(
        &mut self,
        (vm, name): (u16, &str),
        (info, log): (Option<ResourceId>, Option<ResourceId>),
        handshake: Option<(ResourceId, AgentDemand)>,
        keys: Option<VmKeys>,
        resources: &mut Delivered,
    ) -> Result<Reply, Failure> {
        check_name("VM", name)?;
        if vm >= MAX_VMS {
            return Err(format!("invalid VM {vm}: a tenant has at most {MAX_VMS} VMs"));
        }
        let mut page = |id: Option<ResourceId>, len| {
            let fd = id.map(|id| taken(resources, id)).transpose()?;
            fd.map(|fd| SharedMemory::from_page_fd(fd, len)).transpose().map_err(|e| chain(&e))
        };
        let (info, log) = (page(info, INFO_PAGE_SIZE)?, page(log, LOG_PAGE_SIZE)?);
        if let Some((page, demand)) = handshake {
            return self.set_handshaking_vm((vm, name), demand, taken(resources, page)?, (info, log));
        }
        let keys = keys.map(|keys| vm_keys::ring(keys, resources)).transpose()?;
        let key = keys.as_ref().map(|keys| keys.current().id());
        let identity = Identity { tenant: &self.settings.name, vm: name };
        let pages = match &keys {
            Some(keys) => {
                let epoch = self.epochs.next(self.settings.min_epoch);
                let epoch = epoch.map_err(|e| format!("cannot start the log: {}", chain(&e)))?;
                VmPages::open(&identity, keys, self.terms(name), (info, log), epoch).map_err(|e| chain(&e))?
            }
            None if info.is_none() && log.is_none() => VmPages::default(),
            None => return Err("a VM with an info page or a log page needs a key".to_owned()),
        };
        let reply = self.send(WorkerCommand::SetVm(Box::new(Vm::new(vm, pages))))?;
        self.vms.insert(vm, KnownVm { name: name.to_owned(), key, handshake: None });
        Ok(reply)
    }

    /// Returns the terms under which a VM's packets are judged.
    pub(crate) fn terms(&self, vm: &str) -> DecidingTerms {
        DecidingTerms::of(&self.settings, vm, self.bundles.key())
    }

    /// Rotates the key of a VM, or shortens the window of its last rotation.
    fn set_keys(&mut self, vm: u16, window_ms: u32, key: &TenantKey) -> Result<Reply, Failure> {
        let known = self.vms.get_mut(&vm).ok_or_else(|| format!("there is no VM {vm}"))?;
        if known.handshake.is_some() {
            return Err(format!("the keys of VM {} come from handshakes", known.name));
        }
        if known.key.is_none() {
            return Err(format!("VM {} has no key that could rotate", known.name));
        }
        let until_ns = vm_keys::until(window_ms);
        let identity = Identity { tenant: &self.settings.name, vm: &known.name };
        let change = if known.key.replace(key.id()) == Some(key.id()) {
            KeyChange::shorter_window(vm, until_ns)
        } else {
            KeyChange::rotation(vm, key, &identity, until_ns)
        };
        self.send(WorkerCommand::ChangeKeys(Box::new(change)))
    }

    fn load(
        &mut self,
        slot: ProgramSlot,
        name: &str,
        lengths: &[u32],
        objects: &OwnedFd,
    ) -> Result<Reply, Failure> {
        match self.build(name, lengths, objects)? {
            Ok(program) => {
                let reply = loaded(&program);
                self.set_program(slot, program)?;
                Ok(reply)
            }
            Err(refusal) => Ok(Reply::Refused(refusal)),
        }
    }

    fn stage(
        &mut self,
        slot: ProgramSlot,
        name: &str,
        lengths: &[u32],
        objects: &OwnedFd,
    ) -> Result<Reply, Failure> {
        match self.build(name, lengths, objects)? {
            Ok(program) => {
                let reply = loaded(&program);
                self.staged.retain(|(staged, _)| *staged != slot);
                self.staged.push((slot, program));
                Ok(reply)
            }
            Err(refusal) => Ok(Reply::Refused(refusal)),
        }
    }

    /// Sets entries of a staged program's maps. It is no longer staged if they are refused.
    fn fill(&mut self, slot: ProgramSlot, len: u32, values: &OwnedFd) -> Result<Reply, Failure> {
        let staged = self.staged.iter().position(|(staged, _)| *staged == slot);
        let (_, program) = self.staged.swap_remove(staged.ok_or("no program is staged there")?);
        let len = Some(len as usize).filter(|len| *len <= MAX_VALUES);
        let len = len.ok_or_else(|| format!("the values have more than {MAX_VALUES} bytes"))?;
        let bytes = Zeroizing::new(read_memory::read(values, len, "the values")?);
        let text = str::from_utf8(&bytes).map_err(|e| format!("the values are no text: {e}"))?;
        let filled = program.with_entries(text)?;
        let reply = loaded(&filled);
        self.staged.push((slot, Box::new(filled)));
        Ok(reply)
    }

    /// Replaces programs by the staged ones. The first that has no place is an error; those before it run.
    fn commit(&mut self) -> Result<Reply, Failure> {
        for (slot, program) in std::mem::take(&mut self.staged) {
            self.set_program(slot, program)?;
        }
        for bundle in std::mem::take(&mut self.staged_bundles) {
            self.run_bundle(bundle)?;
        }
        Ok(Reply::Done)
    }

    /// Builds the programs of a bundle, and has `accept` take them.
    fn load_bundle(
        &mut self,
        bundle: &BundleRequest,
        resources: &mut Delivered,
        accept: impl FnOnce(&mut Self, BuiltBundle) -> Result<(), Failure>,
    ) -> Result<Reply, Failure> {
        check_name("VM", &bundle.name)?;
        let tenant = (&*self.settings.name, self.settings.budget);
        let bytes = taken(resources, bundle.bytes)?;
        match self.bundles.build(bundle, &bytes, &mut self.verifier, tenant) {
            Ok(built) => {
                let loaded = built.loaded;
                accept(self, built)?;
                Ok(Reply::BundleLoaded(loaded))
            }
            Err(NotBuilt::Refused(why)) => Ok(Reply::Refused(why)),
            Err(NotBuilt::Failed(why)) => Err(why),
        }
    }

    fn stage_bundle(&mut self, built: BuiltBundle) -> Result<(), Failure> {
        self.staged_bundles.retain(|staged| staged.vm != built.vm);
        self.staged_bundles.push(built);
        Ok(())
    }

    /// Replaces the programs of both directions by a bundle's.
    fn run_bundle(&mut self, mut built: BuiltBundle) -> Result<(), Failure> {
        let vm = built.vm;
        if self.vms.get(&vm).is_none_or(|known| known.name != built.name) {
            return Err(format!("VM {vm} is not {}, which the bundle was built for", built.name));
        }
        self.bundles.recheck(&built)?;
        let programs = std::mem::take(&mut built.programs);
        let details = programs.each_ref().map(|p| p.as_ref().map(|p| p.details()));
        self.send(WorkerCommand::SetPrograms(vm, programs))?;
        self.bundles.note(&built);
        for (direction, details) in Direction::ALL.into_iter().zip(details) {
            let slot = ProgramSlot::new(vm, direction);
            match details {
                Some(details) => self.reader.note(slot, details),
                None => self.reader.forget(slot),
            }
        }
        Ok(())
    }

    fn set_program(
        &mut self,
        slot: ProgramSlot,
        program: Box<program::LoadedProgram>,
    ) -> Result<(), Failure> {
        let details = program.details();
        self.send(WorkerCommand::SetProgram(slot, Some(program)))?;
        self.reader.note(slot, details);
        Ok(())
    }

    /// Links, verifies and compiles a program. The inner error says why it is refused.
    fn build(
        &mut self,
        name: &str,
        lengths: &[u32],
        objects: &OwnedFd,
    ) -> Result<Result<Box<program::LoadedProgram>, String>, Failure> {
        check_name("program", name)?;
        let bytes = read_objects(objects, lengths)?;
        let mut rest = bytes.as_slice();
        let mut objects = Vec::with_capacity(lengths.len());
        for len in lengths {
            let (object, tail) = rest.split_at(*len as usize);
            objects.push(object);
            rest = tail;
        }
        Ok(program::build(&objects, &mut self.verifier, self.settings.budget).map(Box::new))
    }

    fn attach(
        &mut self,
        channel: u32,
        geometry: WireGeometry,
        (memory, doorbell, packets): (ResourceId, ResourceId, Option<(ResourceId, u64)>),
        resources: &mut Delivered,
    ) -> Result<Reply, Failure> {
        let geometry = Geometry::from(geometry);
        // Checked before the size is computed, which could overflow.
        if !geometry.is_valid() {
            return Err(format!("invalid geometry of a channel: {geometry:?}"));
        }
        let packets = packets.map(|(id, len)| packet_memory(&taken(resources, id)?, len)).transpose()?;
        let doorbell = taken(resources, doorbell)?;
        let memory =
            SharedMemory::from_fd(taken(resources, memory)?, geometry.size()).map_err(|e| chain(&e))?;
        let mut responder = Responder::new(memory, geometry).map_err(|e| chain(&e))?;
        if let Some(packets) = packets {
            responder = responder.with_packet_memory(packets);
        }
        self.bundles.admit_channel(geometry.header_bytes)?;
        let served = Box::new(ServedChannel::new(channel, responder, &geometry));
        let attached = self.send(WorkerCommand::Attach(served, Doorbell::from_fd(doorbell)))?;
        self.bundles.add_channel(channel, geometry.header_bytes);
        Ok(attached)
    }
}

/// Takes a resource that the request names.
fn taken(resources: &mut Delivered, id: ResourceId) -> Result<OwnedFd, Failure> {
    resources.take(id).map_err(|e| e.to_string())
}

/// Returns the reply for a program that was accepted.
fn loaded(program: &program::LoadedProgram) -> Reply {
    Reply::Loaded { digest: program.digest(), instructions: program.instructions() }
}

/// Maps the switch's packet memory.
fn packet_memory(fd: &OwnedFd, len: u64) -> Result<PacketMemory, Failure> {
    let len = usize::try_from(len).map_err(|e| e.to_string())?;
    PacketMemory::from_fd(fd, len)
        .map_err(|e| format!("cannot map the switch's packet memory: {}", chain(&e)))
}

/// Copies the objects into private memory.
fn read_objects(objects: &OwnedFd, lengths: &[u32]) -> Result<Vec<u8>, Failure> {
    let total = lengths.iter().try_fold(0_usize, |sum, n| sum.checked_add(*n as usize));
    let total = total.filter(|n| *n <= MAX_OBJECTS && !lengths.is_empty());
    let total =
        total.ok_or_else(|| format!("a program has at least one object and at most {MAX_OBJECTS} bytes"))?;
    read_memory::read(objects, total, "the objects")
}

/// Names become part of keys, logs and metrics: one to [`MAX_NAME`] letters, digits, `.`, `_` and `-`.
fn check_name(what: &str, name: &str) -> Result<(), Failure> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if (1..=MAX_NAME).contains(&name.len()) && name.chars().all(plain) {
        return Ok(());
    }
    Err(format!(
        "invalid name of a {what}: use 1 to {MAX_NAME} letters, digits, dots, dashes and underscores"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::MemfdFlags;

    fn memory(bytes: &[u8]) -> OwnedFd {
        let fd = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        rustix::io::write(&fd, bytes).unwrap();
        fd
    }

    #[test]
    fn objects_are_read_up_to_their_announced_lengths() {
        let file = memory(b"abcdef");
        assert_eq!(read_objects(&file, &[2, 3]).unwrap(), b"abcde");
        assert!(read_objects(&file, &[7]).unwrap_err().contains("after 6 of 7"));
        assert!(read_objects(&file, &[]).is_err());
        assert!(read_objects(&file, &[u32::MAX; 4]).is_err(), "the length is checked before the allocation");
    }

    #[test]
    fn names_are_plain() {
        for good in ["a", "web-1.example_2"] {
            check_name("VM", good).unwrap();
        }
        for bad in ["", "a b", "a/b", "ä", "a\n", &"x".repeat(MAX_NAME + 1)] {
            assert!(check_name("VM", bad).is_err(), "{bad:?}");
        }
    }
}
