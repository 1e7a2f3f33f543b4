//! The supervisor of one tenant's P4 VM: a thread that starts it, checks it, and restarts it.
//!
//! Each tenant has a thread, so that a P4 VM that is slow to answer delays its own supervisor only. The
//! supervisor replaces a P4 VM that has ended, whose channel a mediator gave up (the P4 VM broke the protocol
//! or stopped answering), or whose control socket is unusable. Each lane of the attachment has a channel of
//! its own to the P4 VM. A new P4 VM gets new channels; the switch is not involved. The supervisor keeps
//! programs as bytes and loads them into the new P4 VM. While a tenant's pages cannot be created, it has no
//! P4 VM; the supervisor keeps trying.
//!
//! The thread is in `thread`. It starts the P4 VM (`p4shield_compartment`), provisions it with key, VMs and
//! programs (`provision`), connects it to the lanes (`channels`), and keeps it off the cores on which
//! switches poll (`cores`). With placement `inline` it provisions switches, too (`inline`). `adopt` takes a
//! P4 VM over from the daemon before. `change` applies a new configuration to the running P4 VM; `rotation`
//! gives it new keys, which `crate::rotation` holds. `bundles` delivers signed bundles.

mod adopt;
mod ask;
mod bundles;
mod change;
mod channels;
mod cores;
mod epochs;
mod inline;
mod limits;
mod load;
mod pages;
mod plan;
mod provision;
mod rotation;
mod thread;

use crate::adoption::AdoptionFolder;
use crate::attachment::Attachment;
use crate::config::Tenant;
use crate::programs::ProgramStore;
use crate::programs::refusal::Meanwhile;
use crate::rotation::KeyRotation;
use crate::status::State;
use p4shield_abi::Direction;
use p4shield_channel::Doorbell;
use p4shield_compartment::{Cgroup, CoreTime, Launcher, P4VmCommand};
use p4shield_control as control;
use p4shield_control::SandboxReport;
use plan::Gate;
use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

pub(crate) use plan::{ChangeSummary, TenantChange};
pub(crate) use rotation::{KeyReport, RotationOrder};

/// What the supervisor reports for `status`.
#[derive(Clone, Debug, Default)]
pub(crate) struct SupervisorReport {
    pub(crate) state: State,
    pub(crate) pid: Option<i32>,
    pub(crate) restarts: u64,
    /// Whether the P4 VM was adopted from the daemon before.
    pub(crate) adopted: bool,
    pub(crate) error: Option<String>,
    pub(crate) sandbox: Option<SandboxReport>,
    pub(crate) p4vm: Option<control::Status>,
    /// An error or note about programs that run in switches.
    pub(crate) inline: Option<String>,
    /// Reason why some lanes have no channel to the P4 VM.
    pub(crate) channels: Option<String>,
    /// Reason why the P4 VM shares a core with a switch's polling thread.
    pub(crate) cores: Option<String>,
    /// Time on cores of this P4 VM and of those that it replaced.
    pub(crate) core_time: Option<CoreTime>,
    /// By VM: what the daemon knows of its keys.
    pub(crate) keys: Vec<KeyReport>,
    /// Reason why the program of a VM and direction does not run.
    pub(crate) refusals: Vec<[Option<String>; 2]>,
}

impl SupervisorReport {
    /// Returns what judges packets of a direction while a new program for it is refused.
    pub(crate) fn meanwhile(&self, vm: usize, direction: Direction) -> Meanwhile {
        let d = direction as usize;
        let status = self.p4vm.as_ref().and_then(|p4vm| p4vm.vms.iter().find(|v| usize::from(v.vm) == vm));
        if status.is_some_and(|vm| vm.directions[d].program.is_some()) {
            Meanwhile::PreviousProgram
        } else if self.p4vm.is_none() || self.refusals.get(vm).is_some_and(|r| r[d].is_some()) {
            Meanwhile::Fail
        } else {
            Meanwhile::NoProgram
        }
    }
}

/// The answer to a command, as text for the operator.
pub(crate) type Answer = Result<String, String>;

/// Records a program that was loaded.
pub(crate) type Recorded = Box<dyn FnOnce(String) -> Loaded + Send>;

/// A program that was loaded or unloaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Loaded {
    /// Its digest, or [`NO_PROGRAM`].
    pub(crate) program: String,
    /// What the operator should know.
    pub(crate) warning: Option<String>,
}

