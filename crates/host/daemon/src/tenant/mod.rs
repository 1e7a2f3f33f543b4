//! The keeper of one tenant's P4 VM: a thread that starts it, watches it, and starts it again.
//!
//! Tenants have a thread each, so that a P4 VM that is slow to answer keeps nobody waiting but its own keeper. A
//! P4 VM is replaced when it ends, when the mediator took its channel away (it broke the protocol or stopped
//! answering), and when it is out of step on its control socket. Each lane of the attachment has a channel of its own to
//! it; a new P4 VM gets fresh ones, and the switch notices nothing. Programs are kept as bytes, so that a restart brings back
//! what ran. A tenant whose pages cannot be made has no P4 VM until they can, which is tried again and again.

mod channels;
mod epochs;
mod furnish;
mod inline;
mod keeper;
mod pages;
mod process;

use crate::attachment::Attachment;
use crate::cgroup::Cgroup;
use crate::config::Tenant;
use crate::status::State;
use p4shield_abi::Direction;
use p4shield_channel::Doorbell;
use p4shield_control as control;
use p4shield_control::SandboxReport;
use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

pub(crate) use process::Launch;

/// What the keeper of a tenant knows, for status.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    pub(crate) state: State,
    pub(crate) pid: Option<i32>,
    pub(crate) restarts: u64,
    pub(crate) error: Option<String>,
    pub(crate) sandbox: Option<SandboxReport>,
    pub(crate) p4vm: Option<control::Status>,
    /// What is wrong with programs in switches, or to be known of them.
    pub(crate) inline: Option<String>,
    /// Why lanes have no channel to it.
    pub(crate) channels: Option<String>,
    /// Why the program of a VM and direction does not run.
    pub(crate) refusals: Vec<[Option<String>; 2]>,
}

/// The answer to a command: a text for people.
pub(crate) type Answer = Result<String, String>;

/// What [`Load::IfChanged`] answers where nothing was to be done.
pub(crate) const AS_BEFORE: &str = "as before";

/// When a program is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// Also by itself: its tables and counters begin again.
    Always,
    /// Only by another one: what runs goes on with its tables and counters.
    IfChanged,
}

pub(crate) enum Command {
    /// Replaces a program by what these objects link to; none: takes it away.
    Load { vm: u16, direction: Direction, objects: Vec<Vec<u8>>, load: Load, answer: Sender<Answer> },
    /// Ends the P4 VM and the keeper.
    Stop,
}

/// What a keeper is given.
pub(crate) struct Charge {
    pub(crate) index: usize,
    pub(crate) tenant: Tenant,
    /// Whether switches run the programs themselves.
    pub(crate) inline: bool,
    pub(crate) launch: Launch,
    pub(crate) attachment: Arc<dyn Attachment>,
    pub(crate) cgroup: Option<Arc<Cgroup>>,
    /// Where the daemon keeps what has to outlive it, if anywhere.
    pub(crate) state: Option<PathBuf>,
}

/// A keeper, as the daemon sees it.
pub(crate) struct Keeper {
    commands: Sender<Command>,
    bell: Arc<Doorbell>,
    known: Arc<Mutex<Known>>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Starts a tenant's keeper, with the tenant's pages if they can be made by now.
    pub(crate) fn start(charge: Charge) -> std::io::Result<Self> {
        let refusals = vec![[None, None]; charge.tenant.vms.len()];
        let known = Arc::new(Mutex::new(Known { refusals, ..Known::default() }));
        let (commands, orders) = channel();
        let (bell, rung) = Doorbell::pair()?;
        let keeper = keeper::Work::new(charge, orders, rung, Arc::clone(&known));
        let thread = std::thread::Builder::new().name(keeper.name()).spawn(|| keeper.run())?;
        Ok(Self { commands, bell: Arc::new(bell), known, thread: Some(thread) })
    }

    /// What has the keeper look at once whether lanes have come or gone.
    pub(crate) fn bell(&self) -> Arc<Doorbell> {
        Arc::clone(&self.bell)
    }

    /// What is known at the moment.
    pub(crate) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces a program and waits for what comes of it.
    pub(crate) fn load(&self, vm: u16, direction: Direction, objects: Vec<Vec<u8>>, load: Load) -> Answer {
        let (answer, result) = channel();
        let gone = || "the keeper of this tenant has ended".to_owned();
        self.commands.send(Command::Load { vm, direction, objects, load, answer }).map_err(|_| gone())?;
        self.bell.ring();
        result.recv().map_err(|_| gone())?
    }

    /// Ends the P4 VM and the keeper, and waits for both.
    pub(crate) fn stop(&mut self) {
        let _ = self.commands.send(Command::Stop);
        self.bell.ring();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }

    /// Asks it to end without waiting, so that several end at once.
    pub(crate) fn stop_soon(&self) {
        let _ = self.commands.send(Command::Stop);
        self.bell.ring();
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.stop();
    }
}
