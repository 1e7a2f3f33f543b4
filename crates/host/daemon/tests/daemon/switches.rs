//! Switches with a preloaded library: threads, in this process and in others, use `attach` as the DPDK
//! library does, with a daemon in a process of its own and real P4 VMs.

use crate::Test;
use crate::fixture::{Fixture, wait_for};
use p4shield_attach::{Kind, Lane, Notice, Options, PortInfo, Session};
use p4shield_daemon::status::{State, Status};
use p4shield_daemon::{PortStatus, api};
use p4shield_mediator::{Disposition, ReleasedPacket};
use p4shield_testbed::NetNs;
use p4shield_testbed::ovsdb::Database;
use p4shield_testbed::packet::udp;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

pub(crate) const TESTS: &[Test] = &[
    ("a_switch_that_dies_does_not_affect_another", two_switches),
    ("a_new_p4_vm_serves_all_lanes_of_all_switches", p4vm_dies),
    ("without_a_daemon_policies_apply_until_the_next_starts", daemon_dies),
    ("ports_notices_and_bypasses_are_in_status_and_metrics", ports_in_status),
    ("open_vswitchs_database_determines_a_ports_vm", database),
    ("inline_programs_outlive_p4_vm_and_daemon", inline),
    ("garbage_on_the_attach_socket_has_no_effect", garbage),
    ("p4_vms_leave_the_core_on_which_a_switch_polls", polling_core),
];

pub(crate) const ALICE: usize = 0;
pub(crate) const BOB: usize = 1;
/// Name of a switch's polling thread.
const POLLING: &str = "polling";
/// Most packets of a lane in flight.
const IN_FLIGHT: usize = 32;

pub(crate) fn text(fixture: &Fixture) -> String {
    let ports = "[[port]]\nname = \"port0\"\nrole = \"uplink\"\n";
    let head = "attachment = \"dpdk\"\n[daemon]\nattach_socket = \"attach.sock\"\n";
    format!("{}{ports}", fixture.text("pass").replacen("[daemon]\n", head, 1))
}

/// A daemon in a process of its own, which ends in order when dropped.
pub(crate) struct Daemon(Child);

impl Daemon {
    pub(crate) fn start(fixture: &Fixture) -> Self {
        Self::with(fixture, |c| {
            c.arg("log");
        })
    }

    /// Starts a daemon that logs to `log`.
    pub(crate) fn logging(fixture: &Fixture, log: File) -> Self {
        Self::with(fixture, |command| {
            command.arg("log").stderr(log);
        })
    }

    fn with(fixture: &Fixture, set: impl FnOnce(&mut Command)) -> Self {
        let mut command = Command::new("/proc/self/exe");
        command.arg("daemon").arg(fixture.at("p4shield.toml")).stdin(Stdio::null());
        set(&mut command);
        let daemon = Self(command.spawn().unwrap());
        wait_for("two P4 VMs", || {
            let status = api::status(&fixture.at("daemon.sock"));
            status
                .is_ok_and(|s| s.pid == daemon.0.id() && s.tenants.iter().all(|t| t.state == State::Running))
        });
        daemon
    }

    /// Kills the daemon, so that it cleans nothing up.
    pub(crate) fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            kill_process(Pid::from_child(&self.0), Signal::TERM).unwrap();
            self.0.wait().unwrap();
        }
    }
}

pub(crate) fn status(fixture: &Fixture) -> Status {
    api::status(&fixture.at("daemon.sock")).unwrap()
}

#[derive(Default)]
pub(crate) struct PacketCounts {
    passed: [AtomicU64; 2],
    dropped: [AtomicU64; 2],
    /// alice's packets, by lane.
    passed_by: [AtomicU64; 2],
    ending: AtomicBool,
}

impl PacketCounts {
    fn passed(&self, tenant: usize) -> u64 {
        self.passed[tenant].load(Ordering::Relaxed)
    }

    pub(crate) fn dropped(&self, tenant: usize) -> u64 {
        self.dropped[tenant].load(Ordering::Relaxed)
    }
}

/// A switch with one port of two queues, which sends to both tenants continuously.
pub(crate) struct Switch {
    pub(crate) session: Session,
    pub(crate) counts: Arc<PacketCounts>,
    thread: Option<JoinHandle<()>>,
}

impl Switch {
    pub(crate) fn start(config: &Path, port: &str) -> Self {
        Self::called("test-switch", config, port)
    }

