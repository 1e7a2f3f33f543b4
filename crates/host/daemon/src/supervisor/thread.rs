//! The supervisor's thread: starts the P4 VM, checks it periodically, replaces it, and loads programs.

use super::ANSWER_TIMEOUT;
use super::bundles::{self, BundleVersions, LoadedProgram};
use super::channels::Channels;
use super::cores::Cores;
use super::epochs::Epochs;
use super::inline::{InlineSwitches, VerifiedProgram};
use super::limits::limits;
use super::pages::{Page, PageError, pages_advice};
use super::plan::Plan;
use super::provision::{self, Objects, Pages};
use super::{Answer, Command, SupervisorConfig, SupervisorReport};
use crate::adoption::Handover;
use crate::programs::ProgramKey;
use crate::rotation::keys::Keys;
use crate::status::State;
use backon::{BackoffBuilder, ExponentialBackoff};
use p4shield_abi::Direction;
use p4shield_bundle::PublicKey;
use p4shield_channel::Doorbell;
use p4shield_compartment::{Compartment, is_recoverable};
use p4shield_compartment::{Group, RESTART_PAUSES, reap_failed_starts, reap_last_starts};
use p4shield_control::{ClientError, Hello, ProgramSlot, Reply, Request, Resources};
use p4shield_text::chain;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Running time after which the pauses begin anew.
const STABLE: Duration = Duration::from_secs(30);
/// Commands between two checks of a P4 VM; further ones wait for the next.
const MAX_COMMANDS: usize = 64;
/// Time for the P4 VM to publish its last log records after the request to stop.
const GRACE: Duration = Duration::from_secs(1);

/// Time for a process to end whose channels a mediator found closed: the kernel closes them first.
const ENDING: Duration = Duration::from_millis(50);
const ENDED: &str = "its process ended";

/// The state of the thread.
pub(super) struct SupervisorThread {
    pub(super) config: SupervisorConfig,
    commands: Receiver<Command>,
    doorbell: Doorbell,
    pub(super) report: Arc<Mutex<SupervisorReport>>,
    /// By VM: info page and log page. Empty until all of them exist.
    pub(super) pages: Vec<Pages>,
    /// By VM and direction: the configured program, with its digest once it is verified.
    pub(super) programs: Vec<[VerifiedProgram; 2]>,
    pub(super) epochs: Epochs,
    group: Option<Group>,
    pub(super) process: Option<Box<dyn Compartment>>,
    started: Instant,
    /// The pauses before further starts, and the current one.
    pauses: ExponentialBackoff,
    pause: Duration,
    pub(super) channels: Channels,
    cores: Cores,
    /// Switches that run the programs themselves; empty unless the placement is `inline`.
    pub(super) switches: InlineSwitches,
    /// The tenant's keys, with those that the running P4 VM has.
    pub(super) keys: Keys,
    /// A change of the configuration that is prepared.
    pub(super) plan: Option<Plan>,
    /// VMs that are no longer configured and that the P4 VM still has.
    pub(super) leaving: Vec<u16>,
    pub(super) handover: Handover,
    /// Which versions of bundles ran.
    pub(super) versions: BundleVersions,
    /// The key of bundles that the running P4 VM has.
    pub(super) pinned: Option<PublicKey>,
}

impl SupervisorThread {
    pub(super) fn new(
        config: SupervisorConfig,
        commands: Receiver<Command>,
        doorbell: Doorbell,
        report: Arc<Mutex<SupervisorReport>>,
    ) -> Self {
        let mut thread = Self {
            programs: vec![Default::default(); config.tenant.vms.len()],
            epochs: Epochs::new(&config.tenant.name, config.state.as_deref()),
            group: None,
            process: None,
            started: Instant::now(),
            pauses: RESTART_PAUSES.build(),
            pause: Duration::ZERO,
            channels: Channels::default(),
            cores: Cores::default(),
            switches: InlineSwitches::default(),
            keys: Keys::default(),
            plan: None,
            leaving: Vec::new(),
            handover: Handover::default(),
            versions: BundleVersions::open(&config.tenant.name, config.state.as_deref()),
            pinned: None,
            config,
            commands,
            doorbell,
            report,
            pages: Vec::new(),
        };
        thread.limit_group();
        thread.read_programs();
        // Agents and auditors may open the pages as soon as the daemon is ready. The start of the P4 VM tries
        // again and reports the error.
        let _ = thread.create_pages();
        thread
    }