/// Longest time for an answer without verification; ample even on a busy machine.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest time to link, verify and compile a program.
const VERIFY_TIMEOUT: Duration = Duration::from_secs(30);
/// The answer to a command that unloaded a program.
pub(crate) const NO_PROGRAM: &str = "no program";

/// The result of a preparation: what the change will do, or why it is refused.
pub(crate) type Prepared = Result<ChangeSummary, String>;

/// Time within which a supervisor must begin to prepare a change: that of a request that its P4 VM is still
/// answering. It does not begin if the P4 VM hangs.
const BEGIN_TIMEOUT: Duration = ANSWER_TIMEOUT;

/// A command to the supervisor's thread.
pub(crate) enum Command {
    /// Replaces a program by the one that `objects` link to, or unloads it if there are none.
    Load {
        vm: u16,
        direction: Direction,
        objects: Vec<Vec<u8>>,
        recorded: Recorded,
        answer: Sender<Result<Loaded, String>>,
    },
    /// Has the P4 VM verify a program, without loading it.
    Check { vm: u16, direction: Direction, objects: Vec<Vec<u8>>, answer: Sender<Answer> },
    /// Sends a request to what runs the programs.
    Ask { request: control::Request, answer: Sender<Result<control::Reply, String>> },
    /// Rotates a key.
    Rotate { order: Box<RotationOrder>, answer: Sender<Result<KeyRotation, String>> },
    /// Prepares a change of the configuration, once the P4 VM has answered and the gate is open.
    Prepare { change: Box<TenantChange>, gate: Arc<Gate>, begun: Sender<()>, answer: Sender<Prepared> },
    /// Makes the prepared change.
    Commit(Sender<()>),
    /// Removes the VMs that are no longer configured.
    Finish(Sender<()>),
    /// Forgets the prepared change.
    Discard,
    /// Takes a change of the configuration without preparation.
    Adopt(Box<TenantChange>),
    /// Connects the P4 VM to the lanes.
    Connect,
    /// Ends the P4 VM and the supervisor.
    Stop,
}

/// What a supervisor needs.
pub(crate) struct SupervisorConfig {
    pub(crate) index: usize,
    pub(crate) tenant: Tenant,
    /// Whether switches run the programs themselves.
    pub(crate) inline: bool,
    /// What starts the P4 VM, and its command.
    pub(crate) launcher: Arc<dyn Launcher>,
    pub(crate) command: P4VmCommand,
    pub(crate) attachment: Arc<dyn Attachment>,
    pub(crate) cgroup: Option<Arc<Cgroup>>,
    /// The folder for the daemon's persistent state, if there is one.
    pub(crate) state: Option<PathBuf>,
    /// Programs that commands loaded in place of the configuration's.
    pub(crate) programs: Arc<ProgramStore>,
    /// Whether the switch knows the tenant; if not, [`Supervisor::connect`] connects the P4 VM to the lanes.
    pub(crate) connected: bool,
    /// Where the daemon before left its P4 VMs, and this one leaves its own.
    pub(crate) adoption: Arc<AdoptionFolder>,
    /// How long the P4 VM goes on without a daemon.
    pub(crate) adoption_time: Duration,
}

/// Reason why a command has no answer.
const GONE: &str = "the supervisor of this tenant's P4 VM has ended; restart the daemon";

