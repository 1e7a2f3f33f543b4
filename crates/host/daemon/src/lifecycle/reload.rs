//! Reloading: applies a changed configuration while packets flow.
//!
//! ```text
//!   prepare   every tenant's supervisor verifies, creates and reads what is new    may fail: nothing changes
//!   commit    P4 VMs get new VMs and programs
//!   switch    the attachment gets tenants, addresses, policies and ports
//!   finish    new tenants are connected; what is gone is removed
//! ```
//!
//! Tenants are prepared at the same time, and a P4 VM that hangs delays no other tenant: its supervisor takes
//! the change when the P4 VM has answered or was replaced. The number is bounded because each verification
//! takes a core, and the verifications of honest tenants must end in time.

use crate::api;
use crate::config::Config;
use crate::lifecycle::reload_report::ReloadReport;
use crate::lifecycle::state::{DaemonState, Running};
use crate::metrics;
use crate::status::State;
use crate::status::problem;
use crate::status::problems::replaced_key_file;
use crate::supervisor::{ChangeSummary, Supervisor, TenantChange};
use p4shield_scrape::Server;
use p4shield_text::chain;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, scope};
use std::time::{Duration, Instant};

/// Tenants that are prepared at a time.
const PARALLEL: usize = 32;
/// Longest time until the P4 VM of a new tenant runs.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval of checks whether it does.
const START_CHECK: Duration = Duration::from_millis(10);

/// How a kept tenant takes the change.
enum Step {
    /// It is prepared.
    Ready(ChangeSummary),
    /// Its P4 VM does not answer.
    Late(Box<TenantChange>),
}

/// A change from one configuration to another.
struct Reload<'d> {
    state: &'d DaemonState,
    before: Running,
    config: Arc<Config>,
    /// By number, for tenants that both configurations have.
    steps: Vec<(usize, Step)>,
    /// Supervisors of new tenants.
    started: Vec<(usize, Arc<Supervisor>)>,
}

impl DaemonState {
    /// Reads the configuration again and applies what changed, or only reports it if `dry_run`.
    ///
    /// # Errors
    /// The configuration is invalid, needs a restart, or names files or programs that are refused: nothing
    /// has changed.
    pub(crate) fn reload(self: &Arc<Self>, dry_run: bool) -> Result<ReloadReport, String> {
        let _one_at_a_time = self.reloading.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.running();
        let (config, report) = self.compare(&before, &before.config.file)?;
        if dry_run {
            return Ok(ReloadReport { dry_run: true, rotated: self.replaced_keys(), ..report });
        }
        let config = Arc::new(config);
        let mut reload = Reload { state: self, before, config, steps: Vec::new(), started: Vec::new() };
        if let Err(refusal) = reload.prepare() {
            reload.discard();
            return Err(format!("{refusal}\nnothing was changed"));
        }
        let report = reload.complete(report);
        reload.apply()?;
        let config = self.running().config;
        self.tenant_sockets().update(&config, |tenant, socket| api::serve_tenant(tenant, socket, self));
        self.tenant_switches.update(&config).map_err(|e| format!("the tenants' switches: {e}"))?;
        self.serve_metrics()?;
        Ok(report)
    }

    /// Reports what the configuration in `file` would change, and what it names that is absent.
    ///
    /// # Errors
    /// As of [`Self::reload`].
    pub(crate) fn preview(&self, file: &Path) -> Result<ReloadReport, String> {
        let (_, report) = self.compare(&self.running(), file)?;
        Ok(ReloadReport { dry_run: true, ..report })
    }

    /// Returns the key files that a reload would rotate to.
    fn replaced_keys(&self) -> Vec<String> {
        let running = self.running();
        let mut paths = Vec::new();
        for status in self.status().tenants {
            let Some((_, tenant)) = running.config.tenant(&status.name) else { continue };
            paths.extend(status.vms.iter().filter_map(|vm| replaced_key_file(tenant, vm)));
            paths.dedup();
        }
        paths.iter().map(|path| path.display().to_string()).collect()
    }

