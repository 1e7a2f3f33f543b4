//! Client, cloud and user VM as network namespaces, with real interfaces and real sockets.

use std::net::{Ipv4Addr, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use p4shield_agent::audit::expect::ExpectedProgram;
use p4shield_agent::audit::finding::{Digest, Finding, Notice};
use p4shield_agent::config::VmConfig;
use p4shield_agent::{AuditConfig, Event, Summary, run_audit};
use p4shield_seal::TenantKey;
use p4shield_testbed::NetNs;

use super::middle::{Middle, PROGRAM};

pub(crate) const TENANT: &str = "acme";
pub(crate) const VM: &str = "web";
pub(crate) const VM_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 88, 0, 2);
pub(crate) const CLIENT_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 88, 0, 1);
pub(crate) const INTERVAL_MS: u64 = 50;
/// Datagrams of a direction that [`World::traffic`] has under way at most: fewer than the buffer of a packet
/// socket holds while its thread has no core.
const UNDER_WAY: u32 = 64;

pub(crate) struct World {
    pub(crate) vm: NetNs,
    pub(crate) client: NetNs,
    pub(crate) cloud: NetNs,
    pub(crate) middle: Middle,
    pub(crate) config: AuditConfig,
    /// The reports of the audit so far.
    events: Mutex<Vec<Event>>,
    _dir: tempfile::TempDir,
}

impl World {
    pub(crate) fn new(change: impl FnOnce(&mut AuditConfig)) -> Self {
        let [vm, client, cloud] =
            ["agent-vm", "agent-client", "agent-cloud"].map(|n| NetNs::create(n).unwrap());
        plug(&vm, &cloud, "eth0");
        client.veth("eth0", &cloud, "to-client").unwrap();
        vm.ip(&format!("addr add {VM_ADDRESS}/24 dev eth0")).unwrap();
        client.ip(&format!("addr add {CLIENT_ADDRESS}/24 dev eth0")).unwrap();
        without_offloads(&client, "eth0");
        let dir = tempfile::tempdir().unwrap();
        let (key_file, page): (PathBuf, PathBuf) = (dir.path().join("key"), dir.path().join("log.page"));
        let key = TenantKey::generate(&key_file).unwrap();
        let middle = cloud.inside(|| Middle::start("to-vm", "to-client", *key.expose(), &page));
        let identity = VmConfig { tenant: TENANT.into(), name: VM.into(), key: key_file };
        let mut config = AuditConfig::new(identity, page, "eth0".into(), vec![VM_ADDRESS.into()]);
        config.log_interval_ms = INTERVAL_MS;
        config.expected.programs = [ExpectedProgram::OneOf(vec![Digest(PROGRAM)]), ExpectedProgram::None];
        change(&mut config);
        Self { vm, client, cloud, middle, config, events: Mutex::default(), _dir: dir }
    }

    /// Unplugs the VM's interface and plugs another one, which the auditor then watches.
    pub(crate) fn replug(&self) {
        self.replug_after(|| {});
    }

    /// As [`Self::replug`]; calls `before` when the new interface is up and has another name.
    pub(crate) fn replug_after(&self, before: impl FnOnce()) {
        let is_replugged = |event: &Event| matches!(event, Event::Found(Finding::Replugged));
        let replugged = self.count(is_replugged);
        self.vm.ip("link del eth0").unwrap();
        plug(&self.vm, &self.cloud, "new0");
        self.middle.and_wait(|o| o.reopen = true, |o| !o.reopen);
        before();
        for words in ["down", "name eth0"] {
            let name = "new0";
            self.vm.ip(&format!("link set {name} {words}")).unwrap();
        }
        self.vm.ip("link set eth0 up").unwrap();
        self.vm.ip(&format!("addr add {VM_ADDRESS}/24 dev eth0")).unwrap();
        // The kernel takes packets for a link some time after it is set up, and drops them before.
        for (ns, name) in [(&self.vm, "eth0"), (&self.cloud, "to-vm")] {
            let is_up = || ns.ip(&format!("link show dev {name}")).is_ok_and(|l| l.contains("state UP"));
            p4shield_testbed::wait_until("the new link", 60, is_up).unwrap();
        }
        self.wait_event("the auditor watches the new interface", replugged, is_replugged);
    }

