//! Fills [`Status`] from the attachment's counters and the supervisors' reports.
//!
//! The status of switches and their ports (such as why a port is not mediated) comes from
//! `switches::registry`, which records what the libraries in switches report.

use crate::config::{self, Attachment};
use crate::lifecycle::state::{DaemonState, Running};
use crate::programs::{ProgramKey, ProgramStore};
use crate::status::problem::lines;
use crate::status::problems;
use crate::status::totals::Totals;
use crate::status::{
    CoreTimeStatus, DirectionStatus, HandshakeStatus, InfoStatus, IngressRule, KeyStatus, PortStatus,
    SessionStatus, State, Status, TenantStatus, Unowned, VmStatus,
};
use crate::supervisor::{KeyReport, SupervisorReport};
use p4shield_abi::info::InfoStatus as Info;
use p4shield_abi::{Direction, ProgramLimit};
use p4shield_attach::UnownedCounts;
use p4shield_compartment::CoreTime;
use p4shield_control as control;
use p4shield_mediator::{DirectionCounts, Reason};
use p4shield_seal::KeyId;
use std::time::Instant;

impl DaemonState {
    /// Returns the present status of everything.
    pub(crate) fn status(&self) -> Status {
        let totals = self.attachment.totals();
        let (wires, switches) = (self.attachment.wires(), self.attachment.switches());
        let ports: Vec<_> = switches.connected.iter().flat_map(|s| &s.ports).collect();
        let running = self.running();
        let tenant = |(t, _)| tenant_status(&self.starter.programs, &running, t, &totals, &ports);
        let tenants: Vec<_> = running.config.numbered_tenants().filter_map(tenant).collect();
        let mut problems = problems::of_tenants(&running.config, &tenants);
        problems.extend(problems::of_wires(&running.config, &wires));
        problems.extend(switches.problems);
        let (topology, of_topology) = self.tenant_switches.status(&running.config);
        problems.extend(of_topology);
        problems.extend(self.tenant_sockets().problems());
        self.losses.retain(Instant::now(), &mut problems);
        self.watched.stamp(&mut problems);
        let UnownedCounts { passed, dropped, spoofed, refused } = totals.unowned;
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            config: running.config.file.display().to_string(),
            pid: std::process::id(),
            started_ms: self.started_ms,
            cgroup: self.cgroup.clone(),
            tenants,
            attachment: running.config.attachment.name().to_owned(),
            placement: running.config.placement.name().to_owned(),
            wires,
            switches: switches.connected,
            unowned: Unowned { passed, dropped, spoofed, refused },
            absent_ports: switches.absent,
            topology,
            advice: lines(&problems),
            problems,
        }
    }
}

fn tenant_status(
    programs: &ProgramStore,
    running: &Running,
    t: usize,
    totals: &Totals,
    ports: &[&PortStatus],
) -> Option<TenantStatus> {
    let (tenant, report) = (&running.config.tenants[t], running.supervisor(t)?.report().clone());
    let vm = |(v, vm): (usize, &config::Vm)| {
        let p4vm = report.p4vm.as_ref().and_then(|p| p.vms.iter().find(|p| usize::from(p.vm) == v));
        let direction = |d: Direction| DirectionStatus {
            skipped: tenant.skips(v, d),
            source: programs.source(&ProgramKey::new(&tenant.name, &vm.name, tenant.place_of(d))),
            ..direction_status(&report, v, d, &totals.tally(t, v, d), p4vm)
        };
        let is_vms =
            |p: &&PortStatus| (&p.tenant, &p.vm) == (&Some(tenant.name.clone()), &Some(vm.name.clone()));
        let rule = match running.config.attachment {
            Attachment::Wire => IngressRule::OwnPort,
            Attachment::Dpdk | Attachment::Xsk => IngressRule::of(ports.iter().copied().filter(is_vms)),
        };
        VmStatus {
            name: vm.name.clone(),
            ingress_rule: rule,
            info: info_status(vm.info_page.is_some(), p4vm),
            keys: p4vm.and_then(|p| p.keys).map(|keys| {
                key_status(&keys, report.keys.get(v).copied().unwrap_or_default(), vm.info_page.is_some())
            }),
            handshake: p4vm.and_then(|p| p.handshake.as_ref()).map(handshake_status),
            log_records: p4vm.map_or(0, |p| p.log_records),
            ingress: direction(Direction::Ingress),
            egress: direction(Direction::Egress),
        }
    };
    let sandbox = report.sandbox.as_ref().filter(|_| report.state == State::Running);
    Some(TenantStatus {
        name: tenant.name.clone(),
        compartment: tenant.compartment.name().to_owned(),
        tee: tenant.tee.name().to_owned(),
        state: report.state,
        pid: report.pid,
        uid: sandbox.map(|s| s.uid),
        adopted: report.adopted && report.pid.is_some(),
        restarts: report.restarts,
        error: report.error.clone(),
        channels: report.channels.clone(),
        cores: report.cores.clone(),
        core_time: report.core_time.map(core_time),
        inline: report.inline.clone(),
        missing: sandbox.map(|s| s.missing.iter().map(ToString::to_string).collect()).unwrap_or_default(),
        landlock_abi: sandbox.map_or(0, |s| s.landlock_abi),
        vms: tenant.numbered_vms().map(vm).collect(),
    })
}

