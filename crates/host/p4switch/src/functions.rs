//! Placement `extern`: the program's functions that are marked with `@compartment` run in a P4 VM's process.
//!
//! ```text
//!   packet thread ──message──► channel ──► P4 VM: runs the function ──► channel ──answer──► packet thread
//!   functions: starts the P4 VM, gives it the functions and each packet thread a channel; does so again when
//!              it has ended
//! ```
//!
//! While the P4 VM is gone, calls have no answer ([`p4shield_switch::CallFail`]). Its sandbox, limits and
//! verifier are those of any P4 VM; it gets no file, no key and no packet.

use crate::apart::{Apart, Exchange, FunctionsConfig, Line, Next, ring};
use crate::api::FunctionsStatus;
use crate::desk::Desk;
use crate::order::Work;
use backon::BackoffBuilder as _;
use p4shield_compartment::{Compartment, RESTART_PAUSES};
use p4shield_switch::{CallPort, CallSettings, NoCompartment};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time for the P4 VM to end in order.
const GRACE: Duration = Duration::from_secs(1);
/// Time between two looks whether the P4 VM runs.
const LOOK: Duration = Duration::from_millis(200);
/// A P4 VM that ran for so long starts at once when it ends.
const RUNS_WELL: Duration = Duration::from_secs(10);

/// The thread that keeps the P4 VM. Dropping it ends both.
pub(crate) struct Functions {
    stop: Arc<AtomicBool>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

/// The P4 VM's keeper.
struct Keeping {
    desk: Arc<Desk>,
    /// The functions; `None` while the program has none.
    config: Option<FunctionsConfig>,
    orders: Receiver<Exchange>,
    stop: Arc<AtomicBool>,
    wake: Arc<OwnedFd>,
}

impl Functions {
    /// Starts the P4 VM, and the thread that keeps it. The packet threads execute orders meanwhile.
    ///
    /// # Errors
    /// The P4 VM does not start, or refuses the functions.
    pub(crate) fn start(desk: &Arc<Desk>, config: FunctionsConfig) -> Result<Self, String> {
        let failed = |e: std::io::Error| format!("cannot start the compartment's thread: {e}");
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let wake = Arc::new(wake.map_err(|e| failed(e.into()))?);
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, orders) = channel();
        let line = Line::new(config.clone(), sender, Arc::clone(&wake));
        let keeping = Keeping {
            desk: Arc::clone(desk),
            config: Some(config),
            orders,
            stop: Arc::clone(&stop),
            wake: Arc::clone(&wake),
        };
        let first = keeping.begin()?.ok_or("no function")?;
        *desk.apart.lock().unwrap_or_else(PoisonError::into_inner) = Some(line);
        let builder = std::thread::Builder::new().name("functions".to_owned());
        let thread = builder.spawn(move || keeping.keep(first)).map_err(failed)?;
        Ok(Self { stop, wake, thread: Some(thread) })
    }
}

impl Drop for Functions {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        ring(&self.wake);
        if let Some(thread) = self.thread.take() {
            // It has no panic to pass on that its end would change.
            let _ = thread.join();
        }
    }
}

impl Keeping {
    /// Starts the P4 VM and gives each packet thread a channel to it; `None` without functions.
    fn begin(&self) -> Result<Option<Box<dyn Compartment>>, String> {
        let Some(config) = &self.config else { return Ok(None) };
        self.connect(Apart::start(config, self.desk.threads.count())?).map(Some)
    }

    /// Gives each packet thread a channel to a P4 VM.
    fn connect(&self, apart: Apart) -> Result<Box<dyn Compartment>, String> {
        let Apart { p4vm, channels } = apart;
        for (thread, channel) in channels.into_iter().enumerate() {
            if let Err(why) = self.set_calls(thread, Box::new(channel)) {
                p4vm.end(Duration::ZERO);
                return Err(why);
            }
        }
        let pid = p4vm.pid().as_raw_nonzero().get();
        self.note(|status| (status.pid, status.problem) = (Some(pid), None));
        Ok(p4vm)
    }

