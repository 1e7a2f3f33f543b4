//! The daemon with real wires, in network namespaces: a client, a bridge, two user VMs.

use crate::Test;
use crate::adoption::rounds;
use crate::fixture::{Fixture, PATIENCE, wait_for};
use p4shield_daemon::api;
use p4shield_daemon::status::{State, Status};
use p4shield_testbed::{Guarded, NetNs, Switch};
use rustix::process::{Pid, Signal, kill_process};
use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

pub(crate) const TESTS: &[Test] = &[
    ("a_killed_p4_vm_on_a_wire_is_replaced_behind_the_switch", killed_on_a_wire),
    ("a_killed_daemon_costs_wires_no_packet", killed_daemon),
    ("an_upgrade_costs_wires_no_packet", upgraded),
    ("a_killed_process_of_wires_is_started_again", killed_wires),
    ("wires_close_if_no_daemon_adopts_them_in_time", expired),
];

/// A cloud of namespaces with a daemon in it.
pub(crate) struct Cloud {
    client: NetNs,
    pub(crate) vms: [NetNs; 2],
    host: NetNs,
    daemon: Guarded,
    /// Receives the daemon's notifications for systemd.
    notified: UnixDatagram,
    pub(crate) fixture: Fixture,
    _switch: Switch,
}

impl Cloud {
    fn new() -> Self {
        Self::with(|text| text)
    }

    /// Starts a cloud with a changed configuration.
    pub(crate) fn with(change: impl FnOnce(String) -> String) -> Self {
        let (host, client) = (NetNs::create("rt-host").unwrap(), NetNs::create("rt-client").unwrap());
        let vms = [NetNs::create("rt-alice").unwrap(), NetNs::create("rt-bob").unwrap()];
        let switch = Switch::bridge(&host).unwrap();
        host.veth("cl", &client, "eth0").unwrap();
        switch.plug(&host, "cl").unwrap();
        client.ip("addr add 10.0.0.99/24 dev eth0").unwrap();
        let fixture = Fixture::new("wires");
        let mut text = fixture.text("drop");
        for (n, (ns, (tenant, vm))) in vms.iter().zip([("alice", "web"), ("bob", "db")]).enumerate() {
            host.veth(&format!("vm{n}"), ns, "eth0").unwrap();
            host.veth(&format!("sw{n}"), &host, &format!("br{n}p")).unwrap();
            switch.plug(&host, &format!("br{n}p")).unwrap();
            ns.ip(&format!("addr add 10.0.0.{}/24 dev eth0", n + 1)).unwrap();
            text += &format!(
                "[[wire]]\nvm_interface = \"vm{n}\"\nswitch_interface = \"sw{n}\"\ntenant = \
                 \"{tenant}\"\nvm = \"{vm}\"\n"
            );
        }
        fixture.config(&change(text));
        let notified = UnixDatagram::bind(fixture.at("notify")).unwrap();
        notified.set_read_timeout(Some(PATIENCE)).unwrap();
        let daemon = daemon(&host, &fixture);
        let cloud = Self { client, vms, host, daemon, notified, fixture, _switch: switch };
        assert_eq!(cloud.notification(), "READY=1");
        wait_for("P4 VMs and wires", || {
            let status = cloud.status();
            status.tenants.iter().all(|t| t.state == State::Running)
                && status.wires.iter().all(|w| w.vm.up && w.switch.up)
        });
        cloud
    }

    /// Returns the daemon's next notification.
    fn notification(&self) -> String {
        let mut text = [0; 256];
        let n = self.notified.recv(&mut text).expect("the daemon sends a notification");
        String::from_utf8_lossy(&text[..n]).into_owned()
    }

    pub(crate) fn status(&self) -> Status {
        api::status(&self.fixture.at("daemon.sock")).unwrap()
    }

