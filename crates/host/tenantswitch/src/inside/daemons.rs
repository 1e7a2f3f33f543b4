//! Open vSwitch's two programs: started, and started again when one ends.

use super::dpdk::Datapath;
use super::{command, controllers, ovs};
use crate::obeying::{ANNOUNCEMENTS, Obeying};
use crate::order::{Controllers, Ran, Run, Settings};
use backon::BackoffBuilder as _;
use p4shield_compartment::RESTART_PAUSES;
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
    /// The switch's settings. Held while it is configured, so that two configurations do not mix.
    settings: Mutex<Settings>,
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
    pub(super) fn start(datapath: Datapath) -> Result<Self, String> {
        ovs::create_database()?;
        let database = Program::Database.start(&datapath)?;
        datapath.configure()?;
        let switch = Program::Switch.start(&datapath)?;
        let (restarts, stops, settings) = Default::default();
        let daemons = Self(Arc::new(Shared { datapath, restarts, stops, settings }));
        for (program, child) in [(Program::Database, database), (Program::Switch, switch)] {
            let shared = daemons.0.clone();
            spawn(move || shared.keep(program, child))?;
        }
        Ok(daemons)
    }
}

impl Obeying for Daemons {
    fn configure(&self, settings: Settings) -> Result<(), String> {
        let mut kept = self.0.settings();
        ovs::configure(&settings)?;
        *kept = settings;
        Ok(())
    }

    fn listen(&self, controllers: &Controllers) -> Result<(), String> {
        let _configuring = self.0.settings();
        controllers::configure(controllers)
    }

    fn announce(&self) -> Result<(), String> {
        let shared = self.0.clone();
        let announce = move || {
            for pause in ANNOUNCEMENTS {
                std::thread::sleep(pause);
                if let Err(why) = ovs::announce(&shared.settings()) {
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
    fn settings(&self) -> MutexGuard<'_, Settings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
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
            // A new switch has the ports of the database, and no rules.
            if program == Program::Switch
                && let Err(why) = ovs::configure(&self.settings())
            {
                log(&why);
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

/// Writes a line to the compartment's log.
fn log(line: &str) {
    // Its file has a longest length, at which writing fails.
    let _ = std::io::Write::write_all(&mut std::io::stderr(), format!("{line}\n").as_bytes());
}