fn core_time(time: CoreTime) -> CoreTimeStatus {
    let us = |time: std::time::Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    CoreTimeStatus { ran_us: us(time.ran), waited_us: us(time.waited) }
}

fn seconds_now() -> u64 {
    p4shield_seal::Now::read().real_ns / 1_000_000_000
}

fn key_status(keys: &control::KeyStatus, report: KeyReport, page: bool) -> KeyStatus {
    KeyStatus {
        key: KeyId(keys.current).to_string(),
        window_until: keys.previous_ms.map(|ms| report.until.unwrap_or_else(|| seconds_now() + ms / 1_000)),
        agent_follows: keys.agent_follows,
        log_follows: keys.log_follows,
        overdue: report.is_overdue && page,
    }
}

fn handshake_status(handshake: &control::HandshakeStatus) -> HandshakeStatus {
    let session = |s: &control::SessionStatus| SessionStatus {
        transcript: hex::encode(s.transcript),
        agent: hex::encode(s.agent),
        is_agent_known: s.is_agent_known,
        is_attested: s.presented_evidence,
        age_s: s.age_s,
    };
    HandshakeStatus {
        agreed: handshake.agreed,
        failed: handshake.failed,
        ignored: handshake.ignored,
        // A P4 VM is hostile: its text goes to a terminal.
        error: handshake.error.as_deref().map(p4shield_text::printable),
        session: handshake.session.as_ref().map(session),
    }
}

fn info_status(page: bool, p4vm: Option<&control::VmStatus>) -> InfoStatus {
    let Some(p) = p4vm.filter(|_| page) else {
        return InfoStatus {
            status: if page { "unknown" } else { "none" }.to_owned(),
            ..InfoStatus::default()
        };
    };
    let all = [Info::Known, Info::Missing, Info::Stale, Info::Forged, Info::Replayed];
    let mut status = all.into_iter().find(|s| *s as u8 == p.info).map_or("unknown", Info::name);
    if p.info == Info::Missing as u8 && !p.directions.iter().any(|d| d.reads_info) {
        status = "unread";
    }
    let [accepted, forged, replayed, stale] = p.info_tally;
    InfoStatus { status: status.to_owned(), accepted, forged, replayed, stale }
}

fn direction_status(
    report: &SupervisorReport,
    vm: usize,
    direction: Direction,
    tally: &DirectionCounts,
    p4vm: Option<&control::VmStatus>,
) -> DirectionStatus {
    let reasons = |counts: &[u64]| {
        let named = Reason::ALL.iter().zip(counts).filter(|(_, n)| **n > 0);
        named.map(|(r, n)| (r.name().to_owned(), *n)).collect()
    };
    let judged = p4vm.map(|p| &p.directions[direction as usize]);
    DirectionStatus {
        program: judged.and_then(|j| j.program).map(hex::encode),
        error: report.refusals.get(vm).and_then(|r| r[direction as usize].clone()),
        packets: tally.packets_in,
        bytes: tally.bytes_in,
        passed: tally.passed,
        rewritten: tally.rewritten,
        dropped: reasons(&tally.dropped),
        let_through: reasons(&tally.let_through),
        held: tally.held,
        judged: judged.map_or(0, |j| j.judged),
        undecided: judged.map_or(0, |j| j.undecided),
        failed: judged.map_or(0, |j| j.failed),
        limited: judged.map_or_else(Vec::new, limited),
        ..DirectionStatus::default()
    }
}

/// Returns the limits of programs that packets met, and how many.
fn limited(judged: &control::DirectionStatus) -> Vec<(String, u64)> {
    let met = ProgramLimit::ALL.iter().zip(judged.limited).filter(|(_, n)| *n > 0);
    met.map(|(limit, n)| (limit.name().to_owned(), n)).collect()
}
