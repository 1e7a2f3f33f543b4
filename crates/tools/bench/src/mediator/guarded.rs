//! Back ends that run `tcp_guard.p4` as in production, with digests and log records: a P4 VM's worker on
//! another core, or the mediator's own thread (placement `inline`).

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, anyhow};
use p4shield_abi::channel::Geometry;
use p4shield_abi::log_page::LOG_PAGE_SIZE;
use p4shield_abi::{Direction, Verdict};
use p4shield_attach::inline::{InlineLibrary, LoadedPrograms};
use p4shield_bpf::verify::{Limits, verify};
use p4shield_bpf::{EngineOptions, Object, Program, Verified, link};
use p4shield_channel::{Doorbell, Responder, SharedMemory};
use p4shield_control::{Hello, PROTOCOL_VERSION, ProgramSlot, Reply, Request, ResourceId, VmKeys};
use p4shield_mediator::InlineEngine;
use p4shield_p4::NoIncludes;
use p4shield_runtime::worker::{
    DecidingTerms, LoadedProgram, ServedChannel, Vm, VmPages, Worker, WorkerAnswer, WorkerCommand,
    WorkerHandle, mailbox,
};
use p4shield_seal::{Epoch, Identity, KeyRing, TenantKey};
use tempfile::TempDir;

use crate::cores;

const GUARD: &str = include_str!("../../../../../examples/programs/tcp_guard.p4");
/// Time between two log records: the configuration's default.
const LOG_INTERVAL: Duration = Duration::from_millis(100);

/// Returns the verified program.
fn guard() -> anyhow::Result<(Vec<u8>, Verified)> {
    let options = p4shield_p4::Options::default();
    let compiled = p4shield_p4::compile("tcp_guard.p4", GUARD, &NoIncludes, &options)
        .map_err(|e| anyhow!(e.render(false)))?;
    let linked = link(&[Object::parse(&compiled.object)?])?;
    let (verified, _) = verify(linked, &Limits::default())?;
    Ok((compiled.object, verified))
}

/// Key and log page, in a temporary folder.
struct Pages {
    folder: TempDir,
    key: TenantKey,
}

impl Pages {
    fn new() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let key = TenantKey::generate(&folder.path().join("key"))?;
        Ok(Self { folder, key })
    }

    fn log(&self) -> anyhow::Result<SharedMemory> {
        let memory = SharedMemory::create_file(&self.folder.path().join("log"), LOG_PAGE_SIZE, 0o600);
        Ok(memory?)
    }
}

/// A P4 VM's worker in a thread instead of a process.
pub(super) struct WorkerThread {
    control: WorkerHandle,
    thread: Option<JoinHandle<()>>,
}

impl WorkerThread {
    /// Starts a worker on the second core that serves one channel; VM 0 has the program.
    pub(super) fn start(judge: Responder, geometry: &Geometry, bell: Doorbell) -> anyhow::Result<Self> {
        let (_, verified) = guard()?;
        let pages = Pages::new()?;
        let (control, mailbox) = mailbox()?;
        let worker = Worker::new(mailbox, Verdict::Pass, LOG_INTERVAL);
        let work = move || {
            cores::pin(cores::two()[1]);
            worker.run();
        };
        let thread = std::thread::Builder::new().spawn(work)?;
        let working = Self { control, thread: Some(thread) };
        let identity = Identity { tenant: "bench", vm: "vm0" };
        let keys = KeyRing::new(pages.key.duplicate());
        let (log, epoch) = (Some(pages.log()?), Epoch::from_clock()?);
        let vm = Vm::new(0, VmPages::open(&identity, &keys, DecidingTerms::default(), (None, log), epoch)?);
        let program = Program::load(&verified, &EngineOptions::default())?;
        let loaded = Box::new(LoadedProgram::of(program));
        working.send(WorkerCommand::SetVm(Box::new(vm)))?;
        working.send(WorkerCommand::SetProgram(ProgramSlot::new(0, Direction::Ingress), Some(loaded)))?;
        working.send(WorkerCommand::Attach(Box::new(ServedChannel::new(0, judge, geometry)), bell))?;
        Ok(working)
    }

    fn send(&self, command: WorkerCommand) -> anyhow::Result<()> {
        match self.control.send(command) {
            Some(WorkerAnswer::Done | WorkerAnswer::Retired(_)) => Ok(()),
            Some(WorkerAnswer::Failed(why)) => Err(anyhow!(why)),
            _ => Err(anyhow!("the worker has ended")),
        }
    }
}

impl Drop for WorkerThread {
    fn drop(&mut self) {
        // A worker that panicked has printed its message.
        let _ = self.control.send(WorkerCommand::Stop);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The program in the mediator's thread, with the objects that it needs.
pub(super) struct Inline {
    _programs: LoadedPrograms,
    _pages: Pages,
}

impl Inline {
    /// Loads the program for VM 0. Returns the mediator's engine.
    pub(super) fn start(geometry: Geometry) -> anyhow::Result<(Self, Box<dyn InlineEngine>)> {
        let (object, verified) = guard()?;
        let pages = Pages::new()?;
        let hello = Hello {
            version: PROTOCOL_VERSION,
            tenant: "bench".to_owned(),
            door: None,
            no_program: Verdict::Pass as u8,
            age_limit_ms: 1000,
            log_interval_ms: LOG_INTERVAL.as_millis() as u32,
            budget: EngineOptions::default().budget,
            min_epoch: 0,
        };
        let at = |name: &str| pages.folder.path().join(name);
        let library = InlineLibrary::load()?;
        let (programs, reply) = library.create(geometry, Request::Hello(hello), Vec::new());
        let mut programs = programs.ok_or_else(|| anyhow!("{reply:?}"))?;
        drop(pages.log()?);
        let log = Some(ResourceId(0));
        let keys = Some(VmKeys { current: ResourceId(1), previous: None });
        let vm = Request::SetVm { vm: 0, name: "vm0".to_owned(), info: None, log, handshake: None, keys };
        done(programs.execute(vm, None, vec![open_to_write(&at("log"))?, open(&at("key"))?]))?;
        File::create(at("object")).and_then(|mut f| f.write_all(&object))?;
        let load = Request::LoadProgram {
            slot: ProgramSlot::new(0, Direction::Ingress),
            name: "tcp_guard".to_owned(),
            objects: ResourceId(0),
            lengths: vec![object.len() as u32],
        };
        let digest = verified.linked().digest();
        done(programs.execute(load, Some(digest), vec![open(&at("object"))?]))?;
        let engine = programs.engine().context("the library made no engine")?;
        Ok((Self { _programs: programs, _pages: pages }, Box::new(engine)))
    }
}

fn open(path: &Path) -> anyhow::Result<OwnedFd> {
    Ok(File::open(path)?.into())
}

fn open_to_write(path: &Path) -> anyhow::Result<OwnedFd> {
    Ok(File::options().read(true).write(true).open(path)?.into())
}

fn done(reply: Reply) -> anyhow::Result<()> {
    match reply {
        Reply::Done | Reply::Loaded { .. } => Ok(()),
        other => Err(anyhow!("{other:?}")),
    }
}