    pub(super) fn name(&self) -> String {
        format!("p4vm-{}", self.config.tenant.name)
    }

    pub(super) fn report(&self) -> MutexGuard<'_, SupervisorReport> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns why the program of a direction does not run.
    pub(super) fn refusal(&self, vm: usize, direction: Direction) -> Option<String> {
        self.report().refusals.get(vm)?[direction as usize].clone()
    }

    /// Creates the cgroup of the P4 VM, or sets its limits.
    pub(super) fn limit_group(&mut self) {
        let t = &self.config.tenant;
        let group = self.config.cgroup.as_ref().map(|c| c.group(&self.name(), &limits(t)));
        match group.transpose() {
            Ok(group) => self.group = group,
            Err(error) => {
                tracing::warn!(
                    event = "cgroup_failed",
                    tenant = t.name,
                    %error,
                    "cannot create a cgroup for this P4 VM"
                )
            }
        }
    }

    /// Creates the tenant's pages, unless they exist.
    pub(super) fn create_pages(&mut self) -> Result<(), PageError> {
        if self.pages.is_empty() {
            self.pages = self.config.tenant.vms.iter().map(Page::of).collect::<Result<_, PageError>>()?;
        }
        Ok(())
    }

    /// Reads the object files that the configuration names.
    fn read_programs(&mut self) {
        let vms = self.config.tenant.vms.clone();
        for (v, vm) in vms.iter().enumerate() {
            for direction in Direction::ALL {
                let d = direction as usize;
                let key = ProgramKey::new(&self.config.tenant.name, &vm.name, direction);
                match self.config.programs.objects(&key, &vm.programs[d]) {
                    Ok(objects) => self.programs[v][d] = VerifiedProgram::new(objects, None),
                    // The watcher logs it.
                    Err(error) => self.report().refusals[v][d] = Some(error),
                }
            }
        }
    }

    /// Runs until the command to stop.
    pub(super) fn run(mut self) {
        loop {
            if self.process.is_none() {
                self.start();
            }
            let interval = self.config.command.check_interval();
            let wait = if self.process.is_some() { interval } else { self.pause };
            let ended = self.sleep(wait);
            if !self.run_commands() {
                break;
            }
            if ended {
                self.replace(ENDED, Duration::ZERO);
            } else {
                self.check();
            }
        }
        self.config.attachment.detach_channels(self.config.index);
        if let Some(process) = self.process.take() {
            let how = process.end(GRACE);
            tracing::info!(event = "p4vm_stopped", tenant = self.config.tenant.name, "P4 VM stopped: {how}");
        }
        self.forget_process();
        reap_last_starts();
        let mut report = self.report();
        (report.state, report.pid, report.p4vm) = (State::Stopped, None, None);
    }

    /// Sets the pause before the next start. The pauses never end.
    fn lengthen_pause(&mut self) {
        self.pause = self.pauses.next().unwrap_or(self.pause);
    }

    /// Sleeps for `time`, or until the doorbell rings or the P4 VM ends. Returns whether the P4 VM ended.
    fn sleep(&mut self, time: Duration) -> bool {
        let ended = match &mut self.process {
            Some(process) => process.wait(self.doorbell.fd(), time),
            None => {
                let timeout = rustix::event::Timespec::try_from(time).ok();
                let mut fds = [rustix::event::PollFd::new(&self.doorbell, rustix::event::PollFlags::IN)];
                let _ = rustix::event::poll(&mut fds, timeout.as_ref());
                false
            }
        };
        self.doorbell.drain();
        ended
    }

