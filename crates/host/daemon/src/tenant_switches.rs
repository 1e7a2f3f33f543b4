//! The tenants' switches of the table `[topology]`: applied at the start and at each reload, and kept
//! running. They go on when the daemon ends, and the next one finds them.

use crate::config::{self, Config};
use crate::status::TopologyStatus;
use crate::status::problem::{Problem, ProblemKind};
use crate::users::first_user;
use p4shield_compartment::Cgroup;
use p4shield_tenantswitch::{EndPointStatus, Host, Keeper, SwitchStatus};
use p4shield_text::chain;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The tenants' switches.
pub(crate) struct TenantSwitches {
    binary: PathBuf,
    cgroup: Option<Arc<Cgroup>>,
    kept: Mutex<Option<Running>>,
}

struct Running {
    /// The table that says where they are.
    topology: config::Topology,
    host: Host,
    keeper: Keeper,
    /// Reason why there is no plan.
    refused: Option<String>,
}

/// Returns the host that has the tenants' switches of a configuration, which `binary` starts; `None`: it
/// has no table `[topology]`.
#[must_use]
pub fn host(config: &Config, binary: &Path) -> Option<Host> {
    let topology = config.topology.as_ref()?;
    Some(Host::new(binary.to_owned(), first_user(config), topology))
}

impl TenantSwitches {
    pub(crate) const fn new(binary: PathBuf, cgroup: Option<Arc<Cgroup>>) -> Self {
        Self { binary, cgroup, kept: Mutex::new(None) }
    }

    fn kept(&self) -> MutexGuard<'_, Option<Running>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says why a configuration's switches cannot be planned.
    ///
    /// # Errors
    /// They cannot.
    pub(crate) fn check(&self, config: &Config) -> Result<(), String> {
        let Some(host) = host(config, &self.binary) else { return Ok(()) };
        host.plan(config).map(drop).map_err(|e| format!("topology: {}", chain(&e)))
    }

    /// Has the switches be as the configuration says, soon. Without the table those of the configuration
    /// before are removed.
    ///
    /// # Errors
    /// No thread can be started.
    pub(crate) fn update(&self, config: &Config) -> std::io::Result<()> {
        let mut kept = self.kept();
        let Some(topology) = &config.topology else {
            if let Some(running) = &*kept {
                running.keeper.want(None);
            }
            return Ok(());
        };
        if kept.as_ref().is_none_or(|running| !is_at_the_same_place(&running.topology, topology)) {
            let Some(host) = host(config, &self.binary) else { return Ok(()) };
            let host = host.in_cgroups(self.cgroup.clone());
            let keeper = Keeper::start(host.clone())?;
            *kept = Some(Running { topology: topology.clone(), host, keeper, refused: None });
        }
        if let Some(running) = &mut *kept {
            match running.host.plan(config) {
                Ok(plan) => {
                    running.refused = None;
                    running.keeper.want(Some(plan));
                }
                Err(e) => running.refused = Some(chain(&e)),
            }
        }
        Ok(())
    }

    /// Returns the status, with problems; `None`: there are no switches.
    pub(crate) fn status(&self, config: &Config) -> (Option<TopologyStatus>, Vec<Problem>) {
        let kept = self.kept();
        let Some(running) = &*kept else { return (None, Vec::new()) };
        let found = running.keeper.kept();
        let error = running.refused.clone().or(found.error);
        let ports = found.plan.as_ref().map(|plan| running.host.ports(plan).unwrap_or_default());
        let mut problems: Vec<_> = error.iter().map(|why| not_applied(why)).collect();
        problems.extend(found.switches.iter().flat_map(of_switch));
        let end_points = running.keeper.end_points();
        problems.extend(end_points.iter().filter_map(of_end_point));
        problems.extend(found.absent.iter().map(|interface| of_absent(config, interface)));
        if found.plan.is_none() && error.is_none() {
            return (None, problems);
        }
        let level = found.plan.as_ref().map_or(config.level, |plan| plan.level);
        let status = TopologyStatus {
            level: level.name().to_owned(),
            error,
            switches: found.switches,
            ports: ports.unwrap_or_default(),
            end_points,
        };
        (Some(status), problems)
    }
}

/// Returns whether two tables are about the same switches, which have files there.
fn is_at_the_same_place(one: &config::Topology, other: &config::Topology) -> bool {
    (&one.run, &one.state) == (&other.run, &other.state)
}

fn not_applied(why: &str) -> Problem {
    let text = format!("they are not as planned: {why}; the daemon tries again");
    Problem::new(ProblemKind::TopologyFailed, "the tenants' switches", text)
}

/// Returns the problem of a switch, for each of its tenants.
fn of_switch(switch: &SwitchStatus) -> Vec<Problem> {
    let Some(why) = &switch.problem else { return Vec::new() };
    let text = if switch.processes == 0 {
        "its switch compartment has ended, so its VMs have no network; the daemon starts it again, and \
         the log beside the compartment's sockets says why it ended"
            .to_owned()
    } else {
        format!("its switch does not work ({why}); p4shield topology apply starts it again")
    };
    switch.tenants.iter().map(|t| Problem::of_tenant(ProblemKind::SwitchDown, t, text.clone())).collect()
}

/// Returns the problem of an end point for controllers, whose switch is a tenant's.
fn of_end_point(point: &EndPointStatus) -> Option<Problem> {
    let EndPointStatus { tenant, protocol, address, problem, .. } = point;
    let text = format!(
        "controllers cannot connect to its switch at {address} ({}); write an address of this host with a \
         free port as {protocol} in [tenant.controllers]",
        problem.as_ref()?
    );
    Some(Problem::of_tenant(ProblemKind::EndPointDown, tenant, text).at(protocol, &address.to_string()))
}

fn of_absent(config: &Config, interface: &str) -> Problem {
    let tenants = config.tenants.iter();
    let mut vms = tenants.flat_map(|t| t.vms.iter().map(move |vm| (t, vm)));
    let owner = vms.find(|(_, vm)| vm.interface.as_deref() == Some(interface));
    let text = "it does not exist, so the tenant's switch does not have it; start the VM, or correct its \
                interface in [[tenant.vm]]";
    let problem = match owner {
        Some((t, vm)) => Problem::of_vm(ProblemKind::InterfaceDown, (&t.name, &vm.name), text),
        None => Problem::new(
            ProblemKind::InterfaceDown,
            "the tenants' switches",
            "it does not exist, so no tenant reaches the outside; create it, or correct uplink in [topology]",
        ),
    };
    problem.at("interface", interface)
}
