//! The handle of a running loop.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;

use p4shield_afxdp::{FramePool, Umem};
use p4shield_channel::Waiter;
use p4shield_mediator::{self as mediator, Counters, Mediator, P4VmChannel};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::config::{LoopConfig, WireConfig};
use crate::counters::{Snapshot, WireStatus};
use crate::engine::{Engine, WirePacket};
use crate::mailbox::{Caller, Jobs, jobs};
use crate::supervisor::{Supervisor, SupervisorJob};
use crate::{EngineJob, Error, Result, WireId};

/// A loop: one thread that moves frames, and one that keeps the wires attached. Dropping it ends both.
#[derive(Debug)]
pub struct WireLoop {
    engine: Arc<Caller<EngineJob>>,
    supervisor: Caller<SupervisorJob>,
    counters: Mutex<Arc<Counters>>,
    control: Option<JoinHandle<()>>,
    hot: Option<JoinHandle<()>>,
}

impl WireLoop {
    /// Starts a loop without wires.
    ///
    /// # Errors
    /// If UMEM, threads or descriptors cannot be created, or the tenants are invalid.
    pub fn spawn(config: LoopConfig) -> Result<Self> {
        let umem = Umem::new(config.memory)?;
        let (engine, engine_jobs) = jobs()?;
        let (ready, started) = mpsc::channel();
        let (c, u) = (config.clone(), Arc::clone(&umem));
        let hot = start(&format!("wire-{}", config.name), move || hot_thread(&c, u, engine_jobs, &ready))?;
        let counters = Mutex::new(started.recv().map_err(|_| Error::Gone)??);
        let (supervisor, supervisor_jobs) = jobs()?;
        let mut this = Self { engine: Arc::new(engine), supervisor, counters, control: None, hot: Some(hot) };
        let (ready, started) = mpsc::channel();
        let engine = Arc::clone(&this.engine);
        let control = move || control_thread(config, umem, engine, supervisor_jobs, &ready);
        this.control = Some(start("wire-control", control)?);
        started.recv().map_err(|_| Error::Gone)??;
        Ok(this)
    }

    /// Adds a wire. Its interfaces are attached as soon as they exist; [`WireLoop::status`] reports the
    /// result.
    ///
    /// # Errors
    /// [`Error::Wire`] if the wire is invalid.
    pub fn add_wire(&self, config: WireConfig) -> Result<WireId> {
        self.supervisor.run(|s| s.add(config))?
    }

    /// Removes a wire and drops its held frames. Its interfaces stay closed to the host's own stack
    /// unless `open`.
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn remove_wire(&self, id: WireId, open: bool) -> Result<()> {
        self.supervisor.run(move |s| s.remove(id, open))?
    }

    /// Changes what is configured for a wire besides its interfaces.
    ///
    /// # Errors
    /// [`Error::Wire`] if the wire would be invalid, [`Error::Gone`] if there is no such wire.
    pub fn change_wire(&self, id: WireId, config: WireConfig) -> Result<()> {
        self.supervisor.run(move |s| s.change(id, config))?
    }

    /// Checks whether [`Self::change_tenants`] would succeed.
    ///
    /// # Errors
    /// [`Error::TenantMemory`], or an invalid configuration.
    pub fn check_tenants(&self, config: mediator::Config) -> Result<()> {
        self.supervisor.run(move |s| s.check_tenants(config).map(drop))?
    }

    /// Replaces the tenants while frames flow. Those that are the same by number and name keep their
    /// channels and held packets.
    ///
    /// # Errors
    /// [`Error::TenantMemory`] if the UMEM is too small for them; nothing has changed.
    pub fn change_tenants(&self, config: mediator::Config) -> Result<()> {
        let counters = self.supervisor.run(move |s| s.change_tenants(config))??;
        *self.counters.lock().unwrap_or_else(PoisonError::into_inner) = counters;
        Ok(())
    }

    /// Returns the status of all wires.
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn status(&self) -> Result<Vec<WireStatus>> {
        self.supervisor.run(Supervisor::status)?
    }

    /// Returns the wires' counters and the number of frames of each owner.
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn snapshot(&self) -> Result<Snapshot> {
        self.engine.run(|e| e.snapshot())
    }

    /// Returns the mediator's counters, which can be read at any time.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sets, replaces or removes the channel to a tenant's P4 VM.
    ///
    /// # Errors
    /// If there is no such tenant, or [`Error::Gone`].
    pub fn replace_channel(&self, tenant: usize, link: Option<P4VmChannel>) -> Result<()> {
        self.engine.run(move |e| e.replace_channel(tenant, link))?
    }

    /// Runs `f` on the mediator, on the loop's thread, between two rounds.
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn mediate<R: Send + 'static>(
        &self,
        f: impl for<'a, 'p> FnOnce(&'a mut Mediator<WirePacket<'p>>) -> R + Send + 'static,
    ) -> Result<R> {
        self.engine.run(move |e| f(e.mediator()))
    }

    /// Ends the loop: detaches all wires, whose interfaces stay closed, and waits for the threads.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        // The control thread first, since it uses the other one.
        if let Some(thread) = self.control.take() {
            let _ = self.supervisor.run(Supervisor::stop);
            let _ = thread.join();
        }
        if let Some(thread) = self.hot.take() {
            let _ = self.engine.run(|e| e.stop());
            let _ = thread.join();
        }
    }
}

impl Drop for WireLoop {
    fn drop(&mut self) {
        self.end();
    }
}

fn start(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.into()).spawn(work).map_err(Error::system("start a thread"))
}

fn enter(netns: Option<&Path>) -> Result<()> {
    let Some(path) = netns else { return Ok(()) };
    let what = || format!("enter the network namespace {}", path.display());
    let file = File::open(path).map_err(Error::system(what()))?;
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
        .map_err(|e| Error::system(what())(e.into()))
}

fn hot_thread(
    config: &LoopConfig,
    umem: Arc<Umem>,
    mut jobs: Jobs<EngineJob>,
    ready: &mpsc::Sender<Result<Arc<Counters>>>,
) {
    let pool = FramePool::new(umem);
    let mut engine = match Engine::new(config, &pool, jobs.as_fd()) {
        Ok(mut engine) => {
            let _ = ready.send(Ok(engine.mediator().counters()));
            engine
        }
        Err(e) => return drop(ready.send(Err(e))),
    };
    let mut waiter = Waiter::new(config.wait);
    while !engine.stopped() {
        if jobs.pending() {
            for job in jobs.take() {
                job(&mut engine);
            }
            // The job may have stopped the engine, and no event follows.
            continue;
        }
        let now = crate::now();
        if engine.step(now) {
            waiter.found_work();
        } else if let Err(error) = engine.idle(&mut waiter, now) {
            tracing::error!(event = "wire_loop_ended", %error, "the wire loop ends");
            return;
        }
    }
}

fn control_thread(
    config: LoopConfig,
    umem: Arc<Umem>,
    engine: Arc<Caller<EngineJob>>,
    jobs: Jobs<SupervisorJob>,
    ready: &mpsc::Sender<Result<()>>,
) {
    let supervisor = enter(config.netns.as_deref()).and_then(|()| Supervisor::new(config, umem, engine));
    match supervisor {
        Ok(mut supervisor) => {
            let _ = ready.send(Ok(()));
            supervisor.run(jobs);
        }
        Err(e) => {
            drop(jobs);
            let _ = ready.send(Err(e));
        }
    }
}
