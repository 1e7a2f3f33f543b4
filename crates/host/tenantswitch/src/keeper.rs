//! Keeps the switches of a plan running: one thread, which waits for their ends, for interfaces that were
//! absent, and for another plan.

use crate::TopologyError;
use crate::apply::{Applied, Host};
use crate::end_points::{EndPointStatus, EndPoints};
use crate::status::SwitchStatus;
use backon::{BackoffBuilder as _, ExponentialBackoff};
use p4shield_compartment::RESTART_PAUSES;
use p4shield_links::index_of;
use p4shield_text::chain;
use p4shield_topology::Plan;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time between two looks at what has no descriptor to wait for.
const LOOK: Duration = Duration::from_secs(10);
/// A switch that ran this long starts again without a long pause.
const RAN_WELL: Duration = Duration::from_secs(30);

/// A thread that keeps switches running. They go on when it ends.
#[derive(Debug)]
pub struct Keeper {
    shared: Arc<Shared>,
    end_points: Arc<EndPoints>,
    thread: Option<JoinHandle<()>>,
}

/// The state of the kept switches, as of the last look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// The plan; `None`: there are no switches.
    pub plan: Option<Plan>,
    /// Reason why the plan is not applied. The keeper tries again.
    pub error: Option<String>,
    /// Interfaces of the plan that do not exist. The keeper applies the plan again once they do.
    pub absent: Vec<String>,
    /// The switches, in the plan's order.
    pub switches: Vec<SwitchStatus>,
}

#[derive(Debug)]
struct Shared {
    wake: OwnedFd,
    orders: Mutex<Orders>,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Orders {
    plan: Option<Wanted>,
    ends: bool,
}

#[derive(Clone, Debug)]
enum Wanted {
    Switches(Box<Plan>),
    None,
}

impl Keeper {
    /// Starts the thread, in the network namespace of the calling one. It keeps what was applied before until
    /// it has a plan.
    ///
    /// # Errors
    /// No descriptor or thread is left.
    pub fn start(host: Host) -> std::io::Result<Self> {
        let end_points = Arc::new(EndPoints::start()?);
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Arc::new(Shared { wake, orders: Mutex::default(), kept: Mutex::default() });
        let keeping = Keeping {
            host,
            shared: Arc::clone(&shared),
            wanted: None,
            retry: Retry::default(),
            watched: BTreeMap::new(),
            restored: std::sync::mpsc::channel(),
            end_points: Arc::clone(&end_points),
        };
        let thread = std::thread::Builder::new().name("topology".to_owned()).spawn(|| keeping.run())?;
        Ok(Self { shared, end_points, thread: Some(thread) })
    }

    /// Has it apply a plan, or remove all switches. Returns at once.
    pub fn want(&self, plan: Option<Plan>) {
        let wanted = plan.map_or(Wanted::None, |plan| Wanted::Switches(Box::new(plan)));
        locked(&self.shared.orders).plan = Some(wanted);
        self.shared.wake();
    }

    /// Returns how the end points for controllers are, by address.
    #[must_use]
    pub fn end_points(&self) -> Vec<EndPointStatus> {
        self.end_points.status()
    }