    pub(crate) fn called(application: &str, config: &Path, port: &str) -> Self {
        let (config, application) = (config.to_owned(), application.to_owned());
        let options = Options { config, kind: Kind::Dpdk, application };
        let session = Session::start(options).unwrap();
        let port = session.port_up(PortInfo { name: port.into(), number: 3, ..PortInfo::default() });
        let lanes = (0..2).map(|q| session.lane(port, q)).collect();
        let counts = Arc::new(PacketCounts::default());
        let shared = Arc::clone(&counts);
        let thread = std::thread::Builder::new().name(POLLING.into());
        let thread = thread.spawn(move || poll(lanes, &shared)).unwrap();
        Self { session, counts, thread: Some(thread) }
    }

    /// Waits until `packets` more packets of a tenant have passed.
    pub(crate) fn flows(&self, tenant: usize, packets: u64) {
        let before = self.counts.passed(tenant);
        wait_for("traffic", || self.counts.passed(tenant) >= before + packets);
    }

    /// Waits until both lanes pass alice's packets, which are dropped without a P4 VM: from then on none is
    /// dropped unjudged.
    pub(crate) fn is_served(&self) {
        let now = || self.counts.passed_by.each_ref().map(|n| n.load(Ordering::Relaxed));
        let before = now();
        wait_for("both lanes", || now().iter().zip(before).all(|(now, before)| *now >= before + 200));
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.counts.ending.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Returns a packet from 10.0.0.99, an address of no VM, to alice's VM (1) or bob's (2).
fn to(host: u8) -> Vec<u8> {
    udp([10, 0, 0, 99], [10, 0, 0, host])
}

fn poll(mut lanes: Vec<Lane<Vec<u8>>>, counts: &PacketCounts) {
    let started = Instant::now();
    let count = |lane: usize, r: ReleasedPacket<Vec<u8>>| {
        let tenant = usize::from(r.packet[33]) - 1;
        let passes = r.disposition == Disposition::Pass;
        let which = if passes { &counts.passed } else { &counts.dropped };
        which[tenant].fetch_add(1, Ordering::Relaxed);
        if passes && tenant == ALICE {
            counts.passed_by[lane].fetch_add(1, Ordering::Relaxed);
        }
    };
    while !counts.ending.load(Ordering::Acquire) {
        let now = u64::try_from(started.elapsed().as_nanos()).unwrap();
        for (n, lane) in lanes.iter_mut().enumerate() {
            lane.poll(now, 64, |r| count(n, r));
            for tenant in [1, 2] {
                if lane.held() < IN_FLIGHT {
                    lane.submit(now, to(tenant)).into_iter().for_each(|r| count(n, r));
                }
            }
        }
        std::thread::yield_now();
    }
    for (n, lane) in lanes.iter_mut().enumerate() {
        lane.drain(|r| count(n, r));
        assert_eq!(lane.held(), 0);
    }
}

/// `switch CONFIG PORT`: a switch until standard input ends.
pub(crate) fn run(config: &str, port: &str) {
    let _switch = Switch::start(config.as_ref(), port);
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
}

/// A switch in a process of its own, killed when dropped.
struct SwitchProcess(Child);

impl SwitchProcess {
    fn start(fixture: &Fixture) -> Self {
        let mut command = Command::new("/proc/self/exe");
        command.arg("switch").arg(fixture.at("p4shield.toml")).arg("port1").stdin(Stdio::piped());
        Self(command.spawn().unwrap())
    }

    fn port(&self, status: &Status) -> Option<PortStatus> {
        let mine = status.switches.iter().find(|s| s.pid.unsigned_abs() == self.0.id())?;
        mine.ports.first().cloned()
    }
}

impl Drop for SwitchProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn two_switches() {
    let fixture = Fixture::new("two-switches");
    fixture.config(&text(&fixture));
    let _daemon = Daemon::start(&fixture);
    let switch = Switch::start(&fixture.at("p4shield.toml"), "port0");
    switch.is_served();
    let other = SwitchProcess::start(&fixture);
    wait_for("the other switch", || {
        other.port(&status(&fixture)).is_some_and(|p| p.mediated && p.queues == 2)
    });
    let now = status(&fixture);
    assert_eq!(now.switches.len(), 2);
    assert!(now.switches.iter().all(|s| s.release == env!("CARGO_PKG_VERSION") && s.notes.is_empty()));
    // From here on alice, whose policy is to drop, loses no packets.
    let lost = switch.counts.dropped(ALICE);
    let before = status(&fixture).tenants[ALICE].vms[0].ingress.passed;
    wait_for("counts of both", || status(&fixture).tenants[ALICE].vms[0].ingress.passed > before + 1000);
    drop(other);
    wait_for("its end", || status(&fixture).switches.len() == 1);
    let after = status(&fixture).tenants[ALICE].vms[0].ingress.clone();
    assert!(after.passed > before + 1000, "the counters of a switch that left are kept");
    switch.flows(ALICE, 1000);
    switch.flows(BOB, 1000);
    assert_eq!(switch.counts.dropped(ALICE), lost, "alice lost packets");
}

fn p4vm_dies() {
    let fixture = Fixture::new("lanes-renewed");
    fixture.config(&text(&fixture));
    let _daemon = Daemon::start(&fixture);
    let switch = Switch::start(&fixture.at("p4shield.toml"), "port0");
    let other = SwitchProcess::start(&fixture);
    switch.is_served();
    wait_for("the other switch", || other.port(&status(&fixture)).is_some_and(|p| p.queues == 2));
    for signal in [Signal::KILL, Signal::STOP] {
        let before = status(&fixture).tenants[ALICE].clone();
        let pid = before.pid.unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
        wait_for("another P4 VM", || {
            let alice = &status(&fixture).tenants[ALICE];
            alice.restarts > before.restarts && alice.state == State::Running && alice.pid != Some(pid)
        });
        switch.is_served();
        let bob = status(&fixture).tenants[BOB].restarts;
        assert_eq!(bob, 0, "bob's P4 VM is not affected");
    }
    let alice = &status(&fixture).tenants[ALICE];
    assert!(alice.channels.is_none() && alice.error.is_some(), "{alice:?}");
    switch.flows(BOB, 1000);
}

fn daemon_dies() {
    let fixture = Fixture::new("daemon-dies");
    fixture.config(&text(&fixture).replace("[daemon]\n", "[daemon]\nadoption_time = \"1ms\"\n"));
    let switch = Switch::start(&fixture.at("p4shield.toml"), "port0");
    // Without a daemon alice's policy drops and bob's passes.
    wait_for("drops", || switch.counts.dropped(ALICE) > 100);
    switch.flows(BOB, 100);
    for _ in 0..2 {
        let daemon = Daemon::start(&fixture);
        switch.is_served();
        daemon.kill();
        let (passed, dropped) = (switch.counts.passed(ALICE), switch.counts.dropped(ALICE));
        wait_for("the policy", || switch.counts.dropped(ALICE) > dropped + 100);
        assert!(switch.counts.passed(ALICE) >= passed);
        switch.flows(BOB, 100);
    }
}

fn ports_in_status() {
    let fixture = Fixture::new("ports");
    fixture.config(&text(&fixture));
    let _daemon = Daemon::start(&fixture);
    let none = status(&fixture);
    assert!(none.advice.iter().any(|a| a.contains("no switch is connected")), "{:?}", none.advice);
    let switch = Switch::start(&fixture.at("p4shield.toml"), "port0");
    let spare = switch.session.port_up(PortInfo { name: "spare\u{1b}[2J".into(), ..PortInfo::default() });
    switch.session.notify(Some(spare), Notice::Unmediated("it has no receive callbacks".into()));
    switch.session.notify(None, Notice::Bypass("flows are offloaded".into()));
    switch.session.notify(None, Notice::Unmediated("a socket is not mediated".into()));
    switch.is_served();
    wait_for("ports", || {
        status(&fixture).switches.first().is_some_and(|s| s.ports.len() == 2 && s.ports[1].why.is_some())
    });
    let now = status(&fixture);
    assert_eq!((now.attachment.as_str(), now.placement.as_str()), ("dpdk", "p4vm"));
    let shown = &now.switches[0];
    assert_eq!((shown.kind.as_str(), shown.application.as_str()), ("dpdk", "test-switch"));
    assert_eq!(shown.bypasses, ["flows are offloaded", "a socket is not mediated"]);
    let (port, spare) = (&shown.ports[0], &shown.ports[1]);
    assert_eq!((port.role.as_str(), port.mediated, port.queues, port.number), ("uplink", true, 2, 3));
    assert_eq!((spare.role.as_str(), spare.mediated), ("shared", false));
    assert!(!spare.name.contains('\u{1b}'), "control characters of a switch do not reach a terminal");
    for part in ["no receive callbacks", "flows are offloaded", "a socket is not mediated"] {
        assert!(now.problems.iter().any(|p| p.text.contains(part)), "{part}: {:?}", now.problems);
    }
    let metrics = api::metrics(&fixture.at("daemon.sock")).unwrap();
    assert!(metrics.contains("p4shield_bypasses{"), "{metrics}");
    wait_for("counts", || {
        let ingress = &status(&fixture).tenants[ALICE].vms[0].ingress;
        ingress.passed > 0 && ingress.passed <= switch.counts.passed(ALICE)
    });
}

fn database() {
    if let Err(why) = p4shield_testbed::usable() {
        p4shield_need::skip("machine", why);
        return;
    }
    let ns = NetNs::create("host-ovsdb").unwrap();
    let database = match Database::start(&ns) {
        Ok(database) => database,
        Err(e) => {
            p4shield_need::skip("machine", e);
            return;
        }
    };
    let set = |args: &[&str]| drop(database.vsctl(&[&["--no-wait"], args].concat()).unwrap());
    set(&["add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev"]);
    set(&["add-port", "br0", "dpdk7", "--", "set", "interface", "dpdk7", "type=dpdk"]);
    set(&["set", "interface", "dpdk7", "options:dpdk-devargs=\"net_x0,iface=y\""]);

    let fixture = Fixture::new("ovsdb");
    let ovsdb = format!("ovsdb = \"{}\"\nattach_socket", database.socket().display());
    let text = text(&fixture).replacen("attach_socket", &ovsdb, 1);
    fixture.config(&text.replace("name = \"web\"", "name = \"web\"\niface_id = \"8d6b-1\""));
    let _daemon = Daemon::start(&fixture);
    let switch = Switch::called("ovs-vswitchd", &fixture.at("p4shield.toml"), "net_x0");
    let port =
        || status(&fixture).switches.first().and_then(|s| s.ports.first().cloned()).unwrap_or_default();
    // The database names a port that the switch may not have reported as mediated yet.
    wait_for("its name", || port().interface.as_deref() == Some("dpdk7") && port().mediated);
    assert_eq!(port().role, "shared");
    switch.is_served();

    set(&["set", "interface", "dpdk7", "external_ids:iface-id=8d6b-1"]);
    wait_for("its VM", || port().vm.as_deref() == Some("web"));
    assert_eq!(port().tenant.as_deref(), Some("alice"));
    // A packet from another address than the VM's is spoofed; no program judges it.
    let before = switch.counts.dropped(BOB);
    wait_for("drops", || switch.counts.dropped(BOB) > before + 500);
    wait_for("their count", || {
        let egress = status(&fixture).tenants[ALICE].vms[0].egress.clone();
        egress.dropped.iter().any(|(reason, n)| reason == "spoofed" && *n > 0)
    });
    set(&["remove", "interface", "dpdk7", "external_ids", "iface-id"]);
    wait_for("the shared role", || port().role == "shared");
    switch.is_served();

    set(&["set", "Open_vSwitch", ".", "other_config:hw-offload=true"]);
    wait_for("the bypass", || {
        status(&fixture).switches[0].bypasses.iter().any(|b| b.contains("hw-offload=false"))
    });
    let advice = status(&fixture).advice;
    assert!(advice.iter().any(|a| a.contains("can bypass")), "{advice:?}");
}

fn inline() {
    let fixture = Fixture::new("inline");
    fixture.config(&format!("placement = \"inline\"\n{}", text(&fixture)));
    let daemon = Daemon::start(&fixture);
    let switch = Switch::start(&fixture.at("p4shield.toml"), "port0");
    switch.is_served();
    let ingress = |tenant: usize| status(&fixture).tenants[tenant].vms[0].ingress.clone();
    wait_for("judged packets", || ingress(ALICE).judged > 0 && ingress(BOB).judged > 0);
    wait_for("log records of the switch", || status(&fixture).tenants[BOB].vms[0].log_records > 0);
    let before = ingress(ALICE).program.unwrap();

    let socket = fixture.at("daemon.sock");
    let refused = api::load(&socket, "alice", "web", "ingress", &[fixture.at("unsafe.o")]);
    assert!(matches!(&refused, Err(api::ApiError::Failed(why)) if why.contains("refused")), "{refused:?}");
    assert_eq!(ingress(ALICE).program.as_ref(), Some(&before));
    switch.flows(ALICE, 500);
    let digest = api::load(&socket, "alice", "web", "ingress", &[fixture.at("drop.o")]).unwrap();
    let dropped = switch.counts.dropped(ALICE);
    wait_for("drops", || switch.counts.dropped(ALICE) > dropped + 500);
    assert_eq!(ingress(ALICE).program, Some(digest));
    api::load(&socket, "alice", "web", "ingress", &[fixture.at("pass.o")]).unwrap();
    switch.flows(ALICE, 500);

    // The P4 VM verifies only: neither its end nor the daemon's affects packets.
    let alice = status(&fixture).tenants[ALICE].clone();
    kill_process(Pid::from_raw(alice.pid.unwrap()).unwrap(), Signal::KILL).unwrap();
    let lost = switch.counts.dropped(ALICE);
    switch.flows(ALICE, 1000);
    wait_for("another P4 VM", || status(&fixture).tenants[ALICE].restarts > alice.restarts);
    daemon.kill();
    switch.flows(ALICE, 1000);
    switch.flows(BOB, 1000);
    assert_eq!(switch.counts.dropped(ALICE), lost, "alice lost packets");
    let _daemon = Daemon::start(&fixture);
    wait_for("its programs", || status(&fixture).switches.len() == 1 && ingress(ALICE).judged > 0);
    switch.flows(ALICE, 1000);
    assert_eq!(
        switch.counts.dropped(ALICE),
        lost,
        "the new daemon's programs replace the old ones when complete"
    );
}

fn garbage() {
    use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketType, connect, send, socket};
    let fixture = Fixture::new("garbage");
    fixture.config(&text(&fixture));
    let _daemon = Daemon::start(&fixture);
    let switch = Switch::start(&fixture.at("p4shield.toml"), "port0");
    switch.is_served();
    let lost = switch.counts.dropped(ALICE);
    let address = SocketAddrUnix::new(fixture.at("attach.sock")).unwrap();
    let mut open = Vec::new();
    for n in 0..300_usize {
        let client = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        if connect(&client, &address).is_ok() {
            let bytes: Vec<_> = (0..n).map(|i| (i * n) as u8).collect();
            let _ = send(&client, &bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
            // Some connections stay open and silent.
            if n % 10 == 0 {
                open.push(client);
            }
        }
    }
    switch.flows(ALICE, 1000);
    assert_eq!(switch.counts.dropped(ALICE), lost, "alice lost packets");
    assert_eq!(status(&fixture).switches.len(), 1);
}

/// The cores that the threads of a process may use, as the kernel lists them.
fn cores(process: i32) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let status = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("status")).ok();
    let cores = |status: String| {
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        line.map(|list| list.trim().to_owned())
    };
    tasks.flatten().filter_map(status).filter_map(cores).collect()
}

