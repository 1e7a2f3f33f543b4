//! Programs that are read again, as the configuration has them now.
//!
//! Each tenant's keeper does the work, and a P4 VM that hangs has its own keeper wait for it. So several tenants are seen to at
//! a time: one that hangs holds up nobody's programs but its own. Not all at once, since each verification takes a
//! processor, and those of honest tenants should come to their end in time.

use super::Shared;
use crate::config::{Config, Tenant};
use crate::tenant::{AS_BEFORE, Load};
use crate::text::chain;
use p4shield_abi::Direction;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, ScopedJoinHandle, scope};

/// Tenants that are seen to at a time.
const AT_ONCE: usize = 32;

/// What came of programs.
#[derive(Debug, Default)]
struct Outcome {
    loaded: usize,
    same: usize,
    /// By tenant's index, for the order of what is said.
    refused: Vec<(usize, String)>,
}

impl Shared {
    /// Reads the configuration again and loads its programs.
    ///
    /// # Errors
    /// The configuration is wrong, or has changed in more than programs; or programs were refused.
    pub(crate) fn reload(&self) -> Result<String, String> {
        let new = Config::load(&self.config.file).map_err(|e| chain(&e))?;
        // All but the programs is fixed for the daemon's life.
        if without_programs(&new) != without_programs(&self.config) {
            return Err("more than programs has changed; restart the daemon to apply it".to_owned());
        }
        let next = AtomicUsize::new(0);
        let work = || self.reload_one_by_one(&new.tenants, &next);
        let Outcome { loaded, same, mut refused } = scope(|scope| {
            let helper = || Builder::new().name("reload".to_owned()).spawn_scoped(scope, work);
            // This thread works, too. Where no thread can be had the others do its part.
            let helpers: Vec<_> = (1..AT_ONCE.min(new.tenants.len())).map_while(|_| helper().ok()).collect();
            helpers.into_iter().map(joined).fold(work(), Outcome::and)
        });
        if refused.is_empty() {
            return Ok(format!("{loaded} programs replaced, {same} as before"));
        }
        refused.sort_by_key(|(tenant, _)| *tenant);
        Err(refused.into_iter().map(|(_, what)| what).collect::<Vec<_>>().join("\n"))
    }

    /// Sees to tenants that nobody sees to, until there are none.
    fn reload_one_by_one(&self, tenants: &[Tenant], next: &AtomicUsize) -> Outcome {
        let mut outcome = Outcome::default();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(tenant) = tenants.get(index) else { return outcome };
            self.reload_tenant(index, tenant, &mut outcome);
        }
    }

    fn reload_tenant(&self, index: usize, tenant: &Tenant, outcome: &mut Outcome) {
        for vm in &tenant.vms {
            for direction in Direction::ALL {
                let files = &vm.programs[direction as usize];
                match self.load(&tenant.name, &vm.name, direction.name(), files, Load::IfChanged) {
                    Ok(_) if files.is_empty() => {}
                    Ok(text) if text == AS_BEFORE => outcome.same += 1,
                    Ok(_) => outcome.loaded += 1,
                    Err(e) => {
                        let what = format!("{} {} {}: {e}", tenant.name, vm.name, direction.name());
                        outcome.refused.push((index, what));
                    }
                }
            }
        }
    }
}

impl Outcome {
    /// Both together.
    fn and(mut self, other: Self) -> Self {
        self.loaded += other.loaded;
        self.same += other.same;
        self.refused.extend(other.refused);
        self
    }
}

fn joined<T>(handle: ScopedJoinHandle<'_, T>) -> T {
    handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// A configuration as text, its programs left out.
fn without_programs(config: &Config) -> String {
    let mut config = config.clone();
    for vm in config.tenants.iter_mut().flat_map(|t| &mut t.vms) {
        vm.programs = Default::default();
    }
    format!("{config:?}")
}
