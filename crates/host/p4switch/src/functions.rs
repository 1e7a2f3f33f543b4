//! Placement `extern`: the program's functions that are marked with `@compartment` run in a P4 VM's process.
//!
//! ```text
//!   packet thread ──message──► channel ──► P4 VM: runs the function ──► channel ──answer──► packet thread
//!   functions: starts the P4 VM, gives it the functions and each packet thread a channel; does so again when
//!              it has ended
//! ```
//!
//! While the P4 VM is gone, calls have no answer ([`p4shield_switch::CallFail`]). Its sandbox, limits and
//! verifier are those of any P4 VM; it gets no file, no key and no packet.

use crate::api::FunctionsStatus;
use crate::desk::Desk;
use crate::order::Work;
use crate::surroundings::compartment_user;
use backon::BackoffBuilder as _;
use p4shield_abi::Direction;
use p4shield_channel::{Doorbell, Requester, create_channel};
use p4shield_compartment::{Compartment, Launcher as _, P4VmCommand, Processes, RESTART_PAUSES};
use p4shield_config::{DEFAULT_MEMORY, Tee};
use p4shield_control::{ClientError, Hello, Measure, PROTOCOL_VERSION, ProgramSlot, Request, Resources};
use p4shield_switch::{CallChannel, CallFail, CallPort, CallSettings, NoCompartment};
use p4shield_text::chain;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The name of the program in the P4 VM, and of its only VM.
const NAME: &str = "functions";
/// Longest time for a request; the P4 VM verifies a program in it.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time for the P4 VM to end in order.
const GRACE: Duration = Duration::from_secs(1);
/// Time between two looks whether the P4 VM runs.
const LOOK: Duration = Duration::from_millis(200);
/// A P4 VM that ran for so long starts at once when it ends.
const RUNS_WELL: Duration = Duration::from_secs(10);
/// Instructions that a function may execute for one message.
const BUDGET: u64 = 1 << 20;

/// Functions in a compartment, and what holds for packets that call them.
#[derive(Clone, Debug)]
pub struct FunctionsConfig {
    /// The binary, started as `BINARY p4vm ...`.
    pub binary: PathBuf,
    /// The objects: the compartment's program, and those of the functions.
    pub objects: Vec<Vec<u8>>,
    /// Bytes of the longest message to them.
    pub longest_message: usize,
    /// Measures of the sandbox that may be missing.
    pub allow_missing: Vec<Measure>,
    /// Longest time for an answer.
    pub deadline: Duration,
    /// The fate of packets without an answer.
    pub fail: CallFail,
}

/// A P4 VM with functions, and a channel to it for each packet thread.
pub struct Apart {
    p4vm: Box<dyn Compartment>,
    /// The channels, one for each packet thread.
    pub channels: Vec<CallChannel>,
}

impl Apart {
    /// Starts a P4 VM with these functions.
    ///
    /// # Errors
    /// It does not start, or refuses the functions.
    pub fn start(config: &FunctionsConfig, threads: usize) -> Result<Self, String> {
        let mut apart = Self { p4vm: launch(config)?, channels: Vec::new() };
        match apart.provide(config, threads) {
            Ok(()) => Ok(apart),
            Err(why) => {
                apart.end();
                Err(why)
            }
        }
    }

    /// Gives the P4 VM its functions, and makes the channels.
    fn provide(&mut self, config: &FunctionsConfig, threads: usize) -> Result<(), String> {
        let FunctionsConfig { objects, longest_message, .. } = config;
        let p4vm = &mut *self.p4vm;
        let failed = |e: ClientError| chain(&e);
        let name = NAME.to_owned();
        let vm = Request::SetVm { vm: 0, name, info: None, log: None, handshake: None, keys: None };
        p4vm.call(vm, &Resources::none(), PATIENCE).map_err(failed)?;
        let all: Vec<u8> = objects.concat();
        let mut resources = Resources::none();
        let load = Request::LoadProgram {
            slot: ProgramSlot::new(0, Direction::Ingress),
            name: NAME.to_owned(),
            objects: resources.add_bytes(&all),
            lengths: objects.iter().map(|o| o.len() as u32).collect(),
        };
        p4vm.call(load, &resources, PATIENCE).map_err(failed)?;
        self.channels =
            (0..threads).map(|n| attach(p4vm, n as u32, *longest_message)).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// Ends the P4 VM.
    pub fn end(self) {
        self.p4vm.end(Duration::ZERO);
    }
}

fn launch(config: &FunctionsConfig) -> Result<Box<dyn Compartment>, String> {
    let command = P4VmCommand {
        binary: config.binary.clone(),
        uid: compartment_user(),
        allow_missing: config.allow_missing.iter().map(|m| m.name().to_owned()).collect(),
        memory: DEFAULT_MEMORY,
        cpu: None,
        busy: false,
        delay: Duration::ZERO,
        machine: None,
        tee: Tee::None,
    };
    let hello = Hello {
        version: PROTOCOL_VERSION,
        tenant: "switch".to_owned(),
        door: None,
        no_program: 0,
        age_limit_ms: 1_000,
        log_interval_ms: 1_000,
        budget: BUDGET,
        min_epoch: 0,
    };
    Processes.start(&command, None, hello, &Resources::none()).map_err(|e| chain(&e))
}

/// The thread that keeps the P4 VM. Dropping it ends both.
pub(crate) struct Functions {
    stop: Arc<AtomicBool>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

/// The P4 VM's keeper.
struct Keeping {
    desk: Arc<Desk>,
    config: FunctionsConfig,
    stop: Arc<AtomicBool>,
    wake: Arc<OwnedFd>,
}

impl Functions {
    /// Starts the P4 VM, and the thread that keeps it. The packet threads execute orders meanwhile.
    ///
    /// # Errors
    /// The P4 VM does not start, or refuses the functions.
    pub(crate) fn start(desk: &Arc<Desk>, config: FunctionsConfig) -> Result<Self, String> {
        let failed = |e: std::io::Error| format!("cannot start the compartment's thread: {e}");
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let wake = Arc::new(wake.map_err(|e| failed(e.into()))?);
        let stop = Arc::new(AtomicBool::new(false));
        let keeping =
            Keeping { desk: Arc::clone(desk), config, stop: Arc::clone(&stop), wake: Arc::clone(&wake) };
        let first = keeping.begin()?;
        let builder = std::thread::Builder::new().name("functions".to_owned());
        let thread = builder.spawn(move || keeping.keep(first)).map_err(failed)?;
        Ok(Self { stop, wake, thread: Some(thread) })
    }
}

impl Drop for Functions {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // It has no panic to pass on that its end would change.
            let _ = thread.join();
        }
    }
}

