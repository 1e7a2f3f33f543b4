//! The attachment `wire` in the daemon. One loop, which is one lane, serves all wires, in a process of its
//! own.
//!
//! ```text
//!   daemon ── requests (message) ──► process (server) ── loop (host) ──► wires
//!   next daemon ──► door ───────────────┘
//! ```
//!
//! The process outlives its daemon as P4 VMs do, and the next daemon adopts it (`crate::adoption`): packets
//! flow through wires and programs while the daemon is upgraded or was killed. When the process ends, the
//! wires are closed until the daemon has started another.

mod host;
mod message;
mod process;
mod server;

use crate::adoption::AdoptionFolder;
use crate::attachment::{Attachment, ChannelEnd, LaneKey};
use crate::config::{Config, Wire};
use crate::error::DaemonError;
use crate::status::problem::Problem;
use crate::status::problems;
use crate::status::totals::Totals;
use crate::status::{SideStatus, WireStatus};
use backon::BackoffBuilder;
use message::{PART, WiresReply, WiresRequest, WiresSetup};
use p4shield_attach::mediator_config;
use p4shield_channel::Doorbell;
use p4shield_compartment::RESTART_PAUSES;
use p4shield_text::chain;
use process::{CallError, RECORD, WiresProcess};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

pub use server::serve_wires;

type Wake = Box<dyn Fn() + Send + Sync>;

/// The attachment.
pub(crate) struct WireAttachment {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    binary: PathBuf,
    folder: AdoptionFolder,
    state: Mutex<State>,
    wakes: Mutex<Vec<Wake>>,
    doorbell: Doorbell,
    ending: AtomicBool,
}

struct State {
    process: Option<WiresProcess>,
    config: Config,
    /// Changes with each process, which has no channels at first.
    lane: u64,
    /// By tenant: channels that an adopted process has and that are neither kept nor replaced yet.
    held: BTreeMap<usize, u32>,
    error: Option<String>,
}

impl WireAttachment {
    /// Starts the process, as `BINARY wires`, or adopts the one of the daemon before if `adopts`. A missing
    /// interface is attached as soon as it exists.
    ///
    /// # Errors
    /// The machine lacks what the loop needs.
    pub(crate) fn start(config: &Config, binary: &Path, adopts: bool) -> Result<Self, DaemonError> {
        let folder = AdoptionFolder::beside(&config.daemon.socket)?;
        let adopted = if adopts { WiresProcess::adopt(&folder) } else { None };
        let (process, held) = match adopted {
            Some((process, channels)) => (process, channels),
            None => {
                let process = WiresProcess::start(binary, &folder, &WiresSetup::from(config));
                (process.map_err(DaemonError::Wires)?, Vec::new())
            }
        };
        let failed = |e: std::io::Error| DaemonError::Wires(chain(&e));
        let (doorbell, wakeup) = Doorbell::pair().map_err(|e| failed(e.into()))?;
        let state = State {
            process: Some(process),
            config: config.clone(),
            lane: 1,
            held: held.into_iter().map(|(tenant, channel)| (tenant as usize, channel)).collect(),
            error: None,
        };
        let shared = Arc::new(Shared {
            binary: binary.to_owned(),
            folder,
            state: Mutex::new(state),
            wakes: Mutex::default(),
            doorbell,
            ending: AtomicBool::new(false),
        });
        let this = Self { shared: Arc::clone(&shared), thread: Mutex::default() };
        this.reconfigure(config).map_err(DaemonError::Wires)?;
        let keeper = std::thread::Builder::new().name("wires".into());
        let keeper = keeper.spawn(move || shared.keep(&wakeup)).map_err(failed)?;
        *this.thread() = Some(keeper);
        Ok(this)
    }