    /// Returns whether the P4 VM ends within [`ENDING`].
    fn is_ending(&mut self) -> bool {
        let end = Instant::now() + ENDING;
        let left = || Some(end.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero());
        std::iter::from_fn(left).any(|left| self.sleep(left))
    }

    /// Executes the pending commands. Returns false after the command to stop.
    fn run_commands(&mut self) -> bool {
        // Clients that ask without end must not keep the thread from its checks.
        for _ in 0..MAX_COMMANDS {
            match self.commands.try_recv() {
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => return false,
                Err(TryRecvError::Empty) => return true,
                Ok(command) => self.execute(command),
            }
        }
        true
    }

    /// Executes a command. An error of sending its answer means that the caller no longer waits.
    fn execute(&mut self, command: Command) {
        match command {
            Command::Load { vm, direction, objects, recorded, answer } => {
                let _ = answer.send(self.replace_program(vm, direction, objects).map(recorded));
            }
            Command::Check { vm, direction, objects, answer } => {
                let _ = answer.send(self.check_program(ProgramSlot::new(vm, direction), &objects));
            }
            Command::Ask { request, answer } => {
                let _ = answer.send(self.ask(request));
            }
            Command::Rotate { order, answer } => {
                let _ = answer.send(self.rotate(*order));
            }
            Command::Prepare { change, gate, begun, answer } => {
                self.check_answers();
                if gate.begin() {
                    let _ = begun.send(());
                    let _ = answer.send(self.prepare(*change));
                }
            }
            Command::Commit(answer) => {
                self.commit();
                let _ = answer.send(());
            }
            Command::Finish(answer) => {
                self.finish();
                let _ = answer.send(());
            }
            Command::Discard => self.discard(),
            Command::Adopt(change) => self.adopt(*change),
            Command::Connect => {
                self.config.connected = true;
                self.check();
            }
            // `run_commands` ends the thread.
            Command::Stop => {}
        }
    }

    /// Sends a request to what runs the programs.
    fn ask(&mut self, request: Request) -> Result<Reply, String> {
        let reply = super::ask::ask(&self.config, self.process.as_deref_mut(), &self.switches, request);
        reply.map_err(|error| {
            error.unwrap_or_else(|e| {
                self.replace(&e.to_string(), Duration::ZERO);
                format!("{e}; the daemon replaces the P4 VM")
            })
        })
    }

    /// Replaces a P4 VM that does not answer.
    fn check_answers(&mut self) {
        let Some(process) = self.process.as_deref_mut() else { return };
        if let Err(e) = process.call(Request::Status, &Resources::none(), ANSWER_TIMEOUT) {
            self.replace(&e.to_string(), Duration::ZERO);
        }
    }

    fn start(&mut self) {
        reap_failed_starts();
        let adopted = self.adopt_process();
        let verb = if adopted.is_some() { "adopted" } else { "runs" };
        match adopted.map_or_else(|| self.start_process(), Ok) {
            Ok(process) => {
                let (pid, sandbox) = (process.pid().as_raw_pid(), process.sandbox().clone());
                self.started = Instant::now();
                self.process = Some(process);
                self.give_keys();
                // The first check comes before the state becomes `Running`.
                self.check();
                if self.process.is_some() {
                    tracing::info!(
                        event = "p4vm_runs",
                        tenant = self.config.tenant.name,
                        pid,
                        "P4 VM {verb}"
                    );
                    let mut report = self.report();
                    report.adopted = verb == "adopted";
                    (report.state, report.pid, report.sandbox) = (State::Running, Some(pid), Some(sandbox));
                }
            }
            Err(error) => {
                self.lengthen_pause();
                tracing::error!(
                    event = "p4vm_start_failed",
                    tenant = self.config.tenant.name,
                    "P4 VM does not start: {error}"
                );
                self.report().error = Some(error);
            }
        }
    }

