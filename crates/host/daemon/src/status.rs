//! What `p4shield status` shows, as types: one JSON object.

use crate::attachment::{SwitchStatus, WireStatus};
use serde::{Deserialize, Serialize};

/// Everything at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Version of P4 Shield.
    pub version: String,
    /// The configuration's file.
    pub config: String,
    /// Process id of the daemon.
    pub pid: u32,
    /// Whether P4 VMs have cgroups, or why not.
    pub cgroup: String,
    /// How packets reach us: `wire`, `dpdk` or `xsk`.
    pub attachment: String,
    /// Where programs run: `p4vm` or `inline`.
    pub placement: String,
    /// The tenants, in the order of the configuration.
    pub tenants: Vec<TenantStatus>,
    /// The wires.
    pub wires: Vec<WireStatus>,
    /// The switches that a library is preloaded into.
    pub switches: Vec<SwitchStatus>,
    /// Packets about which nobody is asked: passed, dropped, dropped for a spoofed source.
    pub unowned: Unowned,
    /// What is wrong and what to do about it; empty if all is well.
    pub advice: Vec<String>,
}

/// Packets of nobody, or about which their tenant wants nobody asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unowned {
    /// Passed.
    pub passed: u64,
    /// Dropped.
    pub dropped: u64,
    /// Dropped because the source address was a VM's, on a port from which it does not send.
    pub spoofed: u64,
    /// Dropped by a library in a switch before it could tell whose they were; steps of frames that were refused (`xsk`).
    #[serde(default)]
    pub refused: u64,
}

/// How a P4 VM is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It is being started for the first time.
    #[default]
    Starting,
    /// It judges packets.
    Running,
    /// It ended or was ended, and is started again after a pause.
    Restarting,
    /// The daemon ended it.
    Stopped,
}

/// One tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantStatus {
    /// Its name.
    pub name: String,
    /// How its P4 VM is.
    pub state: State,
    /// Process id of its P4 VM, while it runs.
    pub pid: Option<i32>,
    /// User that its P4 VM runs as.
    pub uid: Option<u32>,
    /// How often its P4 VM was started again.
    pub restarts: u64,
    /// What went wrong last.
    pub error: Option<String>,
    /// Why lanes of switches have no channel to its P4 VM, if some have none.
    pub channels: Option<String>,
    /// What is wrong with programs that run in switches, or to be known of them.
    pub inline: Option<String>,
    /// Measures of the sandbox that are missing, as far as the operator allowed it.
    pub missing: Vec<String>,
    /// Version of Landlock in force.
    pub landlock_abi: i32,
    /// Its VMs.
    pub vms: Vec<VmStatus>,
}

/// One user VM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmStatus {
    /// Its name.
    pub name: String,
    /// Its information.
    pub info: InfoStatus,
    /// Records that the P4 VM published in its log.
    pub log_records: u64,
    /// Packets towards it.
    pub ingress: DirectionStatus,
    /// Packets from it.
    pub egress: DirectionStatus,
}

/// In-VM information, as the P4 VM sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InfoStatus {
    /// `known`, `missing`, `stale`, `forged`, `replayed`, or `none` if the VM has no info page.
    pub status: String,
    /// Snapshots accepted.
    pub accepted: u64,
    /// Publications that did not authenticate.
    pub forged: u64,
    /// Genuine ones that were older than one seen before.
    pub replayed: u64,
    /// Times that information got too old.
    pub stale: u64,
}

/// One direction of a user VM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectionStatus {
    /// SHA-256 digest of the program that runs, hexadecimal.
    pub program: Option<String>,
    /// Why the program that should run does not.
    pub error: Option<String>,
    /// Its packets pass and nobody is asked or counts them: `no_program = "skip"`.
    #[serde(default)]
    pub skipped: bool,
    /// Packets that came to the mediator.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets that the program passed.
    pub passed: u64,
    /// Of those, rewritten.
    pub rewritten: u64,
    /// Packets dropped, by reason; reasons without packets are left out.
    pub dropped: Vec<(String, u64)>,
    /// Packets let through without a verdict, by reason.
    pub let_through: Vec<(String, u64)>,
    /// Packets that wait for a verdict.
    pub held: u64,
    /// Packets that the P4 VM judged since it started.
    pub judged: u64,
    /// Of those, dropped because the program did not ask whether its information was known.
    pub undecided: u64,
    /// Of those, dropped because the program was stopped or there was none.
    pub failed: u64,
}

impl TenantStatus {
    /// What is wrong with the tenant, and what to do.
    pub(crate) fn advice(&self) -> Vec<String> {
        let mut advice = Vec::new();
        let name = &self.name;
        let why = self.error.as_deref().unwrap_or("it is on its way");
        if matches!(self.state, State::Starting | State::Restarting) {
            advice.push(format!(
                "tenant {name}: its P4 VM does not run ({why}); its packets get its fail policy"
            ));
        }
        if let Some(channels) = &self.channels {
            advice.push(format!("tenant {name}: {channels}; use fewer queues, or more switches' hosts"));
        }
        if let Some(inline) = &self.inline {
            advice.push(format!("tenant {name}: {inline}; see the switch's log"));
        }
        if !self.missing.is_empty() {
            let missing = self.missing.join(", ");
            advice.push(format!(
                "tenant {name}: the sandbox lacks {missing}; use a kernel that has it and take it out of allow_missing"
            ));
        }
        for vm in &self.vms {
            let place = format!("tenant {name}, VM {}", vm.name);
            for (word, direction) in [("ingress", &vm.ingress), ("egress", &vm.egress)] {
                if let Some(error) = &direction.error {
                    advice.push(format!(
                        "{place}: the {word} program does not run ({error}); try it with `p4shield verify`, then \
                         `p4shield program load {name} {} {word} FILE`",
                        vm.name
                    ));
                }
            }
            let remedy = match vm.info.status.as_str() {
                "missing" => "start `p4shield agent` in the VM",
                "stale" => "see whether `p4shield agent` still runs in the VM, and compare the clocks",
                "forged" => {
                    "see that agent and key_file have the same key, tenant and VM name; else somebody forges"
                }
                "replayed" => "somebody puts old information on the info page",
                _ => continue,
            };
            advice.push(format!("{place}: its information is {}; {remedy}", vm.info.status));
        }
        advice
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_comes_with_a_remedy() {
        let info = InfoStatus { status: "missing".into(), ..InfoStatus::default() };
        let egress = DirectionStatus { error: Some("refused".into()), ..DirectionStatus::default() };
        let vm = VmStatus { name: "web".into(), info, egress, ..VmStatus::default() };
        let tenant = TenantStatus {
            name: "alice".into(),
            missing: vec!["landlock".into()],
            channels: Some("2 lanes have no channel".into()),
            vms: vec![vm],
            ..TenantStatus::default()
        };
        let advice = tenant.advice();
        for part in [
            "fail policy",
            "fewer queues",
            "allow_missing",
            "program load alice web egress",
            "p4shield agent",
        ] {
            assert!(advice.iter().any(|a| a.contains(part)), "{part}: {advice:?}");
        }
        let fine = TenantStatus { state: State::Running, ..TenantStatus::default() };
        assert_eq!(fine.advice(), Vec::<String>::new());
    }

    #[test]
    fn it_reads_back_from_json() {
        let status = Status { tenants: vec![TenantStatus::default()], ..Status::default() };
        let json = serde_json::to_string(&status).unwrap();
        assert!(json.contains(r#""state":"starting""#), "{json}");
        assert_eq!(serde_json::from_str::<Status>(&json).unwrap(), status);
    }
}