    fn done(&self, request: WiresRequest, descriptors: &[BorrowedFd<'_>]) -> Result<(), String> {
        self.shared.call(request, descriptors).map(drop)
    }

    fn with_setup(&self, request: WiresRequest, config: &Config) -> Result<(), String> {
        let memory = WiresSetup::from(config).to_memory().map_err(|e| chain(&e))?;
        self.done(request, &[memory.as_fd()])
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call(&self, request: WiresRequest, descriptors: &[BorrowedFd<'_>]) -> Result<WiresReply, String> {
        let mut state = self.state();
        let Some(process) = &mut state.process else {
            return Err(state.error.clone().unwrap_or_else(|| "the wires are being started".to_owned()));
        };
        let result = process.call(request, descriptors);
        if let Err(CallError::Broken(why)) = &result {
            // The thread starts another.
            state.error = Some(format!("the process that serves the wires failed: {why}"));
            if let Some(process) = state.process.take() {
                process.end(false);
            }
            self.doorbell.ring();
        }
        result.map_err(CallError::into_text)
    }

    /// Keeps a process running until the attachment ends.
    fn keep(&self, wakeup: &Doorbell) {
        let mut pauses = RESTART_PAUSES.build();
        let mut pause = None;
        while !self.ending.load(Ordering::Acquire) {
            let pidfd = self.state().process.as_ref().and_then(|p| p.pidfd().ok());
            let timeout = if pidfd.is_some() { None } else { pause };
            let mut fds = vec![PollFd::new(wakeup, PollFlags::IN)];
            fds.extend(pidfd.as_ref().map(|fd| PollFd::new(fd, PollFlags::IN)));
            let _ = poll(&mut fds, timeout.as_ref());
            let ended = fds.get(1).is_some_and(|fd| !fd.revents().is_empty());
            wakeup.drain();
            if self.ending.load(Ordering::Acquire) {
                return;
            }
            if ended || pidfd.is_none() {
                if self.restart() {
                    pauses = RESTART_PAUSES.build();
                }
                pause = pauses.next().and_then(|time| Timespec::try_from(time).ok());
            }
        }
    }

    /// Starts another process in place of one that has ended. Returns whether it runs.
    fn restart(&self) -> bool {
        let config = {
            let mut state = self.state();
            if let Some(process) = state.process.take() {
                process.end(false);
                state.error = Some("the process that serves the wires has ended".to_owned());
            }
            tracing::error!(
                event = "wires_closed",
                why = state.error,
                "the wires are closed; starting them again"
            );
            state.config.clone()
        };
        match WiresProcess::start(&self.binary, &self.folder, &WiresSetup::from(&config)) {
            Ok(process) => {
                let mut state = self.state();
                (state.process, state.error) = (Some(process), None);
                state.lane += 1;
                state.held.clear();
                drop(state);
                self.set_patience(&config);
                self.wakes.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|wake| wake());
                true
            }
            Err(why) => {
                self.state().error = Some(why);
                false
            }
        }
    }

    fn set_patience(&self, config: &Config) {
        let ms = u32::try_from(config.daemon.adoption_time.as_millis()).unwrap_or(u32::MAX);
        // The thread starts a process that fails here again.
        let _ = self.call(WiresRequest::SetPatience { ms }, &[]);
    }
}

impl Drop for WireAttachment {
    fn drop(&mut self) {
        self.stop();
    }
}

impl WireAttachment {
    fn thread(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Attachment for WireAttachment {
    fn stop(&self) {
        self.shared.ending.store(true, Ordering::Release);
        self.shared.doorbell.ring();
        let keeper = self.thread().take();
        if let Some(thread) = keeper {
            let _ = thread.join();
        }
        let process = self.shared.state().process.take();
        if let Some(process) = process {
            process.end(true);
        }
        self.shared.folder.forget(RECORD);
    }

    fn check(&self, config: &Config) -> Result<(), String> {
        self.with_setup(WiresRequest::Check, config)
    }

    fn preview(&self, config: &Config) -> Vec<Problem> {
        let running = self.wires();
        let side = |interface: &str| {
            let up = Path::new("/sys/class/net").join(interface).exists();
            let remark = (!up).then(|| format!("there is no interface {interface}"));
            SideStatus { interface: interface.to_owned(), up, remark, ..SideStatus::default() }
        };
        let wire = |w: &Wire| {
            let (vm, switch) = (&w.vm_interface, &w.switch_interface);
            let same = |s: &&WireStatus| (&s.vm.interface, &s.switch.interface) == (vm, switch);
            let new = || WireStatus { name: vm.clone(), vm: side(vm), switch: side(switch) };
            running.iter().find(same).cloned().unwrap_or_else(new)
        };
        problems::of_wires(config, &config.wires.iter().map(wire).collect::<Vec<_>>())
    }

    fn reconfigure(&self, config: &Config) -> Result<(), String> {
        self.shared.state().config = config.clone();
        self.shared.set_patience(config);
        self.with_setup(WiresRequest::Reconfigure, config)
    }

    fn lanes(&self) -> Vec<LaneKey> {
        let state = self.shared.state();
        state.process.iter().map(|_| LaneKey(state.lane)).collect()
    }

    fn on_change(&self, wake: Wake) {
        self.shared.wakes.lock().unwrap_or_else(PoisonError::into_inner).push(wake);
    }

    fn attach_channel(&self, lane: LaneKey, tenant: usize, end: ChannelEnd) -> Result<(), String> {
        let Some(memory) = end.memory.fd() else { return Ok(()) };
        let request = {
            let mut state = self.shared.state();
            state.held.remove(&tenant);
            if lane != LaneKey(state.lane) {
                return Ok(());
            }
            let tenant = u32::try_from(tenant).map_err(|e| e.to_string())?;
            WiresRequest::AttachChannel { tenant, number: end.number, geometry: end.geometry.into() }
        };
        self.done(request, &[memory, end.doorbell.fd()])
    }

    fn keep_channel(&self, lane: LaneKey, tenant: usize, serves: &dyn Fn(u32) -> bool) -> Option<u32> {
        let mut state = self.shared.state();
        let held = state.held.remove(&tenant).filter(|_| lane == LaneKey(state.lane));
        held.filter(|channel| serves(*channel))
    }

    fn detach_channels(&self, tenant: usize) {
        self.shared.state().held.remove(&tenant);
        // An error means that the loop and its channels have ended.
        let _ = self.done(WiresRequest::DetachChannel { tenant: tenant as u32 }, &[]);
    }

    fn fault(&self, tenant: usize) -> Option<String> {
        match self.shared.call(WiresRequest::Fault { tenant: tenant as u32 }, &[]) {
            Ok(WiresReply::Fault(fault)) => fault,
            _ => None,
        }
    }

    fn totals(&self) -> Totals {
        let mut totals = Totals::new(&mediator_config(&self.shared.state().config));
        for part in 0.. {
            let request = WiresRequest::Counts { skip: part * PART as u32 };
            let Ok(WiresReply::Counts(counts, unowned)) = self.shared.call(request, &[]) else { break };
            counts.iter().for_each(|count| totals.add(count));
            totals.unowned = unowned;
            if counts.len() < PART {
                break;
            }
        }
        totals
    }

    fn wires(&self) -> Vec<WireStatus> {
        let mut wires = Vec::new();
        loop {
            match self.shared.call(WiresRequest::Wires { skip: wires.len() as u32 }, &[]) {
                Ok(WiresReply::Wires(part)) => {
                    let is_last = part.len() < PART;
                    wires.extend(part);
                    if is_last {
                        return wires;
                    }
                }
                Ok(_) => return wires,
                Err(why) => return self.closed(&why),
            }
        }
    }
}

impl WireAttachment {
    /// Returns the status of wires that no process serves.
    fn closed(&self, why: &str) -> Vec<WireStatus> {
        let side = |interface: &String| SideStatus {
            interface: interface.clone(),
            remark: Some(why.to_owned()),
            ..SideStatus::default()
        };
        let wire = |w: &Wire| WireStatus {
            name: w.vm_interface.clone(),
            vm: side(&w.vm_interface),
            switch: side(&w.switch_interface),
        };
        self.shared.state().config.wires.iter().map(wire).collect()
    }
}