    /// Returns how many events so far are of a kind.
    pub(crate) fn count(&self, is_of_kind: fn(&Event) -> bool) -> usize {
        self.events.lock().unwrap().iter().filter(|event| is_of_kind(event)).count()
    }

    /// Waits until there are more events of a kind than before.
    pub(crate) fn wait_event(&self, what: &str, before: usize, is_of_kind: fn(&Event) -> bool) {
        p4shield_testbed::wait_until(what, 60, || self.count(is_of_kind) > before).unwrap();
    }

    /// Sends this many different datagrams in each direction.
    pub(crate) fn traffic(&self, packets: u32) {
        let bind = |ns: &NetNs, a: Ipv4Addr| ns.inside(|| UdpSocket::bind((a, 0)).unwrap());
        let (vm, client) = (bind(&self.vm, VM_ADDRESS), bind(&self.client, CLIENT_ADDRESS));
        let (to_vm, to_client) = (vm.local_addr().unwrap(), client.local_addr().unwrap());
        for i in 0..packets {
            let text = format!("datagram number {i}, with more bytes than a digest covers {:0>90}", i);
            client.send_to(text.as_bytes(), to_vm).unwrap();
            vm.send_to(text.as_bytes(), to_client).unwrap();
            std::thread::sleep(Duration::from_micros(500));
            if i % UNDER_WAY == UNDER_WAY - 1 || i + 1 == packets {
                [&vm, &client].into_iter().for_each(|socket| drain(socket, i));
            }
        }
    }

    /// Runs an audit in the user VM, calls `during` when the audit is aligned, and ends it afterwards.
    pub(crate) fn audit(&self, during: impl FnOnce()) -> (Summary, Vec<Event>) {
        let stop = Arc::<AtomicBool>::default();
        std::thread::scope(|s| {
            let end = stop.clone();
            let auditor = s.spawn(move || {
                let sink = |e: &Event| self.events.lock().unwrap().push(e.clone());
                self.vm.inside(|| run_audit(&self.config, sink, &end))
            });
            // Ends the audit also when a check of the test fails.
            let _end = EndOnDrop(&stop);
            p4shield_testbed::wait_until("the audit is aligned", 60, || {
                self.count(is_aligned) == self.config.directions().len()
            })
            .unwrap();
            during();
            stop.store(true, Ordering::Relaxed);
            let summary = auditor.join().unwrap().unwrap();
            (summary, self.events.lock().unwrap().clone())
        })
    }
}

/// Connects the VM to the cloud by an interface of this name, always with the same address.
fn plug(vm: &NetNs, cloud: &NetNs, name: &str) {
    vm.veth(name, cloud, "to-vm").unwrap();
    vm.ip(&format!("link set {name} address 02:00:00:00:00:02")).unwrap();
    without_offloads(vm, name);
}

/// A packet socket forwards frames that the kernel left to the hardware, so offloads are disabled.
fn without_offloads(ns: &NetNs, name: &str) {
    let words = ["-K", name, "tx", "off", "tso", "off", "gso", "off", "gro", "off"];
    p4shield_testbed::process::run(ns.command("ethtool").args(words)).unwrap();
}

struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

const fn is_aligned(event: &Event) -> bool {
    matches!(event, Event::Noticed(Notice::Aligned { .. }))
}

/// Reads the datagrams of [`World::traffic`] up to this one, or until none arrives for a while: it may have
/// been withheld. The kernel would answer one that arrives at a closed socket with ICMP, which is counted as
/// traffic too.
fn drain(socket: &UdpSocket, last: u32) {
    let last = format!("datagram number {last},");
    let mut datagram = [0; 256];
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    while let Ok(length) = socket.recv(&mut datagram) {
        if datagram[..length].starts_with(last.as_bytes()) {
            return;
        }
    }
}