    /// Returns the state of the switches.
    #[must_use]
    pub fn kept(&self) -> Kept {
        locked(&self.shared.kept).clone()
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        locked(&self.shared.orders).ends = true;
        self.shared.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn wake(&self) {
        // It fails if the number of wakes is at its limit: the thread wakes anyway.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// When something that failed is tried again.
#[derive(Default)]
struct Retry {
    pauses: Option<ExponentialBackoff>,
    due: Option<Instant>,
}

impl Retry {
    /// Tries after a pause, which is longer each time.
    fn later(&mut self) {
        let pauses = self.pauses.get_or_insert_with(|| RESTART_PAUSES.build());
        self.due = Some(Instant::now() + pauses.next().unwrap_or(RAN_WELL));
    }

    /// Returns whether it is time to try, once.
    fn is_due(&mut self) -> bool {
        let is_due = self.due.is_some_and(|due| due <= Instant::now());
        self.due = self.due.filter(|_| !is_due);
        is_due
    }
}

/// A switch.
#[derive(Default)]
struct Watched {
    /// Its compartment's first process; `None`: it does not run.
    process: Option<Arc<OwnedFd>>,
    since: Option<Instant>,
    /// A thread starts it.
    is_starting: bool,
    retry: Retry,
}

/// The thread.
struct Keeping {
    host: Host,
    shared: Arc<Shared>,
    /// The plan to apply, if it is not applied.
    wanted: Option<Wanted>,
    retry: Retry,
    watched: BTreeMap<String, Watched>,
    /// The ends of the threads that start switches.
    restored: (Sender<Restored>, Receiver<Restored>),
    end_points: Arc<EndPoints>,
}

/// A switch, and whether it was started. `false`: another plan was applied meanwhile.
type Restored = (String, Result<bool, TopologyError>);

impl Keeping {
    fn run(mut self) {
        let mut look = Instant::now();
        loop {
            let orders = std::mem::take(&mut *locked(&self.shared.orders));
            if orders.ends {
                return;
            }
            if let Some(wanted) = orders.plan {
                (self.wanted, self.retry) = (Some(wanted), Retry::default());
                self.apply();
                look = Instant::now();
            } else if self.retry.is_due() {
                self.apply();
                look = Instant::now();
            }
            self.restore();
            if self.take_restored() || look <= Instant::now() {
                self.look();
                look = Instant::now() + LOOK;
            }
            self.wait(look);
        }
    }

    /// Applies the wanted plan.
    fn apply(&mut self) {
        let Some(wanted) = &self.wanted else { return };
        let done = match wanted {
            Wanted::Switches(plan) => self.host.apply(plan),
            Wanted::None => self.host.delete().map(|removed| Applied { removed, ..Applied::default() }),
        };
        let mut kept = locked(&self.shared.kept);
        match done {
            Ok(done) => {
                let Applied { started, removed, connected, ports, absent, settings } = done;
                // Those that ran before them have ended, as they had to.
                self.watched.retain(|name, _| !started.contains(name));
                if [&started, &removed, &connected, &ports, &settings]
                    .into_iter()
                    .any(|names| !names.is_empty())
                {
                    let [started, removed, settings] =
                        [started, removed, settings].map(|names| names.join(" "));
                    tracing::info!(
                        event = "topology_applied",
                        started,
                        removed,
                        settings,
                        "the tenants' switches are as planned"
                    );
                }
                (kept.error, kept.absent, self.wanted) = (None, absent, None);
            }
            Err(e) => {
                let error = chain(&e);
                tracing::error!(event = "topology_failed", error, "the tenants' switches are not as planned");
                kept.error = Some(error);
                self.retry.later();
            }
        }
    }

    /// Starts switches again whose pause is over. Each has a thread: one that takes long delays no other.
    fn restore(&mut self) {
        for (name, watched) in &mut self.watched {
            if watched.is_starting || !watched.retry.is_due() {
                continue;
            }
            let (host, shared, ends) = (self.host.clone(), Arc::clone(&self.shared), self.restored.0.clone());
            let this = name.clone();
            let start = move || {
                let done = host.restore(&this);
                // The keeper may have ended.
                let _ = ends.send((this, done));
                shared.wake();
            };
            match std::thread::Builder::new().name("restore".to_owned()).spawn(start) {
                Ok(_) => watched.is_starting = true,
                Err(e) => watched.failed(name, &chain(&e)),
            }
        }
    }

    /// Takes what threads have started. Returns whether there was something.
    fn take_restored(&mut self) -> bool {
        let mut any = false;
        for (name, done) in self.restored.1.try_iter() {
            any = true;
            let Some(watched) = self.watched.get_mut(&name) else { continue };
            watched.is_starting = false;
            match done {
                Ok(true) => {
                    tracing::info!(
                        event = "switch_compartment_restored",
                        compartment = name,
                        "it runs again"
                    );
                }
                // Another plan was applied meanwhile.
                Ok(false) => {}
                Err(e) => watched.failed(&name, &chain(&e)),
            }
        }
        any
    }

    /// Looks at the applied plan, which a command may have changed, and at its switches.
    fn look(&mut self) {
        let plan = match self.host.applied() {
            Ok(plan) => plan,
            Err(e) => {
                locked(&self.shared.kept).error = Some(chain(&e));
                return;
            }
        };
        let compartments = plan.iter().flat_map(|plan| &plan.compartments);
        let names: Vec<_> = compartments.clone().map(|c| c.name.clone()).collect();
        self.watched.retain(|name, _| names.contains(name));
        let unknown = compartments.filter(|c| self.watched.get(&c.name).is_none_or(|w| w.process.is_none()));
        let mut found = self.host.first_processes(unknown).unwrap_or_default();
        for name in &names {
            let watched = self.watched.entry(name.clone()).or_default();
            let process = watched.process.take().or_else(|| found.remove(name).map(Arc::new));
            watched.observe(process);
        }
        let running = self.watched.iter().filter_map(|(name, w)| Some((name.clone(), w.process.clone()?)));
        self.end_points.reach(running.collect());
        self.end_points.want(plan.as_ref());
        let switches = plan.as_ref().map(|plan| self.host.switches(plan)).transpose();
        let mut kept = locked(&self.shared.kept);
        kept.switches = switches.ok().flatten().unwrap_or_default();
        if kept.absent.iter().any(|interface| index_of(interface).is_ok()) {
            kept.absent.clear();
            self.wanted = self.wanted.take().or(plan.clone().map(|plan| Wanted::Switches(Box::new(plan))));
            self.retry.due = Some(Instant::now());
        }
        kept.plan = plan;
    }

    /// Waits until the time of `look`, or for what comes first.
    fn wait(&mut self, look: Instant) {
        let dues = self.watched.values().filter_map(|w| w.retry.due).chain(self.retry.due);
        let until = dues.chain([look]).min().unwrap_or(look);
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
        let running: Vec<_> =
            self.watched.iter().filter_map(|(name, w)| Some((name.clone(), w.process.as_ref()?))).collect();
        let mut events = vec![PollFd::new(&self.shared.wake, PollFlags::IN)];
        events.extend(running.iter().map(|(_, process)| PollFd::new(*process, PollFlags::IN)));
        // A signal shortens the wait.
        let _ = poll(&mut events, Some(&timeout));
        let ended = running.iter().zip(&events[1..]).filter(|(_, event)| !event.revents().is_empty());
        let ended: Vec<_> = ended.map(|((name, _), _)| name.clone()).collect();
        let _ = rustix::io::read(&self.shared.wake, &mut [0_u8; 8]);
        for name in ended {
            tracing::warn!(
                event = "switch_compartment_ended",
                compartment = name,
                "its tenants have no network; it is started again"
            );
            self.watched.entry(name).or_default().observe(None);
        }
    }
}

impl Watched {
    /// Has it tried again later.
    fn failed(&mut self, name: &str, error: &str) {
        tracing::error!(event = "switch_compartment_failed", compartment = name, error, "no start");
        self.retry.later();
    }

    /// Takes whether it runs. One that does not is started after a pause.
    fn observe(&mut self, process: Option<Arc<OwnedFd>>) {
        let ran_well = self.since.is_some_and(|since| since.elapsed() > RAN_WELL);
        if ran_well {
            self.retry.pauses = None;
        }
        match &process {
            Some(_) => {
                self.since = self.since.or_else(|| Some(Instant::now()));
                self.retry.due = None;
            }
            None if self.retry.due.is_none() && !self.is_starting => {
                self.since = None;
                self.retry.later();
            }
            None => {}
        }
        self.process = process;
    }
}