impl Keeping {
    /// Starts the P4 VM and gives each packet thread a channel to it.
    fn begin(&self) -> Result<Box<dyn Compartment>, String> {
        let Apart { p4vm, channels } = Apart::start(&self.config, self.desk.threads.count())?;
        for (thread, channel) in channels.into_iter().enumerate() {
            if let Err(why) = self.set_calls(thread, Box::new(channel)) {
                p4vm.end(Duration::ZERO);
                return Err(why);
            }
        }
        let pid = p4vm.pid().as_raw_nonzero().get();
        self.note(|status| (status.pid, status.problem) = (Some(pid), None));
        Ok(p4vm)
    }

    /// Replaces a packet thread's way to the compartment.
    fn set_calls(&self, thread: usize, port: Box<dyn CallPort>) -> Result<(), String> {
        let FunctionsConfig { deadline, fail, .. } = self.config;
        let settings = Box::new(CallSettings { port, deadline, fail });
        self.desk.threads.execute_on(thread, Work::Calls(Some(settings))).map(drop)
    }

    /// Keeps the P4 VM running until the switch ends.
    fn keep(self, first: Box<dyn Compartment>) {
        let mut running = Some((first, Instant::now()));
        let mut pauses = RESTART_PAUSES.build();
        while !self.stop.load(Ordering::Relaxed) {
            let Some((mut p4vm, since)) = running.take() else {
                match self.begin() {
                    Ok(p4vm) => running = Some((p4vm, Instant::now())),
                    Err(why) => {
                        self.report(why);
                        self.pause(pauses.next().unwrap_or(LOOK));
                    }
                }
                continue;
            };
            if !p4vm.wait(self.wake.as_fd(), LOOK) {
                running = Some((p4vm, since));
                continue;
            }
            self.lose(p4vm.end(Duration::ZERO));
            if since.elapsed() > RUNS_WELL {
                pauses = RESTART_PAUSES.build();
            }
            self.pause(pauses.next().unwrap_or(LOOK));
        }
        if let Some((p4vm, _)) = running {
            p4vm.end(GRACE);
        }
    }

    /// Notes that the P4 VM has ended. Packets that wait for it get no answer.
    fn lose(&self, how: String) {
        for thread in 0..self.desk.threads.count() {
            // The switch is about to end if a packet thread does not answer.
            let _ = self.set_calls(thread, Box::new(NoCompartment));
        }
        self.note(|status| (status.pid, status.restarts) = (None, status.restarts + 1));
        self.report(format!("it has ended: {how}"));
    }

    fn report(&self, why: String) {
        tracing::warn!(event = "functions_ended", "the compartment with the program's functions: {why}");
        let problem = format!("the compartment with the program's functions: {why}; it is started again");
        self.note(|status| status.problem = Some(problem));
    }

    fn note(&self, change: impl FnOnce(&mut FunctionsStatus)) {
        let mut functions = self.desk.functions.lock().unwrap_or_else(PoisonError::into_inner);
        change(functions.get_or_insert_default());
    }

    /// Waits, but not longer than the switch runs.
    fn pause(&self, time: Duration) {
        let until = Instant::now() + time;
        while !self.stop.load(Ordering::Relaxed) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10).min(time));
        }
    }
}

/// Makes a channel between the P4 VM and a packet thread.
fn attach(p4vm: &mut dyn Compartment, number: u32, longest_message: usize) -> Result<CallChannel, String> {
    let geometry = CallChannel::geometry(longest_message);
    let memory = create_channel("p4shield-calls", geometry).map_err(|e| chain(&e))?;
    let (doorbell, theirs) = Doorbell::pair().map_err(|e| e.to_string())?;
    let file = memory.fd().ok_or("the channel has no descriptor")?;
    let mut resources = Resources::none();
    let request = Request::AttachChannel {
        channel: number,
        geometry: geometry.into(),
        memory: resources.add(&file),
        doorbell: resources.add(&theirs),
        packets: None,
    };
    p4vm.call(request, &resources, PATIENCE).map_err(|e| chain(&e))?;
    let requester = Requester::new(memory, geometry).map_err(|e| chain(&e))?;
    Ok(CallChannel::new(requester, doorbell))
}
