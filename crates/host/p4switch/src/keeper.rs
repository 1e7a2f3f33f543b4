//! Keeps the ports open: a thread that watches their interfaces. It samples their counts, too.
//!
//! ```text
//!   interface deleted ──► keeper: takes its sockets out of the switch, closes them      (state: gone)
//!   interface is back ──► keeper: opens it, has the packet thread put it in its place   (state: up)
//!   down, no carrier  ──► keeper: has the packet thread drop packets to it              (state: down)
//! ```
//!
//! The number of a port stays while its interface comes and goes. Opening and closing sockets happens on this
//! thread; the packet thread exchanges what it is given, between two rounds.

use crate::api::PortState;
use crate::desk::Desk;
use crate::order::{PortChange, Work};
use crate::plug::index_of;
use crate::ports::Port;
use crate::surroundings::Watching;
use p4shield_io::afxdp;
use p4shield_switch::{MAX_PORTS, Share};
use p4shield_text::chain;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest time between two looks, also if no message says that an interface has changed.
const LOOK: Duration = Duration::from_secs(1);
/// Shortest time between two looks, while interfaces change all the time.
const PAUSE: Duration = Duration::from_millis(5);
/// Time until the next attempt when the kernel does not tell of interfaces.
const RETRY: Duration = Duration::from_millis(200);

/// The thread. Dropping it ends it.
pub(crate) struct Keeper {
    desk: Arc<Desk>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Starts the thread in the network namespace of the calling one.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(crate) fn start(desk: &Arc<Desk>, mut watch: Watching) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (keeping, stopped) = (Arc::clone(desk), Arc::clone(&stop));
        let keep = move || {
            while !stopped.load(Ordering::Relaxed) {
                if let Err(error) = keeping.wait_and_look(&mut watch) {
                    tracing::warn!(event = "ports_not_watched", "{}", chain(&error));
                    std::thread::sleep(RETRY);
                }
            }
        };
        let thread = std::thread::Builder::new().name("ports".to_owned()).spawn(keep)?;
        Ok(Self { desk: Arc::clone(desk), stop, thread: Some(thread) })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.desk.nudge.ring();
        if let Some(thread) = self.thread.take() {
            // It has no panic to pass on that its end would change.
            let _ = thread.join();
        }
    }
}

impl Desk {
    fn wait_and_look(&self, watch: &mut Watching) -> Result<(), afxdp::Error> {
        watch.look(self.ports.interfaces())?;
        self.keep_ports(watch);
        self.sample();
        self.end_late_notes();
        // A recording has ended.
        self.spread();
        watch.wait(LOOK, self.nudge.bell())?;
        self.nudge.silence();
        std::thread::sleep(PAUSE);
        Ok(())
    }

    /// Brings every port into the state of its interface.
    fn keep_ports(&self, watch: &Watching) {
        let _alone = self.ports.change();
        let work = || Work::Lost(Vec::with_capacity(MAX_PORTS));
        // The switch is about to end if a packet thread does not answer.
        let Ok(done) = self.threads.execute_on_each(work) else { return };
        let of_thread = |work| if let Work::Lost(lost) = work { lost } else { Vec::new() };
        let lost: Vec<_> = done.into_iter().flat_map(of_thread).collect();
        for mut port in self.ports.all() {
            let before = port.clone();
            let reason = lost.iter().find(|(number, _)| *number == port.number).map(|(_, why)| *why);
            let kept = if port.is_interface() {
                self.keep(&mut port, reason, watch)
            } else {
                keep_device(&mut port, reason);
                Ok(())
            };
            if kept.is_ok() && port != before {
                report(&before, &port);
                self.ports.set(&port);
            }
        }
    }

    /// Brings a port into the state of its interface, if it is lost for `why` also its sockets.
    ///
    /// # Errors
    /// The packet thread does not answer.
    fn keep(&self, port: &mut Port, why: Option<&str>, watch: &Watching) -> Result<(), String> {
        let found = watch.find(&port.interface);
        let index = found.map(|i| i.index);
        if port.index.is_some() && (why.is_some() || port.index != index) {
            // Dropped here: closing takes a while.
            drop(self.order_port(port.number, PortChange::Exchange, Vec::new())?);
            if let (Some(reason), true) = (why, port.index == index) {
                let (port, interface) = (port.number, &port.interface);
                tracing::warn!(event = "switch_port_reopened", port, interface, reason, "{reason}");
            }
            port.index = None;
        }
        if found.is_some_and(|i| i.up) && port.index.is_none() {
            // An attempt changes the interface, which wakes this thread.
            if port.state == PortState::Failed && port.tried.is_some_and(|at| at.elapsed() < LOOK) {
                return Ok(());
            }
            port.tried = Some(Instant::now());
            let share = Share { threads: self.threads.count(), first: port.first };
            match self.interfaces.open(&port.interface, share).map_err(|error| chain(&error)) {
                Ok(parts) => {
                    port.index = index_of(&parts);
                    self.order_port(port.number, PortChange::Exchange, parts)?;
                }
                Err(error) => {
                    port.state = PortState::Failed;
                    port.why = format!("cannot be opened, which is tried again every second: {error}");
                    return Ok(());
                }
            }
        }
        (port.state, port.why) = match found {
            None => (PortState::Gone, format!("{GONE} {}", port.number)),
            Some(i) if !i.up => {
                (PortState::Down, format!("is down; bring it up: ip link set {} up", port.interface))
            }
            Some(i) if !i.carrier => (PortState::Down, NO_CARRIER.to_owned()),
            Some(_) => (PortState::Up, String::new()),
        };
        if port.index.is_some() {
            self.order_port(port.number, PortChange::SetUp(port.state == PortState::Up), Vec::new())?;
        }
        Ok(())
    }
}

const GONE: &str = "is gone: it was deleted or moved to another network namespace; the port opens again by \
                    itself once an interface of this name is here and up, or delete it: p4shield switch port \
                    delete";
const NO_CARRIER: &str = "has no carrier; connect its cable, or bring its other end up";

/// Notes that a DPDK device is lost.
fn keep_device(port: &mut Port, why: Option<&str>) {
    if let Some(why) = why {
        (port.state, port.why) = (PortState::Gone, why.to_owned());
    }
}

/// Logs a change of a port's state, or that it has other sockets.
fn report(before: &Port, now: &Port) {
    let (port, interface) = (now.number, &now.interface);
    match now.problem() {
        Some(problem) if now.why != before.why => {
            tracing::warn!(event = "switch_port_down", port, interface, "{problem}");
        }
        None => tracing::info!(event = "switch_port_up", port, interface, "port {port}: {interface} is up"),
        Some(_) => {}
    }
}