    /// Starts a P4 VM and provisions it; its channels come last. Without its pages no P4 VM starts: its
    /// programs would judge without the VM's information, and no log would record their verdicts.
    fn start_process(&mut self) -> Result<Box<dyn Compartment>, String> {
        self.create_pages().map_err(|e| pages_advice(&e))?;
        let group = self.config.command.page_group();
        let pages = self.pages.iter().flatten().flatten();
        pages.into_iter().try_for_each(|page| page.grant(group)).map_err(|e| pages_advice(&e))?;
        // Lanes may have channels to a P4 VM of the daemon before.
        self.config.attachment.detach_channels(self.config.index);
        self.forget_process();
        self.keys.refresh(&self.config.tenant)?;
        // With placement `inline`, switches have the keys and keep them.
        if !self.config.inline {
            self.keys.forget_given();
        }
        self.pinned = bundles::pinned_key(&self.config.tenant)?;
        let hello = provision::hello(&self.config, self.epochs.reserve());
        let tenant = &self.config.tenant.name;
        let door = self.config.adoption.listen(&self.name_of_record()).inspect_err(|error| {
            tracing::warn!(event = "adoption_unavailable", tenant, %error, "this P4 VM ends with the daemon");
        });
        let mut resources = Resources::none();
        let hello = Hello { door: door.as_ref().ok().map(|door| resources.add(door)), ..hello };
        let SupervisorConfig { launcher, command, .. } = &self.config;
        let started = launcher.start(command, self.group.as_ref(), hello, &resources);
        let mut process = started.map_err(|e| chain(&e))?;
        match self.provision_p4vm(&mut *process) {
            Ok(()) => Ok(process),
            Err(e) => Err(format!("{}; {}", chain(&e), process.end(Duration::ZERO))),
        }
    }

    fn provision_p4vm(&mut self, process: &mut dyn Compartment) -> Result<(), ClientError> {
        // A log has one writer: with placement `inline` that is a switch.
        let pages = (!self.config.inline).then_some(self.pages.as_slice());
        bundles::pin(process, self.pinned.as_ref())?;
        provision::set_vms(process, &self.config, &mut self.keys, pages)?;
        provision::expect_programs(process, &self.config)?;
        self.epochs.settle();
        for v in 0..self.programs.len() {
            for direction in Direction::ALL {
                if !self.programs[v][direction as usize].objects.is_empty() {
                    self.load_due_program(process, v, direction)?;
                }
            }
        }
        self.channels.clear();
        self.leaving.clear();
        self.channels.update(&self.config, process).map(|refusal| self.report().channels = refusal)
    }

    /// Loads a program. A refusal is reported.
    pub(super) fn load_due_program(
        &mut self,
        process: &mut dyn Compartment,
        v: usize,
        direction: Direction,
    ) -> Result<(), ClientError> {
        let d = direction as usize;
        let objects = std::mem::take(&mut self.programs[v][d].objects);
        let loaded = self.load_program(process, ProgramSlot::new(v as u16, direction), &objects);
        self.programs[v][d].objects = objects;
        let refusal = match loaded {
            Ok(loaded) => {
                self.programs[v][d].digest = loaded.digest;
                None
            }
            Err(e) if is_recoverable(&e) => Some(e.to_string()),
            Err(e) => return Err(e),
        };
        self.report().refusals[v][direction as usize] = refusal;
        Ok(())
    }

