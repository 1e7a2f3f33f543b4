//! Levels: the baseline, and changes of the level under traffic.

use super::scene::{Scene, pings};
use super::{nic_switches, two_tenants};
use p4shield_testbed::ping::answered;
use p4shield_testbed::{HugePages, NetNs, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Child;

/// Milliseconds between two pings of a stream.
pub(super) const PAUSE: usize = 20;
/// Longest time in pings that a tenant may be away while the level changes. It is a fraction of a second on a
/// quiet machine; ARP tables that keep wrong entries cost a tenant half a minute.
pub(super) const AWAY: usize = 10_000 / PAUSE;

/// Pings that run until they are counted.
pub(super) struct Stream {
    ping: Child,
    output: File,
}

impl Stream {
    pub(super) fn start(from: &NetNs, to: &str) -> Self {
        let output = tempfile::tempfile().unwrap();
        let mut ping = from.command("ping");
        ping.args(["-n", &format!("-i0.{PAUSE:03}"), "-W1", to]).stdout(output.try_clone().unwrap());
        Self { ping: ping.spawn().unwrap(), output }
    }

    /// Returns how many pings in a row had no answer at most.
    pub(super) fn longest_gap(mut self) -> usize {
        // Where answers arrive, the last of them is the end of what is judged.
        let known = answered(&self.output()).len();
        let arrive = wait_until("answers", 10, || answered(&self.output()).len() >= known + 2).is_ok();
        kill_process(Pid::from_child(&self.ping), Signal::INT).unwrap();
        self.ping.wait().unwrap();
        let text = self.output();
        let sent: usize = text
            .lines()
            .find_map(|line| line.split_once(" packets transmitted")?.0.parse().ok())
            .unwrap_or_else(|| panic!("{text}"));
        let end = (!arrive).then_some(sent + 1);
        let all = std::iter::once(0).chain(answered(&text)).chain(end).collect::<Vec<_>>();
        all.windows(2).map(|pair| pair[1] - pair[0] - 1).max().unwrap()
    }

    /// Returns what ping has written, a line an answer.
    fn output(&self) -> String {
        let mut bytes = vec![0; usize::try_from(self.output.metadata().unwrap().len()).unwrap()];
        // Ping shares the file's offset.
        self.output.read_exact_at(&mut bytes, 0).unwrap();
        String::from_utf8(bytes).unwrap()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.ping.kill();
        let _ = self.ping.wait();
    }
}

#[test]
fn one_switch_on_the_host_serves_all_at_the_baseline() {
    let Some(scene) = two_tenants() else { return };
    scene.configure("baseline", &["alice", "bob"]);
    assert_eq!(scene.topology("apply")["started"].as_array().unwrap()[0], "host");
    let [web, db, bob] = &scene.vms[..] else { unreachable!() };
    assert_eq!((pings(&web.ns, db.address), pings(&bob.ns, "10.0.0.1")), (10, 10));
    assert_eq!((pings(&scene.outside, web.address), pings(&scene.outside, bob.address)), (10, 10));
    assert_eq!(pings(&web.ns, bob.address), 0, "another tenant only through the outside's router");
    assert_eq!(scene.topology("apply")["started"].as_array().unwrap().len(), 0, "nothing changed");
    assert_eq!(scene.topology("status")["switches"][0]["name"], "host");
    // An address of the host's own on a port.
    scene.host.ip("addr add 10.9.9.1/32 dev alice-web").unwrap();
    let asks_the_host = || {
        let known = scene.host.ip("link show alice-web").unwrap();
        let mac = known.split("link/ether ").nth(1).unwrap().split(' ').next().unwrap().to_owned();
        web.ns.ip(&format!("neigh replace 10.9.9.1 dev eth0 lladdr {mac}")).unwrap();
        scene.host.ip("route replace 10.0.1.2 dev alice-web").unwrap();
        pings(&web.ns, "10.9.9.1")
    };
    assert_eq!(asks_the_host(), 0, "the host's stack gets no packet of a port");
    scene.topology("delete");
    assert_eq!(asks_the_host(), 10, "but for the guard");
    assert_eq!(scene.leftovers(), Vec::<String>::new());
    assert_eq!(scene.host.ip("link show promisc on").unwrap_or_default(), "");
    assert_eq!(pings(&scene.outside, web.address), 0);
}

#[test]
fn tenants_keep_their_network_while_the_level_changes() {
    let Some(scene) = two_tenants() else { return };
    scene.configure("baseline", &["alice", "bob"]);
    scene.topology("apply");
    let [web, db, bob] = &scene.vms[..] else { unreachable!() };
    // Before the changes, so that ARP tables have entries that become wrong.
    assert_eq!((pings(&scene.outside, web.address), pings(&scene.outside, bob.address)), (10, 10));
    for level in ["2", "1", "2", "baseline"] {
        let streams = [
            ("alice to the outside", Stream::start(&web.ns, "10.0.0.1")),
            ("among alice", Stream::start(&web.ns, db.address)),
            ("the outside to bob", Stream::start(&scene.outside, bob.address)),
        ];
        scene.configure(level, &["alice", "bob"]);
        scene.topology("apply");
        assert_eq!((pings(&web.ns, db.address), pings(&scene.outside, bob.address)), (10, 10));
        for (who, stream) in streams {
            let gap = stream.longest_gap();
            assert!(gap < AWAY, "{who}, level {level}: {gap} pings in a row were lost");
            println!("level {level}, {who}: {} ms away", gap * PAUSE);
        }
    }
}

#[test]
fn a_switch_on_the_host_starts_without_the_interface_of_a_vm() {
    let Some(scene) = two_tenants() else { return };
    scene.configure("baseline", &["alice", "bob"]);
    scene.host.ip("link set bob-web name away").unwrap();
    assert_eq!(scene.topology("apply")["absent"].as_array().unwrap()[0], "bob-web");
    let [web, _, bob] = &scene.vms[..] else { unreachable!() };
    assert_eq!((pings(&web.ns, "10.0.0.1"), pings(&bob.ns, "10.0.0.1")), (10, 0));
    for words in ["link set away down", "link set away name bob-web", "link set bob-web up"] {
        scene.host.ip(words).unwrap();
    }
    scene.topology("apply");
    assert_eq!(pings(&bob.ns, "10.0.0.1"), 10);
}

/// Returns what Linux merges on an interface at most.
fn longest_received(scene: &Scene, interface: &str) -> String {
    let text = scene.host.ip(&format!("-d link show {interface}")).unwrap();
    let mut words = text.split_whitespace().skip_while(|word| *word != "gro_max_size");
    words.nth(1).unwrap_or_default().to_owned()
}

#[test]
fn only_switches_behind_merging_keep_interfaces_from_it() {
    let Some(scene) = two_tenants() else { return };
    let longest = || ["up0", "bob-web"].map(|interface| longest_received(&scene, interface));
    let before = longest();
    let as_sent = ["1", "1"].map(str::to_owned);
    for (level, kind, at_level) in
        [("baseline", None, &as_sent), ("2", Some("xdp"), &before), ("2", Some("tc"), &as_sent)]
    {
        scene.configure(level, &["alice", "bob"]);
        kind.inspect(|kind| nic_switches::configure(&scene, Some(kind)));
        scene.topology("apply");
        assert_eq!(&longest(), at_level, "level {level}, {kind:?}");
    }
    scene.configure("baseline", &["alice"]);
    scene.topology("apply");
    assert_eq!(longest(), ["1".to_owned(), before[1].clone()]);
    scene.topology("delete");
    assert_eq!(longest(), before);
}

/// Two tenants; `None` where Open vSwitch has no DPDK, which is reported.
pub(crate) fn with_dpdk() -> Option<Scene> {
    if !Path::new("/usr/lib/openvswitch-switch-dpdk").exists() {
        p4shield_need::skip("openvswitch-dpdk", "the package openvswitch-switch-dpdk is not installed");
        return None;
    }
    two_tenants()
}

/// Returns the type of a port in alice's switch.
fn type_of(scene: &Scene, port: &str) -> String {
    let get = ["ovs-vsctl", "get", "interface", port, "type"];
    let output = scene.exec("alice").args(get).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn switches_of_level_3_forward_with_dpdk() {
    let Some(scene) = with_dpdk() else { return };
    let [web, db, bob] = &scene.vms[..] else { unreachable!() };
    let reach = || {
        let within = (pings(&web.ns, db.address), pings(&web.ns, bob.address));
        (within, pings(&web.ns, "10.0.0.1"), pings(&scene.outside, bob.address))
    };
    scene.configure("3", &["alice", "bob"]);
    scene.topology("apply");
    assert_eq!(reach(), ((10, 0), 10, 10));
    assert_eq!(type_of(&scene, "inout"), "dpdk");
    assert_eq!(scene.topology("apply")["started"].as_array().unwrap().len(), 0, "nothing changed");
    let (pid, _) = scene.processes(1).into_iter().find(|(_, p)| p.starts_with("ovs-vswitchd")).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    wait_until("the switch's successor", 30, || reach() == ((10, 0), 10, 10)).unwrap();
    for (level, kind) in [("2", "\"\""), ("3", "dpdk")] {
        let stream = Stream::start(&web.ns, "10.0.0.1");
        scene.configure(level, &["alice", "bob"]);
        scene.topology("apply");
        wait_until("the switch", 30, || reach() == ((10, 0), 10, 10)).unwrap();
        assert_eq!(type_of(&scene, "inout"), kind);
        println!("to level {level}, alice to the outside: {} ms away", stream.longest_gap() * PAUSE);
    }
    scene.topology("delete");
    assert_eq!(scene.leftovers(), Vec::<String>::new());
}

/// Writes a configuration of level 3 with huge pages.
fn configure_pages(scene: &Scene, size: &str) {
    scene.configure("3", &["alice", "bob"]);
    let text = std::fs::read_to_string(scene.config()).unwrap();
    let text = text.replacen("[topology]", &format!("[topology]\nhuge_pages = \"{size}\""), 1);
    std::fs::write(scene.config(), text).unwrap();
}

/// Returns the memory of alice's switch.
fn memory(scene: &Scene) -> u64 {
    scene.topology("usage")[0]["memory_bytes"].as_u64().unwrap()
}

#[test]
fn dpdk_has_the_huge_pages_of_its_compartment() {
    let Some(_pages) = HugePages::reserve(96) else {
        return p4shield_need::skip("huge-pages", "the kernel reserves no huge pages (vm.nr_hugepages)");
    };
    let Some(scene) = with_dpdk() else { return };
    configure_pages(&scene, "1GiB");
    let refused = scene.command("apply").output().unwrap();
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && why.contains("raise vm.nr_hugepages by"), "{why}");
    scene.configure("3", &["alice", "bob"]);
    scene.topology("apply");
    let without = memory(&scene);
    configure_pages(&scene, "96MiB");
    assert_eq!(scene.topology("plan")["compartments"][0]["huge_pages"], 96 << 20);
    assert_eq!(scene.topology("apply")["started"].as_array().unwrap().len(), 2);
    let [web, db, bob] = &scene.vms[..] else { unreachable!() };
    wait_until("pings", 30, || pings(&web.ns, db.address) == 10).unwrap();
    assert_eq!((pings(&bob.ns, "10.0.0.1"), pings(&web.ns, bob.address)), (10, 0));
    let (pid, _) = scene.processes(1).into_iter().find(|(_, p)| p.starts_with("ovs-vswitchd")).unwrap();
    let smaps = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let field = |name: &str| {
        let field = smaps.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        field.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
    };
    let pages = field("Private_Hugetlb:") + field("Shared_Hugetlb:");
    assert_eq!(pages << 10, 96 << 20, "{smaps}");
    assert!(memory(&scene) > 96 << 20, "a provider bills them: {without} without");
    assert_eq!(scene.topology("apply")["started"].as_array().unwrap().len(), 0, "nothing changed");
}

#[test]
fn dpdk_goes_with_each_level() {
    let Some(scene) = with_dpdk() else { return };
    let [web, db, bob] = &scene.vms[..] else { unreachable!() };
    for level in ["baseline", "1"] {
        scene.configure(level, &["alice", "bob"]);
        let text = std::fs::read_to_string(scene.config()).unwrap();
        let dpdk = text.replacen("[topology]", "[topology]\ndatapath = \"dpdk\"", 1);
        std::fs::write(scene.config(), dpdk).unwrap();
        scene.topology("apply");
        wait_until("pings", 30, || pings(&web.ns, db.address) == 10).unwrap();
        assert_eq!((pings(&bob.ns, "10.0.0.1"), pings(&web.ns, bob.address)), (10, 0), "{level}");
        assert_eq!(scene.topology("plan")["datapath"], "dpdk");
    }
}