    /// Returns numbers and names of the host's interfaces.
    fn interfaces(&self) -> Vec<String> {
        let text = self.host.ip("-o link show type veth").unwrap();
        text.lines().map(|l| l.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect()
    }
}

fn daemon(host: &NetNs, fixture: &Fixture) -> Guarded {
    let mut command = host.command("/proc/self/exe");
    command.arg("daemon").arg(fixture.at("p4shield.toml")).env("NOTIFY_SOCKET", fixture.at("notify"));
    Guarded::spawn(&mut command).unwrap()
}

/// Time between two datagrams. The rings of a wire hold those of five seconds, in which it may have no core.
const PAUSE: Duration = Duration::from_millis(10);

/// Datagrams from the client to a VM until stopped.
pub(crate) struct Flow {
    sent: Arc<AtomicU64>,
    arrived: Arc<AtomicU64>,
    ending: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// Time without a datagram, and how many of these after the end mean that none is on its way.
const SILENCE: Duration = Duration::from_millis(50);
const SILENCES: u32 = 60;

impl Flow {
    pub(crate) fn start(cloud: &Cloud, n: usize) -> Self {
        let receiver = cloud.vms[n].inside(|| UdpSocket::bind(("0.0.0.0", 7)).unwrap());
        let sender = cloud.client.inside(|| UdpSocket::bind(("0.0.0.0", 0)).unwrap());
        sender.connect(("10.0.0.".to_owned() + &(n + 1).to_string(), 7)).unwrap();
        receiver.set_read_timeout(Some(SILENCE)).unwrap();
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&receiver, 16 << 20).unwrap();
        let (sent, arrived) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let ending = Arc::new(AtomicBool::new(false));
        let (s, a, e, f) =
            (Arc::clone(&sent), Arc::clone(&arrived), Arc::clone(&ending), Arc::clone(&ending));
        let all = Arc::clone(&sent);
        let send = std::thread::spawn(move || {
            while !e.load(Ordering::Acquire) {
                let n = s.fetch_add(1, Ordering::AcqRel);
                sender.send(&n.to_le_bytes()).unwrap();
                std::thread::sleep(PAUSE);
            }
        });
        let receive = std::thread::spawn(move || {
            let mut silent = 0;
            // A machine that is busy with other work holds datagrams for longer than one silence.
            while silent < SILENCES
                && (silent == 0 || a.load(Ordering::Acquire) < all.load(Ordering::Acquire))
            {
                match receiver.recv(&mut [0; 8]) {
                    Ok(_) => {
                        a.fetch_add(1, Ordering::AcqRel);
                        silent = 0;
                    }
                    Err(_) => silent += u32::from(f.load(Ordering::Acquire)),
                }
            }
        });
        let flow = Self { sent, arrived, ending, threads: vec![send, receive] };
        flow.goes_on(100);
        flow
    }

    pub(crate) fn goes_on(&self, packets: u64) {
        let before = self.arrived.load(Ordering::Acquire);
        wait_for("datagrams", || self.arrived.load(Ordering::Acquire) >= before + packets);
    }

    /// Waits until that many further datagrams are sent.
    fn tries(&self, packets: u64) {
        let before = self.sent.load(Ordering::Acquire);
        wait_for("datagrams to be sent", || self.sent.load(Ordering::Acquire) >= before + packets);
    }

