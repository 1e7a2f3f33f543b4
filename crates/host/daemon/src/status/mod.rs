//! The types of what `p4shield status` shows, which is one JSON object; `collect` fills them.

pub(crate) mod collect;
pub(crate) mod losses;
pub(crate) mod problem;
pub(crate) mod problems;
pub(crate) mod totals;
pub(crate) mod watch;

use crate::programs::ProgramSource;
use crate::status::problem::{Problem, ProblemKind, lines};
use serde::{Deserialize, Serialize};

/// The status of the daemon and everything below it, at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Version of P4 Shield.
    pub version: String,
    /// Path of the configuration file.
    pub config: String,
    /// Process ID of the daemon.
    pub pid: u32,
    /// When the daemon started, in milliseconds since 1970. An upgrade keeps the process ID.
    #[serde(default)]
    pub started_ms: u64,
    /// Whether P4 VMs have cgroups, or why not.
    pub cgroup: String,
    /// How packets reach P4 Shield: `wire`, `dpdk` or `xsk`.
    pub attachment: String,
    /// Where programs run: `p4vm` or `inline`.
    pub placement: String,
    /// The tenants, in the order of the configuration.
    pub tenants: Vec<TenantStatus>,
    /// The wires.
    pub wires: Vec<WireStatus>,
    /// The switches that a library is preloaded into.
    pub switches: Vec<SwitchStatus>,
    /// Packets that no program judges.
    pub unowned: Unowned,
    /// Ports that the configuration names and no connected switch has.
    #[serde(default)]
    pub absent_ports: Vec<PortStatus>,
    /// The tenants' own switches; `None`: there are none.
    #[serde(default)]
    pub topology: Option<TopologyStatus>,
    /// What is wrong; empty if there is nothing.
    #[serde(default)]
    pub problems: Vec<Problem>,
    /// The problems as lines for people, each with a remedy. Many problems of one kind share a line.
    pub advice: Vec<String>,
}

impl Status {
    /// Returns what a tenant may see: its own P4 VM, VMs and problems.
    pub(crate) fn of_tenant(self, name: &str) -> Self {
        // The cores of the host are the operator's.
        let is_own = |p: &Problem| p.tenant.as_deref() == Some(name) && p.kind != ProblemKind::CoreShared;
        let problems: Vec<_> = self.problems.into_iter().filter(is_own).collect();
        let own = |t: TenantStatus| TenantStatus { pid: None, uid: None, cores: None, ..t };
        Self {
            version: self.version,
            attachment: self.attachment,
            placement: self.placement,
            tenants: self.tenants.into_iter().filter(|t| t.name == name).map(own).collect(),
            advice: lines(&problems),
            problems,
            ..Self::default()
        }
    }
}

/// The tenants' own switches (`[topology]`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopologyStatus {
    /// The level that was applied last: `baseline`, `1` or `2`.
    pub level: String,
    /// Reason why the switches are not as the configuration says.
    pub error: Option<String>,
    /// The switches, in the plan's order, as the daemon saw them last.
    pub switches: Vec<p4shield_tenantswitch::SwitchStatus>,
    /// The ports of the NIC switch, in the plan's order.
    pub ports: Vec<p4shield_tenantswitch::PortStatus>,
    /// The end points for controllers, by address.
    #[serde(default)]
    pub end_points: Vec<p4shield_tenantswitch::EndPointStatus>,
}

/// Packets that belong to no VM, or to a direction that the tenant skips (`no_program = "skip"`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unowned {
    /// Passed.
    pub passed: u64,
    /// Dropped.
    pub dropped: u64,
    /// Dropped because the source address belongs to a VM that is not behind the port.
    pub spoofed: u64,
    /// Dropped by a library in a switch before it knew the owner; with `xsk`, refused transitions of a
    /// frame's owner.
    #[serde(default)]
    pub refused: u64,
}

/// The state of a P4 VM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The daemon starts it for the first time.
    #[default]
    Starting,
    /// It judges packets.
    Running,
    /// It ended or the daemon ended it; the daemon starts it again after a pause.
    Restarting,
    /// The daemon ended it.
    Stopped,
}

