//! An operator's command in the switch compartment that serves a tenant, from the host's side.

use crate::apply::Host;
use crate::{TopologyError, processes};
use p4shield_compartment::cgroup_of;
use p4shield_sandbox::{SandboxError, spawn_among};
use p4shield_topology::{Compartment, Plan};
use rustix::process::Pid;
use std::ffi::OsString;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, Command, Stdio};

/// Reason why no command is started for a tenant.
#[derive(Debug, thiserror::Error)]
pub enum ErrandError {
    /// The process may not.
    #[error("only root can enter a switch compartment: run it as root")]
    NotRoot,
    /// There are no switches.
    #[error("no topology was applied: run p4shield topology apply")]
    NotApplied,
    /// The applied plan lacks the tenant.
    #[error(
        "the applied topology has no tenant {tenant}, but {known}: name one of these, or add it to the \
         configuration and run p4shield topology apply"
    )]
    Unknown {
        /// The tenant.
        tenant: String,
        /// The plan's tenants.
        known: String,
    },
    /// The switch has no namespaces of its own.
    #[error(
        "the switch of level = \"baseline\" is on the host, in no compartment: run the command here, with \
         the sockets that p4shield topology status prints"
    )]
    OnHost,
    /// The switch is in a virtual machine.
    #[error(
        "the switch of tenant {0} is in a virtual machine, where no command of the host runs; write \
         compartment = \"process\" in [topology] for a switch that takes commands"
    )]
    InMachine(String),
    /// The compartment has ended.
    #[error("the switch compartment {0} does not run: run p4shield topology apply")]
    NotRunning(String),
    /// The applied plan or the processes cannot be read.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// The compartment cannot be entered.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
}

impl Host {
    /// Starts a command in the compartment that serves a tenant. Its input and outputs are pipes: no
    /// descriptor of the host gets inside, and none of its terminal. The child ends with this thread.
    ///
    /// # Errors
    /// There is no such compartment, or it does not run.
    pub fn start_command(&self, tenant: &str, command: &[OsString]) -> Result<Child, ErrandError> {
        if !rustix::process::geteuid().is_root() {
            return Err(ErrandError::NotRoot);
        }
        let plan = self.applied()?.ok_or(ErrandError::NotApplied)?;
        let planned = serving(&plan, tenant)?;
        if plan.machine.is_some() {
            return Err(ErrandError::InMachine(tenant.to_owned()));
        }
        let (pid, first) = self
            .first_process(self.user_of(planned))?
            .ok_or_else(|| ErrandError::NotRunning(planned.name.clone()))?;
        let mut start = Command::new(&self.binary);
        start.args(["tenant-exec", "--core", &planned.core.to_string()]);
        // A compartment without a cgroup has that of the command that started it.
        let [theirs, own] = [pid, rustix::process::getpid()].map(|pid| cgroup_of(pid.as_raw_pid()).ok());
        if let Some(theirs) = theirs.filter(|theirs| own.as_ref() != Some(theirs)) {
            start.arg("--cgroup").arg(theirs);
        }
        start.arg("--").args(command).env_clear().current_dir("/");
        start.envs(std::env::var_os("TERM").map(|terminal| ("TERM", terminal)));
        start.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(spawn_among(first.as_fd(), &mut start)?)
    }

    /// Returns process 1 of a compartment, and a descriptor of it.
    fn first_process(&self, user: u32) -> Result<Option<(Pid, OwnedFd)>, TopologyError> {
        Ok(processes::first_of_users(&(user..user + 1))?.remove(&user))
    }
}

/// Returns the compartment that serves a tenant, which has namespaces of its own.
fn serving<'p>(plan: &'p Plan, tenant: &str) -> Result<&'p Compartment, ErrandError> {
    let mut compartments = plan.compartments.iter();
    let Some(found) = compartments.find(|c| c.tenants.iter().any(|t| t.name == tenant)) else {
        let known = plan.compartments.iter().flat_map(|c| &c.tenants);
        let known: Vec<_> = known.map(|t| &*t.name).collect();
        return Err(ErrandError::Unknown { tenant: tenant.to_owned(), known: known.join(", ") });
    };
    if found.in_out.is_some() { Ok(found) } else { Err(ErrandError::OnHost) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A plan with one compartment for two tenants.
    fn plan(in_out: serde_json::Value) -> Plan {
        let mac = "02:00:00:00:00:01";
        let tenant = |name: &str, number: u16| {
            serde_json::json!({
                "name": name, "number": number, "vlan": number, "mac": mac, "gateway": null, "vms": [],
            })
        };
        let compartment = serde_json::json!({
            "name": "all", "number": 1, "mac": mac, "memory": 1, "core": 0, "in_out": in_out,
            "tenants": [tenant("alice", 1), tenant("bob", 2)],
        });
        serde_json::from_value(serde_json::json!({
            "version": p4shield_topology::VERSION, "level": "1", "uplink": "up0", "gateway_mac": mac,
            "cores": "shared", "run": "/run", "compartments": [compartment],
        }))
        .unwrap()
    }

    #[test]
    fn a_tenants_compartment_is_found_by_the_plan() {
        let inside = plan(serde_json::json!({ "outer": "p4s1io", "inner": "inout" }));
        assert_eq!(serving(&inside, "bob").unwrap().name, "all");
        let unknown = serving(&inside, "carol").unwrap_err().to_string();
        assert!(unknown.contains("no tenant carol, but alice, bob"), "{unknown}");
        let on_host = serving(&plan(serde_json::Value::Null), "bob").unwrap_err().to_string();
        assert!(on_host.contains("p4shield topology status"), "{on_host}");
    }
}