    /// Ends the flow. Returns the number of datagrams sent and received.
    pub(crate) fn stop(mut self) -> (u64, u64) {
        self.ending.store(true, Ordering::Release);
        self.threads.drain(..).for_each(|t| t.join().unwrap());
        (self.sent.load(Ordering::Acquire), self.arrived.load(Ordering::Acquire))
    }
}

fn killed_on_a_wire() {
    if let Err(why) = p4shield_testbed::usable() {
        p4shield_need::skip("machine", why);
        return;
    }
    let mut cloud = Cloud::new();
    let interfaces = cloud.interfaces();
    let (alice, bob) = (Flow::start(&cloud, 0), Flow::start(&cloud, 1));
    let victim = Pid::from_raw(cloud.status().tenants[1].pid.unwrap()).unwrap();
    kill_process(victim, Signal::KILL).unwrap();
    wait_for("another P4 VM", || {
        let bob = &cloud.status().tenants[1];
        bob.restarts == 1 && bob.state == State::Running
    });
    bob.goes_on(100);
    alice.goes_on(100);
    let ((sent, arrived), (bobs, bobs_arrived)) = (alice.stop(), bob.stop());
    assert_eq!(sent, arrived, "alice's datagrams");
    assert!(bobs_arrived < bobs, "bob's policy is to drop: {bobs_arrived} of {bobs}");
    assert_eq!(cloud.interfaces(), interfaces);
    println!("  alice {arrived} of {sent} datagrams, bob {bobs_arrived} of {bobs}");
    kill_process(cloud.daemon.pid(), Signal::HUP).unwrap();
    assert!(cloud.notification().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert_eq!(cloud.notification(), "READY=1");
    // SIGTERM ends the daemon and removes its files.
    let status = cloud.daemon.stop().expect("it ends by itself");
    assert!(status.success(), "{status:?}");
    assert!(!cloud.fixture.at("daemon.sock").exists() && !cloud.fixture.at("db.info").exists());
}

/// Returns the numbers of all processes that the daemon started.
fn processes(cloud: &Cloud) -> Vec<i32> {
    let of = |name: &str| {
        let text = std::fs::read_to_string(cloud.fixture.at("daemon.sock.p4vms").join(name)).unwrap();
        let (_, rest) = text.split_once("\"pid\":").unwrap();
        rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
    };
    ["0.json", "1.json", "wires.json"].map(of).to_vec()
}

fn killed_daemon() {
    if let Err(why) = p4shield_testbed::usable() {
        p4shield_need::skip("machine", why);
        return;
    }
    let mut cloud = Cloud::new();
    let (alice, bob) = (Flow::start(&cloud, 0), Flow::start(&cloud, 1));
    let before = processes(&cloud);
    for _ in 0..rounds() {
        kill_process(cloud.daemon.pid(), Signal::KILL).unwrap();
        alice.goes_on(100);
        // The next daemon starts in spite of leftover files, without action of switch and VMs.
        cloud.daemon = daemon(&cloud.host, &cloud.fixture);
        assert_eq!(cloud.notification(), "READY=1");
        is_adopted(&cloud, &before);
        alice.goes_on(100);
    }
    // Bob's short deadline may pass while other work has the core.
    let ((sent, arrived), (_, bobs_arrived)) = (alice.stop(), bob.stop());
    assert_eq!(sent, arrived, "alice's datagrams");
    assert!(bobs_arrived > 0);
    let status = cloud.daemon.stop().expect("it ends by itself");
    assert!(status.success(), "{status:?}");
    wait_for("the end of all processes", || before.iter().all(|pid| has_ended(*pid)));
    assert!(!cloud.fixture.at("daemon.sock.p4vms").exists());
}

/// Waits until the daemon has adopted all processes.
fn is_adopted(cloud: &Cloud, before: &[i32]) {
    wait_for("P4 VMs", || cloud.status().tenants.iter().all(|t| t.state == State::Running));
    assert_eq!(processes(cloud), before);
    let status = cloud.status();
    assert!(status.tenants.iter().all(|t| t.adopted && t.restarts == 0), "{status:#?}");
    assert!(status.wires.iter().all(|w| w.vm.up && w.switch.up), "{status:#?}");
}

/// Gone, or a zombie until its new parent reaps it.
fn has_ended(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_none_or(|s| s.is_empty() || s.starts_with('Z') || s.starts_with('X'))
}

fn upgraded() {
    if let Err(why) = p4shield_testbed::usable() {
        p4shield_need::skip("machine", why);
        return;
    }
    let cloud = Cloud::new();
    let (alice, bob) = (Flow::start(&cloud, 0), Flow::start(&cloud, 1));
    let before = processes(&cloud);
    for _ in 0..rounds() {
        let upgrade = api::Command::Upgrade { binary: None };
        api::ask(&cloud.fixture.at("daemon.sock"), &upgrade).unwrap();
        assert_eq!(cloud.notification(), "READY=1");
        is_adopted(&cloud, &before);
        alice.goes_on(100);
    }
    // Bob's short deadline may pass while other work has the core.
    let ((sent, arrived), (_, bobs_arrived)) = (alice.stop(), bob.stop());
    assert_eq!(sent, arrived, "alice's datagrams");
    assert!(bobs_arrived > 0);
}

fn killed_wires() {
    if let Err(why) = p4shield_testbed::usable() {
        p4shield_need::skip("machine", why);
        return;
    }
    let cloud = Cloud::new();
    let flow = Flow::start(&cloud, 0);
    for signal in [Signal::KILL, Signal::TERM] {
        let [.., wires] = processes(&cloud)[..] else { panic!("there is a process of wires") };
        kill_process(Pid::from_raw(wires).unwrap(), signal).unwrap();
        flow.goes_on(100);
        wait_for("wires", || cloud.status().wires.iter().all(|w| w.vm.up && w.switch.up));
    }
    assert!(cloud.status().tenants.iter().all(|t| t.restarts == 0), "the P4 VMs have got new channels");
    flow.stop();
}

fn expired() {
    if let Err(why) = p4shield_testbed::usable() {
        p4shield_need::skip("machine", why);
        return;
    }
    let cloud = Cloud::with(|text| text.replace("[daemon]\n", "[daemon]\nadoption_time = \"300ms\"\n"));
    let flow = Flow::start(&cloud, 0);
    let before = processes(&cloud);
    kill_process(cloud.daemon.pid(), Signal::KILL).unwrap();
    wait_for("the end of all processes", || before.iter().all(|pid| has_ended(*pid)));
    flow.tries(2);
    let (sent, arrived) = flow.stop();
    assert!(arrived < sent, "nothing passes a wire that no process serves");
}