/// One tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantStatus {
    /// Its name.
    pub name: String,
    /// What isolates its P4 VM: `process` or `vm`.
    #[serde(default)]
    pub compartment: String,
    /// What keeps its virtual machine's memory from the host: `sev-snp`, `tdx`, or `none`.
    #[serde(default)]
    pub tee: String,
    /// State of its P4 VM.
    pub state: State,
    /// Process ID of its P4 VM, while it runs.
    pub pid: Option<i32>,
    /// User that its P4 VM runs as.
    pub uid: Option<u32>,
    /// Whether its P4 VM was adopted from the daemon before.
    #[serde(default)]
    pub adopted: bool,
    /// How often its P4 VM was started again.
    pub restarts: u64,
    /// The last error.
    pub error: Option<String>,
    /// Reason why some lanes of switches have no channel to its P4 VM.
    pub channels: Option<String>,
    /// Reason why its P4 VM shares a core with a switch's polling thread.
    #[serde(default)]
    pub cores: Option<String>,
    /// Time on cores of its P4 VM and of those that it replaced; none if the kernel does not count it.
    #[serde(default)]
    pub core_time: Option<CoreTimeStatus>,
    /// An error or note about programs that run in switches.
    pub inline: Option<String>,
    /// Measures of the sandbox that are missing and that the operator allows to be missing.
    pub missing: Vec<String>,
    /// Version of Landlock in force.
    pub landlock_abi: i32,
    /// Its VMs.
    pub vms: Vec<VmStatus>,
}

/// Time of a P4 VM's threads on cores, which grows until the daemon ends. Adopted ones bring theirs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoreTimeStatus {
    /// Microseconds on cores.
    pub ran_us: u64,
    /// Microseconds in which threads could run, and others had the core or `cpu_percent` was used up.
    pub waited_us: u64,
}

/// One user VM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmStatus {
    /// Its name.
    pub name: String,
    /// State of its information.
    pub info: InfoStatus,
    /// Its keys; none if it has no pages or its P4 VM does not run.
    #[serde(default)]
    pub keys: Option<KeyStatus>,
    /// Its handshakes; none if its key is in a file or its P4 VM does not run.
    #[serde(default)]
    pub handshake: Option<HandshakeStatus>,
    /// Where its ingress program judges.
    #[serde(default)]
    pub ingress_rule: IngressRule,
    /// Records that the P4 VM published in its log.
    pub log_records: u64,
    /// Packets towards it.
    pub ingress: DirectionStatus,
    /// Packets from it.
    pub egress: DirectionStatus,
}

/// The keys of a user VM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyStatus {
    /// Number of its key, as `p4shield key id` shows it.
    pub key: String,
    /// While a rotation goes on: the end of its window, in seconds since 1970.
    pub window_until: Option<u64>,
    /// Whether the agent has used this key.
    pub agent_follows: bool,
    /// Whether the log is sealed with this key.
    pub log_follows: bool,
    /// The window has ended, and the agent has not used this key.
    pub overdue: bool,
}

/// The handshakes of a user VM's agent with the P4 VM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandshakeStatus {
    /// Sessions that they agreed on since the P4 VM started.
    pub agreed: u64,
    /// Handshakes that failed.
    pub failed: u64,
    /// Messages that the P4 VM ignored.
    pub ignored: u64,
    /// Reason why the last one failed, unless one has succeeded since.
    pub error: Option<String>,
    /// The present session.
    pub session: Option<SessionStatus>,
}

/// A session, as the P4 VM reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionStatus {
    /// Digest of everything that was agreed, hexadecimal. The agent reports the same.
    pub transcript: String,
    /// The agent's public key, hexadecimal.
    pub agent: String,
    /// Whether the configuration demands this key.
    pub is_agent_known: bool,
    /// Whether the P4 VM presented evidence of its TEE. Otherwise it is not attested.
    pub is_attested: bool,
    /// Seconds since it was agreed.
    pub age_s: u64,
}

/// Where a VM's ingress program judges; docs/decisions/010-one-rule-for-what-is-judged.md.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IngressRule {
    /// At the VM's own port: whatever is delivered to the VM.
    OwnPort,
    /// At the ports where packets arrive: those with one of the VM's addresses.
    #[default]
    Arrival,
}

impl IngressRule {
    /// Returns the rule for a VM with these ports at switches.
    pub(crate) fn of<'a>(ports: impl Iterator<Item = &'a PortStatus>) -> Self {
        let mut ports = ports.filter(|port| port.mediated).peekable();
        let has_one = ports.peek().is_some();
        if has_one && ports.all(|port| port.transmit_queues > 0) { Self::OwnPort } else { Self::Arrival }
    }
}

/// In-VM information, as the P4 VM sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InfoStatus {
    /// `known`, `missing`, `stale`, `forged`, `replayed`; `unread` if it is missing and no program reads it;
    /// `none` if the VM has no info page.
    pub status: String,
    /// Snapshots accepted.
    pub accepted: u64,
    /// Publications that did not authenticate.
    pub forged: u64,
    /// Authentic publications that were older than a previous one.
    pub replayed: u64,
    /// Times that information became older than the age limit.
    pub stale: u64,
}