    /// Checks the P4 VM: its faults at the mediator, the lanes' channels, and its status.
    pub(super) fn check(&mut self) {
        if let Some(fault) =
            self.process.as_ref().and_then(|_| self.config.attachment.fault(self.config.index))
        {
            let why = if self.is_ending() { ENDED } else { &fault };
            return self.replace(why, Duration::ZERO);
        }
        let Some(process) = self.process.as_deref() else { return };
        self.cores.update(&self.config, process.pid(), &self.report);
        let Some(process) = self.process.as_deref_mut() else { return };
        match self.channels.update(&self.config, process) {
            Ok(refusal) => self.report().channels = refusal,
            Err(e) => return self.replace(&chain(&e), Duration::ZERO),
        }
        let Some(process) = self.process.as_deref_mut() else { return };
        match process.call(Request::Status, &Resources::none(), ANSWER_TIMEOUT) {
            Ok(Reply::Status(status)) => {
                let problem = self.update_switches();
                // The status of interest is that of the slot where programs judge packets.
                let status = self.switches.status(&self.config).unwrap_or(*status);
                let keys = self.observe_keys(&status);
                let mut report = self.report();
                (report.inline, report.keys, report.p4vm) = (problem, keys, Some(status));
            }
            Ok(_) => self.replace("it sent an answer of the wrong kind", Duration::ZERO),
            Err(e) => self.replace(&e.to_string(), Duration::ZERO),
        }
        self.bequeath();
        if self.started.elapsed() > STABLE {
            self.pauses = RESTART_PAUSES.build();
        }
    }

    /// Provisions new switches with placement `inline`. Returns an error or a note, if there is one.
    fn update_switches(&mut self) -> Option<String> {
        let Self { config, epochs, keys, pages, programs, .. } = self;
        self.switches.update(config, (epochs, keys), pages, programs)
    }

    /// Ends the P4 VM; the next round starts another. Until then the tenant's policy applies to its packets.
    pub(super) fn replace(&mut self, why: &str, grace: Duration) {
        let Some(process) = self.process.take() else { return };
        self.config.attachment.detach_channels(self.config.index);
        let how = process.end(grace);
        self.forget_process();
        let text = format!("{why}; {how}");
        tracing::warn!(
            event = "p4vm_replaced",
            tenant = self.config.tenant.name,
            "P4 VM is replaced: {text}"
        );
        {
            let mut report = self.report();
            report.state = State::Restarting;
            (report.pid, report.p4vm) = (None, None);
            report.restarts += 1;
            report.error = Some(text);
        }
        // A P4 VM that keeps failing is restarted after ever longer pauses.
        if self.started.elapsed() < STABLE {
            self.lengthen_pause();
            self.sleep(self.pause);
        }
    }

    /// Ends a healthy P4 VM; the next round starts another at once. Until then the tenant's policy applies to
    /// its packets.
    pub(super) fn restart(&mut self, why: &str) {
        let Some(process) = self.process.take() else { return };
        self.config.attachment.detach_channels(self.config.index);
        let how = process.end(GRACE);
        self.forget_process();
        tracing::info!(
            event = "p4vm_restarted",
            tenant = self.config.tenant.name,
            "P4 VM is restarted: {why}; {how}"
        );
        let mut report = self.report();
        report.state = State::Restarting;
        (report.pid, report.p4vm) = (None, None);
    }

    /// Loads a program and keeps it for the next P4 VM. A refused program changes nothing.
    fn replace_program(&mut self, vm: u16, direction: Direction, objects: Objects) -> Answer {
        let (v, d) = (usize::from(vm), direction as usize);
        if self.programs.get(v).is_none() {
            return Err(format!("there is no VM {vm}"));
        }
        let mut process = self.process.take().ok_or("the P4 VM does not run; see `p4shield status`")?;
        let slot = ProgramSlot::new(vm, direction);
        let loaded = self.load_program(&mut *process, slot, &objects);
        self.process = Some(process);
        match loaded {
            Ok(LoadedProgram { digest, text }) => {
                self.programs[v][d] = VerifiedProgram::new(objects, digest);
                self.switches
                    .load(&self.config, slot, &self.programs[v][d])
                    .map_err(|e| format!("{text} is verified, but a switch does not run it: {e}"))?;
                self.report().refusals[v][d] = None;
                self.check();
                Ok(text)
            }
            Err(e) if is_recoverable(&e) => Err(e.to_string()),
            Err(e) => {
                self.replace(&e.to_string(), Duration::ZERO);
                Err(format!("{e}; the daemon replaces the P4 VM, which runs the previous program"))
            }
        }
    }
}
