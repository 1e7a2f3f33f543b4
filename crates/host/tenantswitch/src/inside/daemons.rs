//! Open vSwitch's two programs: started, and started again when one ends.

use super::dpdk::Datapath;
use super::{controllers, ovs};
use crate::order::{Controllers, Settings};
use backon::BackoffBuilder as _;
use p4shield_compartment::RESTART_PAUSES;
use std::process::Child;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A program that ran this long starts again without a long pause.
const RAN_WELL: Duration = Duration::from_secs(30);

/// The pauses before announcements. Linux keeps an entry for one second after it has changed (locktime in
/// `Documentation/networking/ip-sysctl.rst`).
const ANNOUNCEMENTS: [Duration; 3] =
    [Duration::ZERO, Duration::from_millis(200), Duration::from_millis(1_100)];

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

    /// Gives the switch these ports and rules instead of those before.
    ///
    /// # Errors
    /// The switch refuses them.
    pub(super) fn configure(&self, settings: Settings) -> Result<(), String> {
        let mut kept = self.0.settings();
        ovs::configure(&settings)?;
        *kept = settings;
        Ok(())
    }

    /// Has the switch listen for controllers.
    ///
    /// # Errors
    /// The switch refuses it, or does not listen.
    pub(super) fn listen(&self, controllers: &Controllers) -> Result<(), String> {
        let _configuring = self.0.settings();
        controllers::configure(controllers)
    }

    /// Announces the VMs' addresses, and again twice: a machine does not change an entry that it has just
    /// changed.
    ///
    /// # Errors
    /// No thread can be started.
    pub(super) fn announce(&self) -> Result<(), String> {
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

    /// Ends the switch, and waits until it has ended.
    ///
    /// # Errors
    /// It does not answer.
    pub(super) fn stop(&self) -> Result<(), String> {
        self.0.stops.store(true, Ordering::Relaxed);
        ovs::stop()
    }

    /// Returns whether the switch answers.
    ///
    /// # Errors
    /// It does not, for this reason.
    pub(super) fn health(&self) -> Result<(), String> {
        ovs::answers()
    }

    /// Returns how often a program was started again.
    pub(super) fn restarts(&self) -> u64 {
        self.0.restarts.load(Ordering::Relaxed)
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