/// Binds this process's polling threads to cores. Returns whether there is one.
fn bind_polling_threads(cores: &CpuSet) -> bool {
    let mut found = false;
    for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        if name.trim() == POLLING {
            let thread = task.file_name().to_str().and_then(|t| t.parse().ok()).and_then(Pid::from_raw);
            sched_setaffinity(thread, cores).unwrap();
            found = true;
        }
    }
    found
}

fn polling_core() {
    let fixture = Fixture::new("cores");
    fixture.config(&text(&fixture));
    let _daemon = Daemon::start(&fixture);
    let all = sched_getaffinity(None).unwrap();
    let first = (0..CpuSet::MAX_CPU).find(|core| all.is_set(*core)).unwrap();
    let mut one = CpuSet::new();
    one.set(first);
    let switch = Switch::start(&fixture.at("p4shield.toml"), "port0");
    let p4vms = || status(&fixture).tenants.into_iter().filter_map(|t| t.pid).collect::<Vec<_>>();
    let everywhere = cores(std::process::id().cast_signed());
    wait_for("the polling thread", || bind_polling_threads(&one));
    if all.count() == 1 {
        wait_for("the advice", || status(&fixture).advice.iter().any(|a| a.contains("pmd-cpu-mask")));
    } else {
        let left =
            |pid: &i32| cores(*pid).iter().all(|list| list != &first.to_string() && list != &everywhere[0]);
        wait_for("all P4 VMs to leave the core", || p4vms().iter().all(left));
        // A new P4 VM does so, too.
        let (old, bob) = (p4vms()[BOB], status(&fixture).tenants[BOB].pid.unwrap());
        kill_process(Pid::from_raw(bob).unwrap(), Signal::KILL).unwrap();
        wait_for("another P4 VM", || p4vms().get(BOB).is_some_and(|pid| *pid != old));
        wait_for("it to leave the core", || p4vms().iter().all(left));
    }
    assert!(bind_polling_threads(&all));
    let back = |pid: &i32| cores(*pid).iter().all(|list| list == &everywhere[0]);
    wait_for("the P4 VMs to use all cores again", || p4vms().iter().all(back));
    switch.flows(ALICE, 100);
}
