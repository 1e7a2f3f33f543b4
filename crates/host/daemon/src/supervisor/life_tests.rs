//! The life of a P4 VM under its supervisor, with compartments that run nothing.

use super::*;
use crate::attachment::{ChannelEnd, LaneKey};
use crate::config::Config;
use crate::status::totals::Totals;
use p4shield_attach::mediator_config;
use p4shield_compartment::{Compartment, Group, ProcessIdentity, StartError};
use p4shield_control::{ClientError, Hello, Reply, Request, Resources, Socket, SocketError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::Instant;

const CONFIG: &str = "attachment = \"wire\"\n[[tenant]]\nname = \"alice\"\n[[tenant.vm]]\nname = \"web\"\n\
    addresses = [\"10.0.0.2\"]\n[[wire]]\ntenant = \"alice\"\nvm = \"web\"\nvm_interface = \"a\"\n\
    switch_interface = \"b\"\n";

/// What a test decides, and what it sees.
#[derive(Default)]
struct Script {
    /// Starts that fail before one succeeds.
    failures: usize,
    /// The P4 VM has ended.
    has_ended: bool,
    /// It does not answer.
    is_mute: bool,
    /// What a mediator reports.
    fault: Option<String>,
    /// It ends when a mediator has reported.
    is_ending: bool,
    /// Starts, requests and ends.
    events: Vec<String>,
}

/// A P4 VM that answers as its script says; also what starts it, and the switch side.
#[derive(Clone)]
struct Fake {
    script: Arc<Mutex<Script>>,
    config: Arc<Config>,
}

impl Fake {
    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap()
    }

    fn start_one(&self) -> Result<Box<dyn Compartment>, StartError> {
        let mut script = self.script();
        script.events.push("start".to_owned());
        if let Some(left) = script.failures.checked_sub(1) {
            script.failures = left;
            return Err(StartError::UnknownSender);
        }
        *script = Script { events: std::mem::take(&mut script.events), ..Script::default() };
        Ok(Box::new(FakeP4Vm(self.clone(), SandboxReport::default())))
    }
}

impl Launcher for Fake {
    fn start(
        &self,
        _: &P4VmCommand,
        _: Option<&Group>,
        _: Hello,
        _: &Resources<'_>,
    ) -> Result<Box<dyn Compartment>, StartError> {
        self.start_one()
    }

    fn adopt(
        &self,
        _: &P4VmCommand,
        _: Socket,
        _: &ProcessIdentity,
    ) -> Result<Box<dyn Compartment>, StartError> {
        Err(StartError::UnknownSender)
    }
}

struct FakeP4Vm(Fake, SandboxReport);

impl Compartment for FakeP4Vm {
    fn pid(&self) -> rustix::process::Pid {
        rustix::process::getpid()
    }

    fn identity(&self) -> Option<ProcessIdentity> {
        None
    }

    fn sandbox(&self) -> &SandboxReport {
        &self.1
    }

    fn call(&mut self, request: Request, _: &Resources<'_>, timeout: Duration) -> Result<Reply, ClientError> {
        let mut script = self.0.script();
        let name = format!("{request:?}");
        script.events.push(name.split([' ', '(']).next().unwrap_or_default().to_owned());
        match request {
            _ if script.is_mute => Err(SocketError::Timeout(timeout).into()),
            Request::Status => Ok(Reply::Status(Box::default())),
            _ => Ok(Reply::Done),
        }
    }

    fn wait(&mut self, wake: BorrowedFd<'_>, timeout: Duration) -> bool {
        let timeout = Timespec::try_from(timeout).ok();
        let _ = poll(&mut [PollFd::from_borrowed_fd(wake, PollFlags::IN)], timeout.as_ref());
        self.0.script().has_ended
    }

    fn end(self: Box<Self>, grace: Duration) -> String {
        self.0.script().events.push(format!("end within {grace:?}"));
        "it ended as the script says".to_owned()
    }
}

impl Attachment for Fake {
    fn reconfigure(&self, _: &Config) -> Result<(), String> {
        Ok(())
    }

    fn lanes(&self) -> Vec<LaneKey> {
        Vec::new()
    }

    fn on_change(&self, _: Box<dyn Fn() + Send + Sync>) {}

    fn attach_channel(&self, _: LaneKey, _: usize, _: ChannelEnd) -> Result<(), String> {
        Ok(())
    }

    fn detach_channels(&self, _: usize) {}

    fn fault(&self, _: usize) -> Option<String> {
        let mut script = self.script();
        script.has_ended |= script.is_ending && script.fault.is_some();
        script.fault.clone()
    }