    /// Reads a configuration and compares it with the one in force.
    fn compare(&self, before: &Running, file: &Path) -> Result<(Config, ReloadReport), String> {
        let config = Config::load(file).map_err(|e| chain(&e))?.numbered_like(&before.config);
        let fixed = before.config.changes_for_a_restart(&config);
        if !fixed.is_empty() {
            let keys = fixed.join("\n  ");
            return Err(format!("nothing was changed; restart the daemon to change\n  {keys}"));
        }
        self.tenant_switches.check(&config).map_err(|e| format!("nothing was changed; {e}"))?;
        let changes = before.config.changes(&config).iter().map(ToString::to_string).collect();
        let problems = problem::lines(&self.attachment.preview(&config));
        Ok((config, ReloadReport { changes, problems, ..ReloadReport::default() }))
    }

    /// Serves metrics where the configuration says.
    fn serve_metrics(self: &Arc<Self>) -> Result<(), String> {
        let address = self.running().config.daemon.metrics;
        let mut http = self.http();
        if http.as_ref().map(Server::configured) == address {
            return Ok(());
        }
        drop(http.take());
        let started = address.map(|a| metrics::serve(a, self)).transpose();
        *http = started.map_err(|e| chain(&e))?;
        Ok(())
    }
}

impl Reload<'_> {
    /// Prepares everything that may fail.
    fn prepare(&mut self) -> Result<(), String> {
        self.state.attachment.check(&self.config)?;
        let changes: Vec<_> = self.config.numbered_tenants().map(|(n, _)| (n, self.change(n))).collect();
        let mut kept = Vec::new();
        for (number, change) in changes {
            match self.before.supervisor(number) {
                Some(supervisor) => kept.push((number, Arc::clone(supervisor), change)),
                None => self.start(number)?,
            }
        }
        self.prepare_kept(kept)?;
        self.await_started()
    }

    /// Returns what changes for a tenant.
    fn change(&self, number: usize) -> TenantChange {
        let tenant = self.config.tenants[number].clone();
        let command = self.state.starter.command(&self.config, number, &tenant);
        TenantChange { tenant, command, adoption_time: self.config.daemon.adoption_time }
    }

    /// Starts the supervisor of a new tenant.
    fn start(&mut self, number: usize) -> Result<(), String> {
        let supervisor = self.state.starter.start(&self.config, number, &self.state.attachment, false);
        let name = &self.config.tenants[number].name;
        let supervisor = supervisor.map_err(|e| format!("tenant {name}: cannot start a supervisor: {e}"))?;
        self.started.push((number, Arc::new(supervisor)));
        Ok(())
    }

    /// Prepares the tenants that both configurations have. Returns the first refusal by number.
    fn prepare_kept(&mut self, kept: Vec<(usize, Arc<Supervisor>, TenantChange)>) -> Result<(), String> {
        let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let count = kept.len();
        let kept: Vec<_> = kept.into_iter().map(|k| Mutex::new(Some(k))).collect();
        let work = || {
            while let Some(taken) = kept.get(next.fetch_add(1, Ordering::Relaxed)) {
                let taken = taken.lock().unwrap_or_else(PoisonError::into_inner).take();
                let Some((number, supervisor, change)) = taken else { continue };
                let prepared = supervisor.prepare(change);
                results.lock().unwrap_or_else(PoisonError::into_inner).push((number, prepared));
            }
        };
        scope(|scope| {
            // This thread prepares tenants, too. A helper that cannot be started is not needed.
            let helper = || Builder::new().name("reload".to_owned()).spawn_scoped(scope, work);
            let helpers: Vec<_> = (1..PARALLEL.min(count)).map_while(|_| helper().ok()).collect();
            work();
            drop(helpers);
        });
        let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
        results.sort_by_key(|(number, _)| *number);
        let mut refusals = Vec::new();
        for (number, result) in results {
            match result {
                Ok(Ok(summary)) => self.steps.push((number, Step::Ready(summary))),
                Ok(Err(refusal)) => refusals.push(refusal),
                Err(change) => self.steps.push((number, Step::Late(change))),
            }
        }
        if refusals.is_empty() { Ok(()) } else { Err(refusals.join("\n")) }
    }

    /// Waits until the P4 VMs of new tenants run.
    fn await_started(&self) -> Result<(), String> {
        let end = Instant::now() + START_TIMEOUT;
        for (number, supervisor) in &self.started {
            let tenant = &self.config.tenants[*number];
            loop {
                let report = supervisor.report().clone();
                if report.state == State::Running {
                    let refusals = report.refusals.iter().flatten().flatten();
                    if let Some(refusal) = refusals.into_iter().next() {
                        return Err(format!("tenant {}: {refusal}", tenant.name));
                    }
                    break;
                }
                if let Some(error) = report.error {
                    return Err(format!("tenant {}: {error}", tenant.name));
                }
                if Instant::now() > end {
                    return Err(format!("tenant {}: its P4 VM does not start", tenant.name));
                }
                std::thread::sleep(START_CHECK);
            }
        }
        Ok(())
    }

    /// Undoes the preparation.
    fn discard(self) {
        let kept = self.before.supervisors.iter().flatten();
        kept.for_each(|supervisor| supervisor.discard());
        self.started.iter().for_each(|(_, supervisor)| supervisor.request_stop());
        self.started.iter().for_each(|(_, supervisor)| supervisor.stop());
    }

    /// Adds what happens to programs and P4 VMs.
    fn complete(&self, mut report: ReloadReport) -> ReloadReport {
        for (number, step) in &self.steps {
            let name = &self.config.tenants[*number].name;
            match step {
                Step::Ready(summary) => {
                    report.replaced += summary.replaced;
                    report.unchanged += summary.unchanged;
                    report.refused.extend(summary.refused.iter().cloned());
                    report.rotated.extend(summary.rotated.iter().cloned());
                    report.restarted.extend(summary.restarts.then(|| name.clone()));
                }
                Step::Late(_) => report.late.push(name.clone()),
            }
        }
        report
    }

    /// Applies what is prepared.
    fn apply(self) -> Result<(), String> {
        let Self { state, before, config, steps, started } = self;
        let mut supervisors = vec![None; config.tenants.len()];
        let mut ready = Vec::new();
        for (number, step) in steps {
            let Some(supervisor) = before.supervisor(number) else { continue };
            match step {
                Step::Ready(_) => ready.push(Arc::clone(supervisor)),
                Step::Late(change) => supervisor.adopt(change),
            }
            supervisors[number] = Some(Arc::clone(supervisor));
        }
        in_parallel(&ready, Supervisor::commit);
        state.starter.programs.forget_temporary();
        let applied = state.attachment.reconfigure(&config);
        for (number, supervisor) in &started {
            supervisors[*number] = Some(Arc::clone(supervisor));
        }
        state.set_running(Running { config: Arc::clone(&config), supervisors });
        if let Err(error) = state.starter.adoption.save_running(&config) {
            tracing::warn!(event = "adoption_unavailable", %error, "no other daemon could adopt the P4 VMs");
        }
        started.iter().for_each(|(_, supervisor)| supervisor.connect());
        in_parallel(&ready, Supervisor::finish);
        let is_gone = |(number, _): &(usize, _)| config.tenants.get(*number).is_none_or(|t| t.is_vacant());
        let gone = before.supervisors.iter().enumerate().filter(is_gone).filter_map(|(_, s)| s.as_ref());
        let gone: Vec<_> = gone.cloned().collect();
        in_parallel(&gone, Supervisor::stop);
        applied
    }
}

/// Calls `work` for each supervisor, several at a time.
fn in_parallel(supervisors: &[Arc<Supervisor>], work: fn(&Supervisor)) {
    let next = AtomicUsize::new(0);
    let run = || {
        while let Some(supervisor) = supervisors.get(next.fetch_add(1, Ordering::Relaxed)) {
            work(supervisor);
        }
    };
    scope(|scope| {
        let helper = || Builder::new().name("reload".to_owned()).spawn_scoped(scope, run);
        let helpers: Vec<_> = (1..PARALLEL.min(supervisors.len())).map_while(|_| helper().ok()).collect();
        run();
        drop(helpers);
    });
}