/// The handle of a supervisor's thread.
pub(crate) struct Supervisor {
    commands: Sender<Command>,
    doorbell: Arc<Doorbell>,
    report: Arc<Mutex<SupervisorReport>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Supervisor {
    /// Starts a tenant's supervisor. Creates the tenant's pages if that is possible already.
    pub(crate) fn start(config: SupervisorConfig) -> std::io::Result<Self> {
        let refusals = vec![[None, None]; config.tenant.vms.len()];
        let report = Arc::new(Mutex::new(SupervisorReport { refusals, ..SupervisorReport::default() }));
        let (commands, requests) = channel();
        let (doorbell, wakeup) = Doorbell::pair()?;
        let thread = thread::SupervisorThread::new(config, requests, wakeup, Arc::clone(&report));
        let thread = std::thread::Builder::new().name(thread.name()).spawn(|| thread.run())?;
        Ok(Self { commands, doorbell: Arc::new(doorbell), report, thread: Mutex::new(Some(thread)) })
    }

    /// Returns the doorbell that makes the supervisor check the lanes at once.
    pub(crate) fn doorbell(&self) -> Arc<Doorbell> {
        Arc::clone(&self.doorbell)
    }

    /// Returns the present report.
    pub(crate) fn report(&self) -> MutexGuard<'_, SupervisorReport> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces a program, has it recorded, and waits for the result.
    pub(crate) fn load(
        &self,
        vm: u16,
        direction: Direction,
        objects: Vec<Vec<u8>>,
        recorded: Recorded,
    ) -> Result<Loaded, String> {
        let (answer, result) = channel();
        self.send(Command::Load { vm, direction, objects, recorded, answer });
        result.recv().map_err(|_| GONE.to_owned())?
    }

    /// Has the P4 VM verify a program. Returns its digest.
    pub(crate) fn check_program(&self, vm: u16, direction: Direction, objects: Vec<Vec<u8>>) -> Answer {
        let (answer, result) = channel();
        self.send(Command::Check { vm, direction, objects, answer });
        result.recv().map_err(|_| GONE.to_owned())?
    }

    /// Sends a command. One to a thread that has ended is dropped, with the sender of its answer.
    fn send(&self, command: Command) {
        let _ = self.commands.send(command);
        self.doorbell.ring();
    }

    /// Prepares a change and waits for the result. Returns the change if the P4 VM does not answer in time.
    pub(crate) fn prepare(&self, change: TenantChange) -> Result<Prepared, Box<TenantChange>> {
        let (gate, (begun, has_begun), (answer, result)) = (Arc::new(Gate::default()), channel(), channel());
        let change = Box::new(change);
        let again = change.clone();
        self.send(Command::Prepare { change, gate: Arc::clone(&gate), begun, answer });
        if has_begun.recv_timeout(BEGIN_TIMEOUT).is_err() && gate.give_up() {
            return Err(again);
        }
        result.recv().map_err(|_| again)
    }

    /// Forgets the prepared change.
    pub(crate) fn discard(&self) {
        self.send(Command::Discard);
    }

    /// Makes the prepared change, but for VMs that are removed, and waits for it.
    pub(crate) fn commit(&self) {
        self.wait_for(Command::Commit);
    }

    /// Removes the VMs that are no longer configured, and waits for it.
    pub(crate) fn finish(&self) {
        self.wait_for(Command::Finish);
    }

    fn wait_for(&self, command: fn(Sender<()>) -> Command) {
        let (answer, result) = channel();
        self.send(command(answer));
        // An error means that the thread has ended.
        let _ = result.recv();
    }

    /// Gives the tenant a new configuration, once its P4 VM has answered or was replaced.
    pub(crate) fn adopt(&self, change: Box<TenantChange>) {
        self.send(Command::Adopt(change));
    }

    /// Connects the P4 VM to the lanes: the switch knows the tenant now.
    pub(crate) fn connect(&self) {
        self.send(Command::Connect);
    }

    /// Ends the P4 VM and the supervisor's thread, and waits for both.
    pub(crate) fn stop(&self) {
        self.request_stop();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }

    /// Requests the end without waiting for it, so that several supervisors end at once.
    pub(crate) fn request_stop(&self) {
        self.send(Command::Stop);
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod life_tests;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_program_leaves_packets_to_program_or_policy() {
        let says = |report: &SupervisorReport| report.meanwhile(0, Direction::Egress);
        let status = |program| {
            let egress = control::DirectionStatus { program, ..Default::default() };
            let vm = control::VmStatus { directions: [Default::default(), egress], ..Default::default() };
            Some(control::Status { vms: vec![vm], ..Default::default() })
        };
        let mut report = SupervisorReport { refusals: vec![[None, None]], ..SupervisorReport::default() };
        assert_eq!(says(&report), Meanwhile::Fail, "the P4 VM does not run");
        report.p4vm = status(Some([7; 32]));
        assert_eq!(says(&report), Meanwhile::PreviousProgram);
        report.p4vm = status(None);
        assert_eq!(says(&report), Meanwhile::NoProgram);
        report.refusals[0][1] = Some("refused".to_owned());
        assert_eq!(says(&report), Meanwhile::Fail, "a configured program is missing");
    }
}
