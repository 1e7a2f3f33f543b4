//! The metrics of counters that a program marks with `@metric`.
//!
//! The daemon reads them when it is scraped. Tenants are read at a time, so that a P4 VM that answers slowly
//! costs its own tenant's counters only; the rows of a tenant are bounded.

use super::remote::{Ask, Remote, describe};
use super::running_slots;
use crate::config::Tenant;
use crate::lifecycle::state::DaemonState;
use crate::supervisor::Supervisor;
use p4shield_abi::Direction;
use p4shield_control::ProgramSlot;
use p4shield_scrape::{Family, Kind, Labels, with};
use p4shield_tables::MarkedCounters;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, scope};
use std::time::{Duration, Instant};

/// Longest time to read the counters of one tenant.
const LONGEST: Duration = Duration::from_secs(1);
/// The most rows of one tenant.
const ROWS_OF_TENANT: usize = 2048;
/// Tenants that are read at a time.
const PARALLEL: usize = 32;

/// The marked counters of a tenant.
#[derive(Debug, Default)]
struct TenantCounters {
    /// By VM and direction.
    programs: BTreeMap<(u16, u8), MarkedCounters>,
    /// Something could not be read.
    unread: bool,
}

/// Names of VMs, by their numbers.
type VmNames = BTreeMap<u16, String>;

/// The marked counters of all programs.
#[derive(Debug, Default)]
pub(crate) struct ProgramCounters {
    /// By tenant, with the names of the tenant and its VMs.
    tenants: Vec<(String, VmNames, TenantCounters)>,
}

impl DaemonState {
    /// Reads the marked counters of all programs.
    pub(crate) fn program_counters(&self) -> ProgramCounters {
        let running = self.running();
        let all: Vec<_> = running.config.numbered_tenants().collect();
        let next = AtomicUsize::new(0);
        let read_next = || {
            let mut read = Vec::new();
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some((t, tenant)) = all.get(at) else { return read };
                read.push((at, tenant_counters(running.supervisor(*t), tenant)));
            }
        };
        let mut read = scope(|scope| {
            let helper = || Builder::new().name("counters".to_owned()).spawn_scoped(scope, read_next);
            // This thread reads tenants too. A helper that cannot be started is not needed.
            let helpers: Vec<_> = (1..PARALLEL.min(all.len())).map_while(|_| helper().ok()).collect();
            let mut read = read_next();
            read.extend(helpers.into_iter().filter_map(|h| h.join().ok()).flatten());
            read
        });
        read.sort_by_key(|(at, _)| *at);
        let named = |(at, counters): (usize, TenantCounters)| {
            let tenant = all[at].1;
            let vms = tenant.numbered_vms().map(|(v, vm)| (v as u16, vm.name.clone())).collect();
            (tenant.name.clone(), vms, counters)
        };
        ProgramCounters { tenants: read.into_iter().map(named).collect() }
    }
}

fn tenant_counters(supervisor: Option<&Arc<Supervisor>>, tenant: &Tenant) -> TenantCounters {
    let mut counters = TenantCounters::default();
    let Some(supervisor) = supervisor else { return counters };
    let end = Instant::now() + LONGEST;
    let is_known = |slot: &ProgramSlot| tenant.numbered_vms().any(|(v, _)| v == usize::from(slot.vm));
    for slot in running_slots(supervisor).into_iter().filter(is_known) {
        if let Err(error) = counters.read(&mut |request| supervisor.ask(request, end), slot) {
            tracing::debug!(tenant = tenant.name, error, "counters are not read");
            counters.unread = true;
        }
    }
    counters
}

impl TenantCounters {
    /// Reads the marked counters of one program.
    fn read(&mut self, ask: &mut Ask<'_>, slot: ProgramSlot) -> Result<(), String> {
        let described = describe(ask, slot)?;
        let before: usize = self.programs.values().map(|p| p.rows.len()).sum();
        let counters = self.programs.entry((slot.vm, slot.direction)).or_default();
        let mut remote = Remote { ask: &mut *ask, slot };
        counters.read(&mut remote, &described, ROWS_OF_TENANT.saturating_sub(before))
    }
}

impl ProgramCounters {
    /// Returns the metrics.
    pub(crate) fn families(&self) -> Vec<Family> {
        let family = |name, kind, help| Family::new(name, kind, help);
        let help = "Packets in a counter that the program marks with @metric";
        let mut packets = family("program_counter_packets", Kind::Counter, help);
        let help = "Bytes in a counter that the program marks with @metric";
        let mut bytes = family("program_counter_bytes", Kind::Counter, help);
        let help = "Rows of a marked counter that are left out, because there are too many";
        let mut cut = family("program_counter_rows_cut", Kind::Gauge, help);
        let help = "Whether marked counters of the tenant could not be read in time";
        let mut unread = family("program_counters_unread", Kind::Gauge, help);
        for (tenant, vms, counters) in &self.tenants {
            unread.set(vec![("tenant", tenant.clone())], u64::from(counters.unread));
            for ((vm, direction), program) in &counters.programs {
                let labels = |counter: &str| labels((tenant, vms), (*vm, *direction, counter));
                for ((counter, index), counts) in &program.rows {
                    let labels = with(&labels(counter), "index", &index.to_string());
                    counts.packets.iter().for_each(|n| packets.add(labels.clone(), *n));
                    counts.bytes.iter().for_each(|n| bytes.add(labels.clone(), *n));
                }
                program.cut.iter().for_each(|(counter, n)| cut.set(labels(counter), *n));
            }
        }
        vec![packets, bytes, cut, unread]
    }
}

fn labels((tenant, vms): (&str, &VmNames), (vm, direction, counter): (u16, u8, &str)) -> Labels {
    vec![
        ("tenant", tenant.to_owned()),
        ("vm", vms.get(&vm).cloned().unwrap_or_default()),
        ("direction", Direction::from_u8(direction).map_or("", Direction::name).to_owned()),
        ("counter", counter.to_owned()),
    ]
}
