//! A P4 VM with the functions of a program, and the way to the thread that keeps it (`functions`).

use crate::surroundings::compartment_user;
use p4shield_abi::Direction;
use p4shield_channel::{Doorbell, Requester, create_channel};
use p4shield_compartment::{Compartment, Launcher as _, P4VmCommand, Processes};
use p4shield_config::{DEFAULT_MEMORY, Machine, Tee};
use p4shield_control::{
    ClientError, Hello, MAX_VALUES, Measure, PROTOCOL_VERSION, ProgramSlot, Request, Resources,
};
use p4shield_switch::{CallChannel, CallFail};
use p4shield_text::chain;
use rustix::fd::OwnedFd;
use std::fmt::Display;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Sender, SyncSender, sync_channel};
use std::time::Duration;

/// The name of the program in the P4 VM, and of its only VM.
const NAME: &str = "functions";
/// Where the program runs.
const SLOT: ProgramSlot = ProgramSlot::new(0, Direction::Ingress);
/// Longest time for a request; the P4 VM verifies a program in it.
const PATIENCE: Duration = Duration::from_secs(60);
/// Instructions that a function may execute for one message.
const BUDGET: u64 = 1 << 20;

/// Functions in a compartment, and what holds for packets that call them.
#[derive(Clone, Debug)]
pub struct FunctionsConfig {
    /// The binary, started as `BINARY p4vm ...`.
    pub binary: PathBuf,
    /// The virtual machine in which they run; `None`: a process.
    pub machine: Option<FunctionsMachine>,
    /// The objects: the compartment's program, and those of the functions.
    pub objects: Vec<Vec<u8>>,
    /// Bytes of the longest message to them.
    pub longest_message: usize,
    /// The file with entries for their maps, which this process opens and the compartment reads: at each
    /// start, since the maps are empty then.
    pub maps: Option<PathBuf>,
    /// Measures of the sandbox that may be missing.
    pub allow_missing: Vec<Measure>,
    /// Longest time for an answer.
    pub deadline: Duration,
    /// The fate of packets without an answer.
    pub fail: CallFail,
}

/// The virtual machine of functions.
#[derive(Clone, Debug)]
pub struct FunctionsMachine {
    /// The folder of the image.
    pub image: PathBuf,
    /// QEMU's program.
    pub qemu: PathBuf,
    /// QEMU's name of the accelerator; `None`: the best that works.
    pub accelerator: Option<&'static str>,
}

impl FunctionsMachine {
    fn machine(&self) -> Machine {
        let (image, qemu, accelerator) = (self.image.clone(), self.qemu.clone(), self.accelerator);
        // One of them answers calls.
        let processors = 2;
        Machine { image, qemu, accelerator, processors, firmware: None, processor: None, quote_service: None }
    }
}

/// A P4 VM with functions, and a channel to it for each packet thread.
///
/// The functions of a program and the program itself are exchanged together.
pub struct Apart {
    pub(crate) p4vm: Box<dyn Compartment>,
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
        let stage = Request::StageProgram {
            slot: SLOT,
            name: NAME.to_owned(),
            objects: resources.add_bytes(&all),
            lengths: objects.iter().map(|o| o.len() as u32).collect(),
        };
        p4vm.call(stage, &resources, PATIENCE).map_err(failed)?;
        config.maps.as_ref().map_or(Ok(()), |file| fill(p4vm, file))?;
        p4vm.call(Request::Commit, &Resources::none(), PATIENCE).map_err(failed)?;
        self.channels =
            (0..threads).map(|n| attach(p4vm, n as u32, *longest_message)).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// Ends the P4 VM.
    pub fn end(self) {
        self.p4vm.end(Duration::ZERO);
    }
}

/// Hands the P4 VM the file with the entries of its maps.
fn fill(p4vm: &mut dyn Compartment, path: &Path) -> Result<(), String> {
    let failed = |why: &dyn Display| format!("{}: {why}", p4shield_text::printable(&path.to_string_lossy()));
    let file = File::open(path).map_err(|e| failed(&e))?;
    let found = file.metadata().map_err(|e| failed(&e))?;
    let len = u32::try_from(found.len()).ok().filter(|len| *len as usize <= MAX_VALUES);
    let (true, Some(len)) = (found.is_file(), len) else {
        return Err(failed(&format!("give a file of at most {MAX_VALUES} bytes")));
    };
    let mut resources = Resources::none();
    let request = Request::FillMaps { slot: SLOT, values: resources.add(&file), len };
    p4vm.call(request, &resources, PATIENCE).map(drop).map_err(|e| failed(&chain(&e)))
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
        machine: config.machine.as_ref().map(FunctionsMachine::machine),
        tee: Tee::None,
        write_combining: false,
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

/// The functions of another program, in a P4 VM that has started.
pub(crate) struct Next {
    pub(crate) config: FunctionsConfig,
    pub(crate) apart: Apart,
}

/// An order to the keeper: the functions of another program, or none; and where it says that it is done.
pub(crate) type Exchange = (Option<Next>, SyncSender<Result<(), String>>);

/// The way to the keeper.
pub(crate) struct Line {
    /// The configuration with which the switch was started.
    pub(crate) config: FunctionsConfig,
    orders: Sender<Exchange>,
    wake: Arc<OwnedFd>,
}

impl Line {
    pub(crate) const fn new(config: FunctionsConfig, orders: Sender<Exchange>, wake: Arc<OwnedFd>) -> Self {
        Self { config, orders, wake }
    }

    /// Has the packet threads, which are held, call these functions instead of those before.
    ///
    /// # Errors
    /// The switch is about to end.
    pub(crate) fn exchange(&self, next: Option<Next>) -> Result<(), String> {
        let (reply, done) = sync_channel(1);
        let ends = |_| "the switch is about to end".to_owned();
        self.orders.send((next, reply)).map_err(|e| {
            e.0.0.into_iter().for_each(|next| next.apart.end());
            ends(())
        })?;
        ring(&self.wake);
        done.recv().map_err(|_| ends(()))?
    }
}

/// Wakes the keeper.
pub(crate) fn ring(wake: &OwnedFd) {
    // A full counter wakes the thread, too.
    let _ = rustix::io::write(wake, &1_u64.to_ne_bytes());
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
