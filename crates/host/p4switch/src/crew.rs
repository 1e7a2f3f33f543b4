//! The packet threads: the round of each, and the start and end of those beside the first.

use crate::noting::PacketSwitch;
use crate::order::Inbox;
use crate::surroundings::Restriction;
use p4shield_io::ports::{self, FurtherPorts};
use p4shield_runtime::sandbox::SandboxError;
use p4shield_switch::{Links, Noted, PacketIo as _, PortError, Seat};
use p4shield_text::chain;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

/// Longest sleep of a packet thread, after which it looks for the request to stop.
pub(crate) const SLEEP: Duration = Duration::from_millis(50);

/// A packet thread that has not started.
struct Member {
    seat: Seat,
    ports: FurtherPorts,
    links: Links,
    inbox: Inbox,
}

/// The packet threads beside the first, before they start.
pub(crate) struct Crew {
    members: Vec<Member>,
    restriction: Restriction,
}

/// The reason why a packet thread does not start.
#[derive(Debug)]
pub(crate) enum StartError {
    /// It cannot use its part of the ports.
    Ports(ports::Error),
    /// Its ports do not have the numbers of the first thread's.
    Numbers(PortError),
    /// It cannot filter its system calls.
    Sandbox(SandboxError),
    /// The system has no thread left.
    System(std::io::Error),
}

/// Those that run. Dropping it ends them.
pub(crate) struct Running {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Crew {
    /// Gathers the parts of each.
    pub(crate) fn new(
        first: &PacketSwitch,
        ports: Vec<FurtherPorts>,
        links: Vec<Links>,
        inboxes: Vec<Inbox>,
        restriction: Restriction,
    ) -> Self {
        let parts = ports.into_iter().zip(links).zip(inboxes);
        let member = |((ports, links), inbox)| Member { seat: first.seat(), ports, links, inbox };
        Self { members: parts.map(member).collect(), restriction }
    }

    /// Starts the threads, and waits until each has its ports.
    ///
    /// # Errors
    /// [`StartError`]; then none runs.
    pub(crate) fn start(self, problems: &Arc<Mutex<Vec<String>>>) -> Result<Running, StartError> {
        let mut running = Running { stop: Arc::default(), threads: Vec::new() };
        let restriction = self.restriction;
        for (number, member) in (2..).zip(self.members) {
            let (stop, problems) = (Arc::clone(&running.stop), Arc::clone(problems));
            let builder = std::thread::Builder::new().name(format!("packets-{number}"));
            let (tell, hear) = mpsc::channel();
            let work = move || match member.begin(restriction) {
                Ok((mut switch, mut inbox)) => {
                    // The first thread hears it, unless the switch ends.
                    let _ = tell.send(Ok(()));
                    while !stop.load(Ordering::Relaxed) {
                        step(&mut switch, &mut inbox, &problems);
                    }
                }
                Err(error) => drop(tell.send(Err(error))),
            };
            running.threads.push(builder.spawn(work).map_err(StartError::System)?);
            let panicked = |_| Err(StartError::System(std::io::Error::other("a packet thread panicked")));
            hear.recv().unwrap_or_else(panicked)?;
        }
        Ok(running)
    }
}

impl Member {
    /// Makes the switch of the calling thread.
    fn begin(self, restriction: Restriction) -> Result<(PacketSwitch, Inbox), StartError> {
        let Self { seat, ports, links, inbox } = self;
        let ways = ports.ways.clone();
        let ports = ports.into_ports().map_err(StartError::Ports)?;
        let mut switch = seat.take(Noted::new(ports, None)).map_err(StartError::Numbers)?;
        switch.set_links(links, &ways);
        restriction.apply().map_err(StartError::Sandbox)?;
        Ok((switch, inbox))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // It has no panic to pass on that its end would change.
            let _ = thread.join();
        }
    }
}

/// Forwards a batch of each port, and executes orders; sleeps if there was nothing to do.
pub(crate) fn step(switch: &mut PacketSwitch, inbox: &mut Inbox, problems: &Mutex<Vec<String>>) {
    let received = switch.round().unwrap_or_else(|error| note(problems, &error));
    inbox.serve(switch);
    if received > 0 {
        return;
    }
    if switch.awaits_answers() {
        // The compartment may need this core.
        std::thread::yield_now();
        return;
    }
    if switch.doze() {
        let longest = switch.next_release().map_or(SLEEP, |due| due.min(SLEEP));
        if let Err(error) = switch.io().wait(longest, Some(inbox.bell())) {
            note(problems, &error);
        }
    }
    switch.awake();
    inbox.silence();
}

/// Notes a problem, once. Returns that nothing was received.
fn note(problems: &Mutex<Vec<String>>, error: &(dyn std::error::Error + 'static)) -> usize {
    let text = chain(error);
    let mut problems = problems.lock().unwrap_or_else(PoisonError::into_inner);
    if !problems.contains(&text) {
        tracing::error!(event = "port_failed", "{text}");
        problems.push(text);
    }
    0
}
