//! Reloading: reads the configuration again and loads the programs that changed.
//!
//! Each tenant's supervisor loads its programs and waits if its P4 VM hangs. Several tenants are therefore
//! reloaded at a time, so that a P4 VM that hangs delays the programs of its own tenant only. The number is
//! bounded because each verification takes a core, and the verifications of honest tenants must end in time.

use crate::config::{Config, Tenant};
use crate::state::DaemonState;
use crate::supervisor::{LoadMode, UNCHANGED};
use crate::text::chain;
use p4shield_abi::Direction;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, ScopedJoinHandle, scope};

/// Tenants that are reloaded at a time.
const PARALLEL: usize = 32;

/// How many programs were loaded, and which were refused.
#[derive(Debug, Default)]
struct ReloadSummary {
    loaded: usize,
    unchanged: usize,
    /// With the tenant's index, by which the report is ordered.
    refused: Vec<(usize, String)>,
}

impl DaemonState {
    /// Reads the configuration again and loads the programs that changed. Returns a summary.
    ///
    /// # Errors
    /// The configuration is invalid, or differs in more than its programs; or programs were refused.
    pub(crate) fn reload(&self) -> Result<String, String> {
        let new = Config::load(&self.config.file).map_err(|e| chain(&e))?;
        // Everything but the programs is fixed while the daemon runs.
        if without_programs(&new) != without_programs(&self.config) {
            return Err(
                "the configuration differs in more than its programs; restart the daemon to apply it"
                    .to_owned(),
            );
        }
        let next = AtomicUsize::new(0);
        let reload = || self.reload_next_tenants(&new.tenants, &next);
        let ReloadSummary { loaded, unchanged, mut refused } = scope(|scope| {
            let helper = || Builder::new().name("reload".to_owned()).spawn_scoped(scope, reload);
            // This thread reloads tenants too. A helper that cannot be started is not needed.
            let helpers: Vec<_> = (1..PARALLEL.min(new.tenants.len())).map_while(|_| helper().ok()).collect();
            helpers.into_iter().map(joined).fold(reload(), ReloadSummary::merge)
        });
        if refused.is_empty() {
            return Ok(format!("{loaded} programs replaced, {unchanged} unchanged"));
        }
        refused.sort_by_key(|(tenant, _)| *tenant);
        Err(refused.into_iter().map(|(_, refusal)| refusal).collect::<Vec<_>>().join("\n"))
    }

    /// Reloads tenants that no other thread has taken, until there are none.
    fn reload_next_tenants(&self, tenants: &[Tenant], next: &AtomicUsize) -> ReloadSummary {
        let mut summary = ReloadSummary::default();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(tenant) = tenants.get(index) else { return summary };
            self.reload_tenant(index, tenant, &mut summary);
        }
    }

    fn reload_tenant(&self, index: usize, tenant: &Tenant, summary: &mut ReloadSummary) {
        for vm in &tenant.vms {
            for direction in Direction::ALL {
                let files = &vm.programs[direction as usize];
                match self.load(&tenant.name, &vm.name, direction.name(), files, LoadMode::IfChanged) {
                    Ok(_) if files.is_empty() => {}
                    Ok(text) if text == UNCHANGED => summary.unchanged += 1,
                    Ok(_) => summary.loaded += 1,
                    Err(e) => {
                        let refusal = format!("{} {} {}: {e}", tenant.name, vm.name, direction.name());
                        summary.refused.push((index, refusal));
                    }
                }
            }
        }
    }
}

impl ReloadSummary {
    fn merge(mut self, other: Self) -> Self {
        self.loaded += other.loaded;
        self.unchanged += other.unchanged;
        self.refused.extend(other.refused);
        self
    }
}

fn joined<T>(handle: ScopedJoinHandle<'_, T>) -> T {
    handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Returns the configuration without its programs, for comparison.
fn without_programs(config: &Config) -> Config {
    let mut config = config.clone();
    for vm in config.tenants.iter_mut().flat_map(|t| &mut t.vms) {
        vm.programs = Default::default();
    }
    config
}
