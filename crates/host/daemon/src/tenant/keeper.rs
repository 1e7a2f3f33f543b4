//! The keeper's thread.

use super::channels::Channels;
use super::epochs::Epochs;
use super::furnish::{self, Objects, Pages};
use super::inline::{Proven, Switches};
use super::pages::{Page, PageError};
use super::process::{ANSWER, Process, in_step, reap_strays};
use super::{AS_BEFORE, Answer, Charge, Command, Known, Load};
use crate::cgroup::Group;
use crate::config::Vm;
use crate::status::State;
use crate::text::{chain, hex};
use p4shield_abi::Direction;
use p4shield_channel::Doorbell;
use p4shield_control::{ClientError, ProgramSlot, Reply, Request};
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time between two looks at a P4 VM.
const TICK: Duration = Duration::from_millis(200);
/// Pause before the first restart; each further one in a row doubles it.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// A P4 VM that ran for so long has earned a first pause again.
const PROVEN: Duration = Duration::from_secs(30);
/// Time to publish last log records when it is told to stop.
const GRACE: Duration = Duration::from_secs(1);

pub(super) struct Work {
    charge: Charge,
    orders: Receiver<Command>,
    bell: Doorbell,
    known: Arc<Mutex<Known>>,
    /// By VM: info page and log page. Empty until all could be made.
    pages: Vec<Pages>,
    /// By VM and direction: what is to run, with its digest once it was verified.
    programs: Vec<[Proven; 2]>,
    epochs: Epochs,
    group: Option<Group>,
    process: Option<Process>,
    started: Instant,
    pause: Duration,
    channels: Channels,
    /// Switches that run the programs themselves; none unless the placement is `inline`.
    switches: Switches,
}

impl Work {
    pub(super) fn new(
        charge: Charge,
        orders: Receiver<Command>,
        bell: Doorbell,
        known: Arc<Mutex<Known>>,
    ) -> Self {
        let mut work = Self {
            programs: vec![Default::default(); charge.tenant.vms.len()],
            epochs: Epochs::new(&charge.tenant.name, charge.state.as_deref()),
            group: None,
            process: None,
            started: Instant::now(),
            pause: FIRST_PAUSE,
            channels: Channels::default(),
            switches: Switches::default(),
            charge,
            orders,
            bell,
            known,
            pages: Vec::new(),
        };
        work.make_group();
        work.read_programs();
        // Agents and auditors may look for them as soon as the daemon says that it is there. What could not be made is
        // tried again, and told, when the P4 VM is started.
        let _ = work.make_pages();
        work
    }

