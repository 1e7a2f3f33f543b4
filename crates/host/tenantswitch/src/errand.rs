//! An operator's command in the switch compartment that serves a tenant, from the host's side.

use crate::apply::Host;
use crate::compartment::control;
use crate::order::{Answer, MAX_ORDER, MAX_RAN, Order, Ran, Run};
use crate::{TopologyError, processes};
use p4shield_compartment::cgroup_of;
use p4shield_config::SwitchKind;
use p4shield_sandbox::{SandboxError, spawn_among};
use p4shield_socket::{AskError, Client, Patience};
use p4shield_topology::{Compartment, Plan};
use rustix::process::Pid;
use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Longest time for a virtual machine to run a command, which waits for other orders.
const PATIENCE: Duration = Duration::from_secs(90);
/// Longest time for it to accept a connection.
const ACCEPT: Duration = Duration::from_secs(2);

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
    /// The switch is a P4 switch.
    #[error(
        "the switch of {tenant} is a P4 switch, beside which no command runs: use p4shield switch \
         --socket {}",
        socket.display()
    )]
    P4 {
        /// The tenant.
        tenant: String,
        /// The switch's socket.
        socket: PathBuf,
    },
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
        if plan.switch == SwitchKind::P4 {
            let socket = self.place(&plan, planned).p4_socket();
            return Err(ErrandError::P4 { tenant: tenant.to_owned(), socket });
        }
        let (pid, first) = self
            .first_process(self.user_of(planned))?
            .ok_or_else(|| ErrandError::NotRunning(planned.name.clone()))?;
        let mut start = Command::new(&self.binary);
        start.env_clear().current_dir("/");
        start.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if plan.machine.is_some() {
            let control = control(&self.place(&plan, planned).run);
            start.args(["tenant-exec", "--machine"]).arg(control).arg("--").args(command);
            return start.spawn().map_err(|e| TopologyError::Process("start a process", e).into());
        }
        start.args(["tenant-exec", "--core", &planned.core.to_string()]);
        if planned.in_out.is_none() {
            start.args(["--on-host", &self.user_of(planned).to_string()]);
        }
        // A compartment without a cgroup has that of the command that started it.
        let [theirs, own] = [pid, rustix::process::getpid()].map(|pid| cgroup_of(pid.as_raw_pid()).ok());
        if let Some(theirs) = theirs.filter(|theirs| own.as_ref() != Some(theirs)) {
            start.arg("--cgroup").arg(theirs);
        }
        start.arg("--").args(command);
        start.envs(std::env::var_os("TERM").map(|terminal| ("TERM", terminal)));
        start_among(first.as_fd(), &mut start, &planned.name)
    }

    /// Returns process 1 of a compartment, and a descriptor of it.
    fn first_process(&self, user: u32) -> Result<Option<(Pid, OwnedFd)>, TopologyError> {
        Ok(processes::first_of_users(&(user..user + 1))?.remove(&user))
    }
}

/// Starts a program among the processes of this compartment, of which `first` is process 1.
fn start_among(first: BorrowedFd<'_>, start: &mut Command, name: &str) -> Result<Child, ErrandError> {
    match spawn_among(first, start) {
        // A process that ends gives up its namespaces first. It is found until its last thread has ended.
        Err(e) if e.source.raw_os_error() == Some(libc::ESRCH) => {
            Err(ErrandError::NotRunning(name.to_owned()))
        }
        started => Ok(started?),
    }
}

/// Has the virtual machine behind this socket run a command. Its input is that of this process, if an
/// argument is `-`: tools read their input only then. Prints what it prints, and returns its exit code.
///
/// # Errors
/// The machine does not answer, or not in time, or the input is too long.
pub fn run_in_machine(control: &Path, command: &[OsString]) -> Result<u8, MachineCommandError> {
    let words = command.iter().map(|word| word.to_str().map(str::to_owned)).collect::<Option<Vec<_>>>();
    let words = words.ok_or(MachineCommandError::Text)?;
    let mut input = Vec::new();
    if words.iter().any(|word| word == "-") {
        let most = MAX_ORDER / 4;
        std::io::stdin().take(most + 1).read_to_end(&mut input).map_err(MachineCommandError::Output)?;
        if input.len() as u64 > most {
            return Err(MachineCommandError::Input(most >> 20));
        }
    }
    let order = Order::Run(Run { words, input: hex::encode(input) });
    let patience = Patience { time: PATIENCE, bytes: MAX_RAN };
    let answer: Answer = Client::connect_within(control, ACCEPT)?.ask(&order, patience)?;
    match answer {
        Answer { error: None, ran: Some(Ran { code, output, errors }), .. } => {
            let [output, errors] = [output, errors].map(|digits| hex::decode(digits).unwrap_or_default());
            std::io::stdout().write_all(&output).map_err(MachineCommandError::Output)?;
            std::io::stderr().write_all(&errors).map_err(MachineCommandError::Output)?;
            Ok(code)
        }
        Answer { error, .. } => {
            Err(MachineCommandError::Refused(p4shield_text::printable(&error.unwrap_or_default())))
        }
    }
}

/// Reason why a virtual machine runs no command.
#[derive(Debug, thiserror::Error)]
pub enum MachineCommandError {
    /// The command is no text.
    #[error("the command is not UTF-8, as a virtual machine needs it")]
    Text,
    /// The input is too long.
    #[error("the input has more than {0} MiB: divide it")]
    Input(u64),
    /// Input or output fails.
    #[error("cannot pass input or output on")]
    Output(#[source] std::io::Error),
    /// The machine does not answer.
    #[error("the virtual machine of the switch does not answer")]
    Machine(#[from] AskError),
    /// The machine refuses it.
    #[error("{0}")]
    Refused(String),
}

/// Returns the compartment that serves a tenant.
fn serving<'p>(plan: &'p Plan, tenant: &str) -> Result<&'p Compartment, ErrandError> {
    let mut compartments = plan.compartments.iter();
    let Some(found) = compartments.find(|c| c.tenants.iter().any(|t| t.name == tenant)) else {
        let known = plan.compartments.iter().flat_map(|c| &c.tenants);
        let known: Vec<_> = known.map(|t| &*t.name).collect();
        return Err(ErrandError::Unknown { tenant: tenant.to_owned(), known: known.join(", ") });
    };
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{WaitId, WaitIdOptions};

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
    fn a_compartment_that_is_ending_does_not_run() {
        let mut ended = Command::new("true").spawn().unwrap();
        let pid = Pid::from_child(&ended);
        let first = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        rustix::process::waitid(WaitId::Pid(pid), options).unwrap();
        let refused = start_among(first.as_fd(), &mut Command::new("true"), "alice").unwrap_err();
        assert!(matches!(&refused, ErrandError::NotRunning(name) if name == "alice"), "{refused:?}");
        ended.wait().unwrap();
    }

    #[test]
    fn a_tenants_compartment_is_found_by_the_plan() {
        let inside = plan(serde_json::json!({ "outer": "p4s1io", "inner": "inout" }));
        assert_eq!(serving(&inside, "bob").unwrap().name, "all");
        let unknown = serving(&inside, "carol").unwrap_err().to_string();
        assert!(unknown.contains("no tenant carol, but alice, bob"), "{unknown}");
        assert_eq!(serving(&plan(serde_json::Value::Null), "bob").unwrap().name, "all", "also on the host");
    }
}
