//! The packet threads: the round of each, and the start and end of those beside the first.

use crate::order::Inbox;
use p4shield_io::ports::{FurtherPorts, Ports};
use p4shield_switch::{Links, PacketIo as _, PortError, Seat, Switch};
use p4shield_text::chain;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
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
pub(crate) struct Crew(Vec<Member>);

/// Those that run. Dropping it ends them.
pub(crate) struct Running {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Crew {
    /// Gathers the parts of each.
    pub(crate) fn new(
        first: &Switch<Ports>,
        ports: Vec<FurtherPorts>,
        links: Vec<Links>,
        inboxes: Vec<Inbox>,
    ) -> Self {
        let parts = ports.into_iter().zip(links).zip(inboxes);
        let member = |((ports, links), inbox)| Member { seat: first.seat(), ports, links, inbox };
        Self(parts.map(member).collect())
    }

    /// Starts the threads.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(crate) fn start(self, problems: &Arc<Mutex<Vec<String>>>) -> std::io::Result<Running> {
        let mut running = Running { stop: Arc::default(), threads: Vec::new() };
        for (number, member) in (2..).zip(self.0) {
            let (stop, problems) = (Arc::clone(&running.stop), Arc::clone(problems));
            let builder = std::thread::Builder::new().name(format!("packets-{number}"));
            let work = move || {
                if let Err(error) = member.serve(&stop, &problems) {
                    note(&problems, &error);
                }
            };
            running.threads.push(builder.spawn(work)?);
        }
        Ok(running)
    }
}

impl Member {
    fn serve(self, stop: &AtomicBool, problems: &Mutex<Vec<String>>) -> Result<(), PortError> {
        let Self { seat, ports, links, mut inbox } = self;
        let ways = ports.ways.clone();
        let mut switch = seat.take(ports.into_ports())?;
        switch.set_links(links, &ways);
        while !stop.load(Ordering::Relaxed) {
            step(&mut switch, &mut inbox, problems);
        }
        Ok(())
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
pub(crate) fn step(switch: &mut Switch<Ports>, inbox: &mut Inbox, problems: &Mutex<Vec<String>>) {
    let received = switch.round().unwrap_or_else(|error| note(problems, &error));
    inbox.serve(switch);
    if received > 0 {
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
