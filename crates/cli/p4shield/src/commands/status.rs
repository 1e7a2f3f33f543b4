//! `p4shield status`.

use p4shield_console::{Exit, output};
use p4shield_daemon::status::{DirectionStatus, HandshakeStatus, IngressRule, KeyStatus, State, Status};
use p4shield_daemon::{ProgramSource, SwitchStatus, api};
use p4shield_tenantswitch::EndPointStatus;

use super::socket::Socket;
use super::topology::show_switches;
use super::{history, key};

/// Show the status of the daemon and its P4 VMs
///
/// Lists what runs, each problem and its remedy.
///
/// Examples:
///
///   p4shield status
///   p4shield status --json | jq .problems
///
/// Exit code 1 if there is a problem.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    socket: Socket,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let status = api::status(&self.socket.socket)?;
        if self.json {
            output::json(&status)?;
        } else {
            show(&status);
        }
        Ok(if status.advice.is_empty() { Exit::Done } else { Exit::Failed })
    }
}

fn show(s: &Status) {
    output::line(format_args!(
        "p4shield {} (process {}), {}; cgroup: {}",
        s.version, s.pid, s.config, s.cgroup
    ));
    for t in &s.tenants {
        let state = match (t.state, t.pid) {
            (State::Running, Some(pid)) if t.compartment == "vm" => {
                let tee = if t.tee == "none" { "" } else { &format!(" with {}", t.tee) };
                format!("P4 VM runs as virtual machine{tee}, process {pid}")
            }
            (State::Running, Some(pid)) => format!("P4 VM runs as process {pid}"),
            (State::Starting, _) => "P4 VM starts".into(),
            (State::Restarting, _) => "P4 VM restarts".into(),
            _ => "P4 VM does not run".into(),
        };
        output::line(format_args!("\ntenant {}: {state}, {} restarts", t.name, t.restarts));
        if let Some(error) = &t.error {
            output::line(format_args!("  last error: {error}"));
        }
        if let Some(time) = t.core_time {
            let [ran, waited] = [time.ran_us, time.waited_us].map(|us| us as f64 / 1e6);
            output::line(format_args!("  ran for {ran:.1} s, and waited {waited:.1} s for a core"));
        }
        for vm in &t.vms {
            output::line(format_args!(
                "  VM {}: information {} ({} snapshots, {} forged, {} replayed, {} times stale), \
                 {} log records; ingress is judged {}",
                vm.name,
                vm.info.status,
                vm.info.accepted,
                vm.info.forged,
                vm.info.replayed,
                vm.info.stale,
                vm.log_records,
                match vm.ingress_rule {
                    IngressRule::OwnPort => "at the VM's own port",
                    IngressRule::Arrival => "by address, where packets arrive",
                }
            ));
            vm.handshake.iter().for_each(show_handshake);
            vm.keys.iter().for_each(show_keys);
            show_direction("ingress", &vm.ingress);
            show_direction("egress", &vm.egress);
        }
    }
    for switch in &s.switches {
        show_switch(switch);
    }
    if let Some(topology) = &s.topology {
        output::line("\ntenants' switches:");
        show_switches(&topology.level, &topology.switches);
        topology.end_points.iter().for_each(show_end_point);
    }
    for advice in &s.advice {
        output::line(format_args!("\n! {advice}"));
    }
}

/// Shows where controllers reach a tenant's switch.
fn show_end_point(point: &EndPointStatus) {
    let EndPointStatus { compartment, protocol, address, problem, connections, refused, .. } = point;
    let state = problem.clone().unwrap_or_else(|| format!("{connections} connections, {refused} refused"));
    output::line(format_args!("controllers of switch {compartment}: {protocol} at {address}: {state}"));
}

/// Shows the session that a VM's key comes from.
fn show_handshake(handshake: &HandshakeStatus) {
    let Some(s) = &handshake.session else {
        return output::line("    keys from a handshake: no session yet");
    };
    let attested = if s.is_attested { "evidence was presented" } else { "not attested" };
    let agent = if s.is_agent_known { "known agent" } else { "any agent" };
    let transcript = s.transcript.get(..16).unwrap_or_default();
    output::line(format_args!(
        "    keys from a handshake {} s ago, session {transcript}: {attested}, {agent}",
        s.age_s
    ));
}

/// Shows a VM's key, and its rotation while one goes on.
fn show_keys(keys: &KeyStatus) {
    let word = |follows| if follows { "follows" } else { "has the previous one" };
    let Some(until) = keys.window_until else {
        return output::line(format_args!("    key {}", keys.key));
    };
    output::line(format_args!(
        "    key {} rotates, both accepted for {} s more: agent {}, log {}",
        keys.key,
        key::left(until),
        word(keys.agent_follows),
        word(keys.log_follows)
    ));
}

fn show_switch(s: &SwitchStatus) {
    output::line(format_args!(
        "\nswitch {} (process {}, user {}), attachment {}",
        s.application, s.pid, s.uid, s.kind
    ));
    s.notes.iter().for_each(|note| output::line(format_args!("  {note}")));
    for p in &s.ports {
        let name = match &p.interface {
            Some(interface) if *interface != p.name => format!("{interface} ({})", p.name),
            _ => p.name.clone(),
        };
        let owner = match (&p.tenant, &p.vm) {
            (Some(tenant), Some(vm)) => format!("of tenant {tenant}, VM {vm}"),
            _ => p.role.clone(),
        };
        let state = match &p.why {
            None if p.transmit_queues > 0 => {
                format!("mediated, {} receive and {} transmit queues", p.queues, p.transmit_queues)
            }
            None => format!("mediated, {} queues", p.queues),
            Some(why) => format!("NOT mediated: {why}"),
        };
        output::line(format_args!("  port {name}, {owner}: {state}"));
        if p.zero_copy_queues > 0 {
            let queues = p.zero_copy_queues;
            output::line(format_args!(
                "    zero-copy on {queues} of them: the P4 VM reads headers in the switch's packet memory"
            ));
        }
        p.bypasses.iter().for_each(|b| output::line(format_args!("    BYPASS: {b}")));
        p.notes.iter().for_each(|n| output::line(format_args!("    {n}")));
    }
}

fn show_direction(name: &str, d: &DirectionStatus) {
    if d.skipped {
        output::line(format_args!(
            "    {name:<7} no program: packets bypass the P4 VM (no_program = \"skip\")"
        ));
        return;
    }
    let program = d.program.as_deref().map_or("no program", |digest| &digest[..digest.len().min(12)]);
    let reasons =
        |list: &[(String, u64)]| -> String { list.iter().map(|(why, n)| format!(", {n} {why}")).collect() };
    let dropped: u64 = d.dropped.iter().map(|r| r.1).sum();
    output::line(format_args!(
        "    {name:<7} {program}: {} packets, {} passed, {dropped} dropped{}{}",
        d.packets,
        d.passed,
        reasons(&d.dropped),
        reasons(&d.let_through)
    ));
    if let ProgramSource::Command(record) = &d.source {
        output::line(format_args!("            {}", history::line(record)));
    }
    if let Some(error) = &d.error {
        output::line(format_args!("            {error}"));
    }
}
