//! Open vSwitch's two programs: started, and started again when one ends.

use super::buffers::Buffers;
use super::dpdk::Datapath;
use super::log::log;
use super::{command, controllers, ovs};
use crate::obeying::{ANNOUNCEMENTS, Obeying};
use crate::order::{Controllers, Ran, Run, Settings};
use backon::BackoffBuilder as _;
use p4shield_compartment::RESTART_PAUSES;
use rustix::process::Pid;
use std::process::Child;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A program that ran this long starts again without a long pause.
const RAN_WELL: Duration = Duration::from_secs(30);

/// The running programs.
pub(super) struct Daemons(Arc<Shared>);

struct Shared {
    datapath: Datapath,
    restarts: AtomicU64,
    /// Set once the switch is to end.
    stops: AtomicBool,
    /// Held while the switch is configured, so that two configurations do not mix.
    switch: Mutex<Switch>,
    /// `None` if the switch has no packet sockets.
    buffers: Option<Buffers>,
}

/// The running switch.
struct Switch {
    process: Pid,
    settings: Settings,
}

/// A program.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Program {
    Database,
    Switch,
}

impl Daemons {
    /// Starts both.
    ///
    /// # Errors
    /// One does not start, with the reason.
    pub(super) fn start(datapath: Datapath, buffers: Option<Buffers>) -> Result<Self, String> {
        ovs::create_database()?;
        let database = Program::Database.start(&datapath)?;
        datapath.configure()?;
        let switch = Program::Switch.start(&datapath)?;
        let running = Mutex::new(Switch { process: Pid::from_child(&switch), settings: Settings::default() });
        let (restarts, stops) = Default::default();
        let shared = Arc::new(Shared { datapath, restarts, stops, switch: running, buffers });
        let daemons = Self(shared.clone());
        for (program, child) in [(Program::Database, database), (Program::Switch, switch)] {
            let shared = shared.clone();
            spawn(move || shared.keep(program, child))?;
        }
        Ok(daemons)
    }
}

impl Obeying for Daemons {
    fn configure(&self, settings: Settings) -> Result<(), String> {
        let mut switch = self.0.switch();
        self.0.configure(switch.process, &settings)?;
        switch.settings = settings;
        Ok(())
    }

    fn listen(&self, controllers: &Controllers) -> Result<(), String> {
        let _configuring = self.0.switch();
        controllers::configure(controllers)
    }

    fn announce(&self) -> Result<(), String> {
        let shared = self.0.clone();
        let announce = move || {
            for pause in ANNOUNCEMENTS {
                std::thread::sleep(pause);
                if let Err(why) = ovs::announce(&shared.switch().settings) {
                    log(&why);
                }
            }
        };
        spawn(announce)
    }

    /// Waits until the switch has ended.
    fn stop(&self) -> Result<(), String> {
        self.0.stops.store(true, Ordering::Relaxed);
        ovs::stop()
    }

    fn health(&self) -> Result<(), String> {
        ovs::answers()
    }

    fn restarts(&self) -> u64 {
        self.0.restarts.load(Ordering::Relaxed)
    }

    fn run(&self, run: &Run) -> Result<Ran, String> {
        command::run(run)
    }
}

impl Shared {
    fn switch(&self) -> MutexGuard<'_, Switch> {
        self.switch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn configure(&self, switch: Pid, settings: &Settings) -> Result<(), String> {
        ovs::configure(settings)?;
        if let Some(buffers) = &self.buffers {
            buffers.enlarge(switch);
        }
        Ok(())
    }

    /// Starts a program whenever it has ended.
    fn keep(&self, program: Program, mut child: Child) {
        let mut pauses = RESTART_PAUSES.build();
        loop {
            let started = Instant::now();
            let status = child.wait();
            if self.stops.load(Ordering::Relaxed) {
                return;
            }
            if started.elapsed() > RAN_WELL {
                pauses = RESTART_PAUSES.build();
            }
            self.restarts.fetch_add(1, Ordering::Relaxed);
            log(&format!("{} ended ({}), it is started again", program.name(), describe(status)));
            child = loop {
                std::thread::sleep(pauses.next().unwrap_or(RAN_WELL));
                match program.start(&self.datapath) {
                    Ok(child) => break child,
                    Err(why) => log(&why),
                }
            };
            if program == Program::Switch {
                // A new switch has the ports of the database, and no rules.
                let mut switch = self.switch();
                switch.process = Pid::from_child(&child);
                if let Err(why) = self.configure(switch.process, &switch.settings) {
                    log(&why);
                }
            }
        }
    }
}

impl Program {
    const fn name(self) -> &'static str {
        match self {
            Self::Database => "ovsdb-server",
            Self::Switch => "ovs-vswitchd",
        }
    }

    fn start(self, datapath: &Datapath) -> Result<Child, String> {
        match self {
            Self::Database => ovs::start_database(),
            Self::Switch => ovs::start_switch(datapath),
        }
    }
}

fn spawn(work: impl FnOnce() + Send + 'static) -> Result<(), String> {
    std::thread::Builder::new().spawn(work).map(drop).map_err(|e| format!("cannot start a thread: {e}"))
}

fn describe(status: std::io::Result<std::process::ExitStatus>) -> String {
    status.map_or_else(|e| e.to_string(), |status| status.to_string())
}