    pub(super) fn name(&self) -> String {
        format!("keeper-{}", self.charge.tenant.name)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn make_group(&mut self) {
        let t = &self.charge.tenant;
        let group = self.charge.cgroup.as_ref().map(|c| c.group(&t.name, t.memory, t.cpu_percent));
        match group.transpose() {
            Ok(group) => self.group = group,
            Err(error) => tracing::warn!(tenant = t.name, %error, "no cgroup for this P4 VM"),
        }
    }

    /// Makes the tenant's pages, unless they have been made.
    fn make_pages(&mut self) -> Result<(), PageError> {
        if self.pages.is_empty() {
            let pages = |vm: &Vm| {
                let info = vm.info_page.as_ref().map(|p| Page::info(p, vm.page_owner)).transpose()?;
                let log = vm.log_page.as_ref().map(|p| Page::log(p, vm.page_owner)).transpose()?;
                Ok([info, log])
            };
            self.pages = self.charge.tenant.vms.iter().map(pages).collect::<Result<_, PageError>>()?;
        }
        Ok(())
    }

    /// Reads the objects that the configuration names.
    fn read_programs(&mut self) {
        let vms = self.charge.tenant.vms.clone();
        for (v, vm) in vms.iter().enumerate() {
            for direction in Direction::ALL {
                let d = direction as usize;
                match crate::text::read_objects(&vm.programs[d]) {
                    Ok(objects) => self.programs[v][d] = Proven { objects, digest: None },
                    Err(error) => {
                        let tenant = &self.charge.tenant.name;
                        tracing::error!(
                            tenant,
                            vm = vm.name,
                            direction = direction.name(),
                            error,
                            "no program is loaded"
                        );
                        self.known().refusals[v][d] = Some(error);
                    }
                }
            }
        }
    }

    /// Until it is told to stop.
    pub(super) fn run(mut self) {
        loop {
            if self.process.is_none() {
                self.try_start();
            }
            let wait = if self.process.is_some() { TICK } else { self.pause };
            let ended = self.sleep(wait);
            if !self.obey() {
                break;
            }
            if ended {
                self.replace("its process ended", Duration::ZERO);
            } else {
                self.look();
            }
        }
        self.charge.attachment.detach(self.charge.index);
        if let Some(process) = self.process.take() {
            let how = process.end(GRACE);
            tracing::info!(tenant = self.charge.tenant.name, "P4 VM stopped: {how}");
        }
        let mut known = self.known();
        (known.state, known.pid, known.p4vm) = (State::Stopped, None, None);
    }

    /// Sleeps for `time`, or until there is something to do. True if the P4 VM ended.
    fn sleep(&mut self, time: Duration) -> bool {
        let ended = match &mut self.process {
            Some(process) => process.wait(self.bell.fd(), time),
            None => {
                let timeout = rustix::event::Timespec::try_from(time).ok();
                let mut fds = [rustix::event::PollFd::new(&self.bell, rustix::event::PollFlags::IN)];
                let _ = rustix::event::poll(&mut fds, timeout.as_ref());
                false
            }
        };
        self.bell.drain();
        ended
    }

    /// Carries out commands. False if the last one was to stop.
    fn obey(&mut self) -> bool {
        loop {
            match self.orders.try_recv() {
                Ok(Command::Load { vm, direction, objects, load, answer }) => {
                    let result = self.replace_program(vm, direction, objects, load);
                    // Whoever asked may have gone; what was asked is done all the same.
                    let _ = answer.send(result);
                }
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => return false,
                Err(TryRecvError::Empty) => return true,
            }
        }
    }

    fn try_start(&mut self) {
        reap_strays();
        match self.start() {
            Ok(process) => {
                let (pid, sandbox) = (process.pid.as_raw_pid(), process.sandbox.clone());
                self.started = Instant::now();
                self.process = Some(process);
                // So that what is told to run has been seen to.
                self.look();
                if self.process.is_some() {
                    tracing::info!(tenant = self.charge.tenant.name, pid, "P4 VM judges packets");
                    let mut known = self.known();
                    (known.state, known.pid, known.sandbox) = (State::Running, Some(pid), Some(sandbox));
                }
            }
            Err(error) => {
                self.pause = (self.pause * 2).min(LONGEST_PAUSE);
                tracing::error!(tenant = self.charge.tenant.name, "P4 VM does not start: {error}");
                self.known().error = Some(error);
            }
        }
    }

    /// Starts a P4 VM and tells it everything. Its channel is attached last. There is none without its pages: what
    /// reads a VM's information would decide without it, and what it decides would not be recorded.
    fn start(&mut self) -> Result<Process, String> {
        self.make_pages().map_err(|e| pages_advice(&e))?;
        let (hello, key) = furnish::hello(&self.charge, self.epochs.next())?;
        let key = key.as_ref().map(AsFd::as_fd);
        let mut process =
            Process::start(&self.charge.launch, self.group.as_ref(), hello, key).map_err(|e| chain(&e))?;
        match self.furnish(&mut process) {
            Ok(()) => Ok(process),
            Err(e) => Err(format!("{}; {}", chain(&e), process.end(Duration::ZERO))),
        }
    }

    fn furnish(&mut self, process: &mut Process) -> Result<(), ClientError> {
        // A log has one writer: where a switch runs the programs, it has the pages.
        let pages = (!self.charge.inline).then_some(self.pages.as_slice());
        furnish::set_vms(process, &self.charge, pages)?;
        self.epochs.taken();
        for v in 0..self.programs.len() {
            for direction in Direction::ALL {
                let program = &mut self.programs[v][direction as usize];
                if program.objects.is_empty() {
                    continue;
                }
                let slot = ProgramSlot::new(v as u16, direction);
                let loaded = furnish::load(process, slot, &program.objects, None);
                let refusal = match loaded {
                    Ok(digest) => {
                        program.digest = digest;
                        None
                    }
                    Err(e) if in_step(&e) => Some(e.to_string()),
                    Err(e) => return Err(e),
                };
                self.known().refusals[v][direction as usize] = refusal;
            }
        }
        self.channels.forget();
        self.channels.follow(&self.charge, process).map(|refusal| self.known().channels = refusal)
    }

    /// Asks the P4 VM how it is, and the mediator whether it behaves.
    fn look(&mut self) {
        if let Some(fault) =
            self.process.as_ref().and_then(|_| self.charge.attachment.fault(self.charge.index))
        {
            return self.replace(&fault, Duration::ZERO);
        }
        let Some(process) = &mut self.process else { return };
        match self.channels.follow(&self.charge, process) {
            Ok(refusal) => self.known().channels = refusal,
            Err(e) => return self.replace(&chain(&e), Duration::ZERO),
        }
        let Some(process) = &mut self.process else { return };
        match process.ask(Request::Status, &[], ANSWER) {
            Ok(Reply::Status(status)) => {
                let problem =
                    self.switches.follow(&self.charge, &mut self.epochs, &self.pages, &self.programs);
                let inline = self.switches.status(&self.charge);
                let mut known = self.known();
                known.inline = problem;
                // What judges packets is of interest.
                known.p4vm = Some(inline.unwrap_or(*status));
            }
            Ok(_) => self.replace("it gave an answer that does not fit", Duration::ZERO),
            Err(e) => self.replace(&e.to_string(), Duration::ZERO),
        }
        if self.started.elapsed() > PROVEN {
            self.pause = FIRST_PAUSE;
        }
    }

    /// Ends the P4 VM; the next round starts another. Until then its packets get the tenant's policy.
    fn replace(&mut self, why: &str, grace: Duration) {
        let Some(process) = self.process.take() else { return };
        self.charge.attachment.detach(self.charge.index);
        let how = process.end(grace);
        let text = format!("{why}; {how}");
        tracing::warn!(tenant = self.charge.tenant.name, "P4 VM is replaced: {text}");
        {
            let mut known = self.known();
            known.state = State::Restarting;
            (known.pid, known.p4vm) = (None, None);
            known.restarts += 1;
            known.error = Some(text);
        }
        // A first restart is immediate, a P4 VM that keeps failing is tried ever less often.
        if self.started.elapsed() < PROVEN {
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
            self.sleep(self.pause);
        }
    }

    /// Loads a program now, and remembers it for the next P4 VM; one that is refused changes nothing.
    fn replace_program(
        &mut self,
        vm: u16,
        direction: Direction,
        objects: Objects,
        load_when: Load,
    ) -> Answer {
        let (v, d) = (usize::from(vm), direction as usize);
        if self.programs.get(v).is_none() {
            return Err(format!("there is no VM {vm}"));
        }
        // What was refused is tried again: the P4 VM may not have been what it was refused for.
        let runs = self.programs[v][d].objects == objects && self.known().refusals[v][d].is_none();
        if load_when == Load::IfChanged && runs {
            return Ok(AS_BEFORE.to_owned());
        }
        let process = self.process.as_mut().ok_or("the P4 VM does not run; see `p4shield status`")?;
        let slot = ProgramSlot::new(vm, direction);
        match furnish::load(process, slot, &objects, None) {
            Ok(digest) => {
                self.programs[v][d] = Proven { objects, digest };
                let text = digest.map_or_else(|| "no program".to_owned(), |digest| hex(&digest));
                self.switches
                    .load(&self.charge, slot, &self.programs[v][d])
                    .map_err(|e| format!("{text} was verified, and a switch does not run it: {e}"))?;
                self.known().refusals[v][d] = None;
                self.look();
                Ok(text)
            }
            Err(e) if in_step(&e) => Err(e.to_string()),
            Err(e) => {
                self.replace(&e.to_string(), Duration::ZERO);
                Err(format!("{e}; the P4 VM is replaced and runs what ran before"))
            }
        }
    }
}

/// Why pages could not be made, and what to do.
fn pages_advice(error: &PageError) -> String {
    format!(
        "its pages cannot be made: {}; free the path, or set another info_page or log_page and restart the daemon; until \
         then it is tried again",
        chain(error)
    )
}