    /// Replaces a packet thread's way to the compartment.
    fn set_calls(&self, thread: usize, port: Box<dyn CallPort>) -> Result<(), String> {
        let settings = |c: &FunctionsConfig| {
            let (deadline, fail) = (c.deadline, c.fail);
            Box::new(CallSettings { port, deadline, fail })
        };
        let settings = self.config.as_ref().map(settings);
        self.desk.threads.execute_on(thread, Work::Calls(settings)).map(drop)
    }

    /// Has the packet threads call other functions. Returns their P4 VM.
    fn exchange(&mut self, next: Option<Next>) -> Result<Option<Box<dyn Compartment>>, String> {
        let Some(Next { config, apart }) = next else {
            self.config = None;
            self.disconnect();
            *self.desk.functions.lock().unwrap_or_else(PoisonError::into_inner) = None;
            return Ok(None);
        };
        self.config = Some(config);
        self.connect(apart).map(Some)
    }

    /// Has no packet of a packet thread get an answer.
    fn disconnect(&self) {
        for thread in 0..self.desk.threads.count() {
            // The switch is about to end if a packet thread does not answer.
            let _ = self.set_calls(thread, Box::new(NoCompartment));
        }
    }

    /// Keeps the P4 VM running until the switch ends.
    fn keep(mut self, first: Box<dyn Compartment>) {
        let mut running = Some((first, Instant::now()));
        let mut pauses = RESTART_PAUSES.build();
        while self.goes_on() {
            if let Ok((next, reply)) = self.orders.try_recv() {
                let old = running.take();
                let next = self.exchange(next);
                // The desk waits for it, unless the switch ends.
                let _ = reply.send(next.as_ref().map(drop).map_err(Clone::clone));
                running = next.ok().flatten().map(|p4vm| (p4vm, Instant::now()));
                old.into_iter().for_each(|(p4vm, _)| drop(p4vm.end(GRACE)));
                pauses = RESTART_PAUSES.build();
                continue;
            }
            let Some((mut p4vm, since)) = running.take() else {
                match self.begin() {
                    Ok(Some(p4vm)) => running = Some((p4vm, Instant::now())),
                    Ok(None) => self.pause(LOOK),
                    Err(why) => {
                        self.report(why);
                        self.pause(pauses.next().unwrap_or(LOOK));
                    }
                }
                continue;
            };
            if !p4vm.wait(self.wake.as_fd(), LOOK) {
                running = Some((p4vm, since));
                continue;
            }
            self.lose(p4vm.end(Duration::ZERO));
            if since.elapsed() > RUNS_WELL {
                pauses = RESTART_PAUSES.build();
            }
            self.pause(pauses.next().unwrap_or(LOOK));
        }
        if let Some((p4vm, _)) = running {
            p4vm.end(GRACE);
        }
    }

    /// Notes that the P4 VM has ended. Packets that wait for it get no answer.
    fn lose(&self, how: String) {
        self.disconnect();
        self.note(|status| (status.pid, status.restarts) = (None, status.restarts + 1));
        self.report(format!("it has ended: {how}"));
    }

    fn report(&self, why: String) {
        tracing::warn!(event = "functions_ended", "the compartment with the program's functions: {why}");
        let problem = format!("the compartment with the program's functions: {why}; it is started again");
        self.note(|status| status.problem = Some(problem));
    }

    fn note(&self, change: impl FnOnce(&mut FunctionsStatus)) {
        let mut functions = self.desk.functions.lock().unwrap_or_else(PoisonError::into_inner);
        change(functions.get_or_insert_default());
    }

    /// Returns false once the switch ends.
    fn goes_on(&self) -> bool {
        // Before it looks: what rings later is seen later.
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        !self.stop.load(Ordering::Relaxed)
    }

    /// Waits, but not longer than the switch runs or until an order comes.
    fn pause(&self, time: Duration) {
        let mut wake = [PollFd::new(&self.wake, PollFlags::IN)];
        // A signal ends it early, which costs nothing.
        let _ = poll(&mut wake, Timespec::try_from(time).ok().as_ref());
    }
}