/// One direction of a user VM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectionStatus {
    /// SHA-256 digest of the running program, hexadecimal.
    pub program: Option<String>,
    /// Where the program comes from.
    #[serde(default)]
    pub source: ProgramSource,
    /// Reason why the configured program does not run.
    pub error: Option<String>,
    /// Its packets bypass the P4 VM and its counters: `no_program = "skip"`.
    #[serde(default)]
    pub skipped: bool,
    /// Packets that the mediator received.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets that the program passed.
    pub passed: u64,
    /// Packets among them that the program rewrote.
    pub rewritten: u64,
    /// Packets dropped, by reason; reasons without packets are left out.
    pub dropped: Vec<(String, u64)>,
    /// Packets let through without a verdict, by reason.
    pub let_through: Vec<(String, u64)>,
    /// Packets that wait for a verdict.
    pub held: u64,
    /// Packets that the P4 VM judged since it started.
    pub judged: u64,
    /// Packets among them dropped because the program did not check whether its information was known.
    pub undecided: u64,
    /// Packets among them dropped because the program was stopped or there was none.
    pub failed: u64,
    /// Packets among them dropped because they met a limit of the program, by limit; limits without packets
    /// are left out.
    pub limited: Vec<(String, u64)>,
}

/// One wire.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireStatus {
    /// Its name: its VM's interface.
    pub name: String,
    /// The VM's side.
    pub vm: SideStatus,
    /// The switch's side.
    pub switch: SideStatus,
}

/// One side of a wire.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SideStatus {
    /// Name of the network interface.
    pub interface: String,
    /// Whether packets are received and sent there.
    pub up: bool,
    /// What is wrong with it, or another note.
    pub remark: Option<String>,
    /// Frames received.
    pub rx_packets: u64,
    /// Frames sent.
    pub tx_packets: u64,
    /// Frames dropped because the transmit ring was full or the interface was missing.
    pub tx_dropped: u64,
}

/// One switch that a library is preloaded into.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchStatus {
    /// `dpdk` or `xsk`.
    pub kind: String,
    /// The application's name.
    pub application: String,
    /// Process ID.
    pub pid: i32,
    /// User that it runs as.
    pub uid: u32,
    /// The release of its library.
    #[serde(default)]
    pub release: String,
    /// Ways for packets of any port to bypass the programs.
    pub bypasses: Vec<String>,
    /// Other notes.
    pub notes: Vec<String>,
    /// Its ports.
    pub ports: Vec<PortStatus>,
}

/// One port of such a switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortStatus {
    /// The library's name for it.
    pub name: String,
    /// Open vSwitch's name for it, if its database has the port.
    pub interface: Option<String>,
    /// The number that programs see as `input_port`.
    pub number: u32,
    /// Whether no entry of the configuration names it, although it may be a VM's or an uplink.
    #[serde(default)]
    pub unconfigured: bool,
    /// Whether its packets are mediated.
    pub mediated: bool,
    /// Reason why they are not.
    pub why: Option<String>,
    /// `vm`, `uplink` or `shared`.
    pub role: String,
    /// The tenant that owns the port, if a VM is behind it.
    pub tenant: Option<String>,
    /// The VM behind the port.
    pub vm: Option<String>,
    /// Queues whose received packets are mediated.
    pub queues: usize,
    /// Queues whose transmitted packets are mediated, too.
    pub transmit_queues: usize,
    /// Number of queues, of both kinds, whose packets a P4 VM reads in the switch's packet memory.
    #[serde(default)]
    pub zero_copy_queues: usize,
    /// Ways for packets of this port to bypass the programs.
    pub bypasses: Vec<String>,
    /// Other notes.
    pub notes: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vms_rule_follows_from_all_its_ports() {
        let port =
            |transmit_queues, mediated| PortStatus { transmit_queues, mediated, ..PortStatus::default() };
        let rule = |ports: &[PortStatus]| IngressRule::of(ports.iter());
        assert_eq!(rule(&[]), IngressRule::Arrival);
        assert_eq!(rule(&[port(1, true), port(2, true), port(0, false)]), IngressRule::OwnPort);
        assert_eq!(rule(&[port(1, true), port(0, true)]), IngressRule::Arrival);
    }

    #[test]
    fn status_survives_json() {
        let problems = vec![Problem::of_tenant(ProblemKind::P4vmDown, "alice", "why")];
        let status = Status { tenants: vec![TenantStatus::default()], problems, ..Status::default() };
        let json = serde_json::to_string(&status).unwrap();
        for part in [r#""state":"starting""#, r#""kind":"p4vm_down","subject":"tenant alice""#] {
            assert!(json.contains(part), "{json}");
        }
        assert_eq!(serde_json::from_str::<Status>(&json).unwrap(), status);
    }
}