    fn totals(&self) -> Totals {
        Totals::new(&mediator_config(&self.config))
    }
}

/// A supervisor with its fake. The folder is removed last.
struct Life {
    supervisor: Supervisor,
    fake: Fake,
    _folder: tempfile::TempDir,
}

impl Life {
    /// Starts a supervisor and waits until its P4 VM runs.
    fn start(script: Script) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = Config::parse(Path::new("p4shield.toml"), CONFIG).unwrap();
        let tenant = config.tenants[0].clone();
        let adoption = AdoptionFolder::beside(&folder.path().join("daemon.sock")).unwrap();
        let fake = Fake { script: Arc::new(Mutex::new(script)), config: Arc::new(config) };
        let command = P4VmCommand {
            binary: PathBuf::new(),
            uid: 0,
            allow_missing: Vec::new(),
            memory: tenant.memory,
            cpu: None,
            busy: false,
            delay: Duration::ZERO,
            machine: None,
            tee: tenant.tee,
            write_combining: false,
        };
        let supervisor = Supervisor::start(SupervisorConfig {
            index: 0,
            tenant,
            inline: false,
            launcher: Arc::new(fake.clone()),
            command,
            attachment: Arc::new(fake.clone()),
            cgroup: None,
            state: None,
            programs: Arc::new(ProgramStore::open(None)),
            connected: true,
            adoption: Arc::new(adoption),
            adoption_time: Duration::ZERO,
        });
        let life = Self { supervisor: supervisor.unwrap(), fake, _folder: folder };
        life.wait_for("the first start", |report| report.state == State::Running);
        life
    }

    fn wait_for(&self, what: &str, is_so: impl Fn(&SupervisorReport) -> bool) {
        let end = Instant::now() + Duration::from_secs(60);
        while !is_so(&self.supervisor.report()) {
            assert!(Instant::now() < end, "{what}: {:?}", self.supervisor.report());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Changes the script, and waits until another P4 VM runs. Returns why the first one was replaced.
    fn replaced_after(&self, change: impl FnOnce(&mut Script)) -> String {
        change(&mut self.fake.script());
        self.supervisor.doorbell().ring();
        self.wait_for("the replacement", |report| report.restarts == 1 && report.state == State::Running);
        self.supervisor.report().error.clone().unwrap()
    }

    fn count(&self, event: &str) -> usize {
        self.fake.script().events.iter().filter(|e| *e == event).count()
    }
}

#[test]
fn a_p4_vm_that_fails_to_start_is_started_again() {
    let life = Life::start(Script { failures: 3, ..Script::default() });
    assert_eq!(life.count("start"), 4);
    assert_eq!(life.supervisor.report().restarts, 0, "none of them ran");
}

#[test]
fn a_p4_vm_is_provisioned_before_its_first_check() {
    let life = Life::start(Script::default());
    let events = life.fake.script().events.clone();
    assert_eq!(events[..3], ["start", "SetVm", "Status"], "{events:?}");
}

#[test]
fn a_p4_vm_that_ended_is_replaced() {
    let life = Life::start(Script::default());
    let why = life.replaced_after(|script| script.has_ended = true);
    assert_eq!(why, "its process ended; it ended as the script says");
}

#[test]
fn a_p4_vm_that_does_not_answer_is_replaced() {
    let life = Life::start(Script::default());
    let why = life.replaced_after(|script| script.is_mute = true);
    assert!(why.contains("did not answer within 5s"), "{why}");
    assert_eq!(life.count("end within 0ns"), 1, "it gets no time");
}

#[test]
fn a_p4_vm_whose_channel_failed_is_replaced() {
    let life = Life::start(Script::default());
    let why = life.replaced_after(|script| script.fault = Some("a ring is damaged".to_owned()));
    assert!(why.starts_with("a ring is damaged; "), "{why}");
}

#[test]
fn the_end_of_a_p4_vm_is_named_before_what_mediators_see() {
    let life = Life::start(Script::default());
    let why = life.replaced_after(|script| {
        script.fault = Some("the P4 VM is gone".to_owned());
        script.is_ending = true;
    });
    assert!(why.starts_with("its process ended; "), "{why}");
}

#[test]
fn a_p4_vm_has_a_grace_time_at_the_end() {
    let life = Life::start(Script::default());
    life.supervisor.stop();
    assert_eq!(life.fake.script().events.last().unwrap(), "end within 1s");
    assert_eq!(life.supervisor.report().state, State::Stopped);
}
