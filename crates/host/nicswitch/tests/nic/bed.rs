//! Two tenants at a NIC switch:
//!
//! ```text
//! VLAN 10: VMs a1, a2, gateway ga      compartment ia ─┐
//! VLAN 20: VM  b1,     gateway gb      compartment ib ─┴─ uplink wan
//! ```
//!
//! The switch's interfaces are in one namespace, their other ends in another, which has no IPv6 and no
//! addresses: all frames are the tests'.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use macaddr::MacAddr6;
use p4shield_nicswitch::{Bridge, Changes, Hook, NicError, NicSwitch, PortCounters, Reason, Software};
use p4shield_testbed::{NetNs, wait_until};
use p4shield_topology::{Port, Role};

use crate::frames::{IPV4, ethernet, udp};
use crate::raw::Raw;

pub(crate) const A: u16 = 10;
pub(crate) const B: u16 = 20;
/// All interfaces, by the order of `ports`.
pub(crate) const NAMES: [&str; 8] = ["a1", "a2", "ga", "b1", "gb", "ia", "ib", "wan"];

pub(crate) const fn mac(last: u8) -> MacAddr6 {
    MacAddr6::new(2, 0, 0, 0, 0, last)
}
pub(crate) const A1: MacAddr6 = mac(0xa1);
pub(crate) const A2: MacAddr6 = mac(0xa2);
pub(crate) const GA: MacAddr6 = mac(0xaf);
pub(crate) const B1: MacAddr6 = mac(0xb1);
pub(crate) const GB: MacAddr6 = mac(0xbf);
pub(crate) const IA: MacAddr6 = mac(0xca);
pub(crate) const IB: MacAddr6 = mac(0xcb);
/// A station outside.
pub(crate) const ROUTER: MacAddr6 = mac(0xee);

/// Returns a VM's or compartment's IPv4 address.
pub(crate) const fn v4(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 7, 0, last)
}
/// Returns a VM's or compartment's IPv6 address.
pub(crate) const fn v6(last: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 7, 0, 0, 0, 0, 0, last)
}

fn port(interface: &str, tenant: Option<&str>, role: Role) -> Port {
    Port { interface: interface.into(), tenant: tenant.map(str::to_owned), role, packet_rate: None }
}

fn addresses(last: u8) -> Vec<IpAddr> {
    vec![v4(last).into(), v6(last.into()).into()]
}

/// Returns the ports of both tenants.
pub(crate) fn ports() -> Vec<Port> {
    let vm = |name, tenant, vlan, mac, last| {
        port(name, Some(tenant), Role::Vm { vlan, mac, addresses: addresses(last) })
    };
    vec![
        vm("a1", "a", A, A1, 0xa1),
        vm("a2", "a", A, A2, 0xa2),
        port("ga", Some("a"), Role::Gateway { vlan: A, mac: GA }),
        vm("b1", "b", B, B1, 0xb1),
        port("gb", Some("b"), Role::Gateway { vlan: B, mac: GB }),
        // A compartment sends from the addresses of its VMs.
        port(
            "ia",
            Some("a"),
            Role::InOut { mac: IA, addresses: [addresses(0xa1), addresses(0xa2)].concat() },
        ),
        port("ib", Some("b"), Role::InOut { mac: IB, addresses: addresses(0xb1) }),
        port("wan", None, Role::Uplink),
    ]
}

/// The result of one frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The ports whose other ends received it.
    pub(crate) at: Vec<&'static str>,
    /// The reason for which the switch counted it as dropped.
    pub(crate) dropped: Option<Reason>,
}

pub(crate) fn delivered(to: &'static str) -> Seen {
    Seen { at: vec![to], dropped: None }
}

pub(crate) const fn dropped(reason: Reason) -> Seen {
    Seen { at: Vec::new(), dropped: Some(reason) }
}

/// The switch with the ports of both tenants.
#[derive(Debug)]
pub(crate) struct Bed {
    pub(crate) host: NetNs,
    pub(crate) ends: NetNs,
    pub(crate) folder: PathBuf,
    pub(crate) sockets: BTreeMap<&'static str, Raw>,
}

impl Bed {
    /// Builds the interfaces; `None` if this machine cannot.
    pub(crate) fn without_switch() -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let parent = Path::new("/sys/fs/bpf");
        let is_mounted = is_bridge() || Software::open(hook(), parent.join("p4s")).is_ok();
        if let Err(why) = p4shield_testbed::usable() {
            p4shield_need::skip("machine", why);
            return None;
        }
        if !is_mounted {
            p4shield_need::skip("bpffs", "no BPF file system is mounted at /sys/fs/bpf");
            return None;
        }
        remove_leftovers(parent);
        let folder =
            parent.join(format!("p4s-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)));
        let (host, ends) = (NetNs::create("nic").unwrap(), NetNs::create("ends").unwrap());
        ends.disable_ipv6().unwrap();
        if is_bridge() {
            host_rules_see_bridges(&host, false);
        }
        let mut bed = Self { host, ends, folder, sockets: BTreeMap::new() };
        bed.make_all();
        Some(bed)
    }

    /// Builds the interfaces and the switch with all ports.
    pub(crate) fn build() -> Option<Self> {
        let bed = Self::without_switch()?;
        let changes = bed.apply(&ports()).unwrap();
        let mut names = NAMES;
        names.sort_unstable();
        assert_eq!(changes.added, names);
        Some(bed)
    }

    /// Makes all interfaces of the switch. In the guest, where starting a program takes long, by two of them.
    fn make_all(&mut self) {
        if !is_bridge() {
            return NAMES.into_iter().for_each(|name| self.make(name));
        }
        let there = self.ends.name();
        let pair = |name: &str| {
            let end = end(name);
            format!("link add {name} type veth peer name {end} netns {there}\nlink set {name} up\n")
        };
        let up = |name: &str| format!("link set {} up\n", end(name));
        let batches = [NAMES.map(pair).concat(), NAMES.map(up).concat()];
        for (namespace, batch) in [&self.host, &self.ends].into_iter().zip(batches) {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(&file, batch).unwrap();
            namespace.ip(&format!("-batch {}", file.path().display())).unwrap();
        }
        self.sockets = NAMES.map(|name| (name, Raw::open(&self.ends, &end(name)))).into();
    }

    /// Makes an interface of the switch and its other end.
    pub(crate) fn make(&mut self, name: &'static str) {
        let end = end(name);
        self.host.veth(name, &self.ends, &end).unwrap();
        self.sockets.insert(name, Raw::open(&self.ends, &end));
        if is_bridge() {
            return;
        }
        offload(&self.ends, &end, ["tx", "off"]);
        offload(&self.ends, &end, ["gro", if is_in_xdp() { "on" } else { "off" }]);
    }

    /// Returns the switch, as another process would open it.
    pub(crate) fn nic(&self) -> Box<dyn NicSwitch> {
        if is_bridge() {
            return Box::new(Bridge::new(BRIDGE, Bridge::FOLDER));
        }
        Box::new(Software::open(hook(), &self.folder).unwrap())
    }

    pub(crate) fn apply(&self, ports: &[Port]) -> Result<Changes, NicError> {
        self.host.inside(|| self.nic().apply(ports))
    }

    /// Waits until a port has sent so many frames since the switch was made. Returns the counters.
    pub(crate) fn wait_for(&self, port: &str, frames: u64) -> BTreeMap<String, PortCounters> {
        let mut counters = BTreeMap::new();
        wait_until("the frames", 30, || {
            counters = self.counters();
            counters[port].received_packets >= frames
        })
        .unwrap();
        counters
    }

    /// Waits until no more frames arrive, which wait for a core.
    pub(crate) fn wait_for_rest(&self) {
        let mut last = BTreeMap::new();
        wait_until("the frames that wait", 60, || {
            std::thread::sleep(std::time::Duration::from_millis(500));
            let now = self.counters();
            std::mem::replace(&mut last, now.clone()) == now
        })
        .unwrap();
    }

    pub(crate) fn counters(&self) -> BTreeMap<String, PortCounters> {
        let counters = self.host.inside(|| self.nic().counters().unwrap());
        counters.into_iter().map(|port| (port.interface.clone(), port)).collect()
    }

    /// Sends a frame from a port's other end, and returns where it came out and what the switch counted.
    pub(crate) fn try_frame(&self, from: &str, frame: &[u8]) -> Seen {
        let before = self.counters();
        self.sockets[from].send(frame);
        let mut after = BTreeMap::new();
        wait_until("reception", 10, || {
            after = self.counters();
            after[from].received_packets == before[from].received_packets + 1
        })
        .unwrap();
        let new = |reason: &Reason| after[from].dropped(*reason) - before[from].dropped(*reason) == 1;
        let dropped = Reason::ALL.into_iter().find(new);
        assert_eq!(
            after[from].dropped_in_all() - before[from].dropped_in_all(),
            u64::from(dropped.is_some())
        );
        let at =
            NAMES.into_iter().filter(|name| self.arrives_before_another(name, frame)).collect::<Vec<_>>();
        let counted =
            after.iter().map(|(name, port)| port.delivered_packets - before[name].delivered_packets);
        assert_eq!(counted.sum::<u64>(), at.len() as u64, "{from} to {at:?}");
        Seen { at, dropped }
    }

    /// Sends an allowed frame to a port, waits for it, and returns whether `frame` came before.
    fn arrives_before_another(&self, to: &str, frame: &[u8]) -> bool {
        self.before_another(to).iter().any(|received| received == frame)
    }

    /// Sends an allowed frame to a port, waits for it, and returns the one with `frame`'s number that came
    /// before.
    pub(crate) fn numbered_as(&self, to: &str, frame: &[u8]) -> Option<Vec<u8>> {
        let number = &frame[frame.len() - 8..];
        self.before_another(to).into_iter().find(|received| received.ends_with(number))
    }

    /// Sends an allowed frame to a port, waits for it, and returns those that came before.
    pub(crate) fn before_another(&self, to: &str) -> Vec<Vec<u8>> {
        let (from, last) = allowed_to(to);
        self.sockets[from].send(&last);
        let mut all = Vec::new();
        wait_until("an allowed frame's arrival", 10, || {
            all.extend(std::iter::from_fn(|| self.sockets[to].receive()));
            all.contains(&last)
        })
        .unwrap_or_else(|e| panic!("{from} to {to}: {e}; {:?}", self.counters()));
        all
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let deleted = self.host.inside(|| self.nic().delete());
        if !std::thread::panicking() {
            deleted.unwrap();
        }
    }
}

/// The name of the bridge.
pub(crate) const BRIDGE: &str = "nic";
/// The back end: `bridge` in the guest, `tc` or `tc-direct` in processes that test the hook in traffic
/// control. Without, the hook is XDP.
pub(crate) const BACK_END: &str = "P4SHIELD_TEST_NIC_SWITCH";

fn back_end() -> String {
    std::env::var(BACK_END).unwrap_or_else(|_| "xdp".to_owned())
}

/// Returns whether the switch is a bridge, as in the guest.
pub(crate) fn is_bridge() -> bool {
    back_end() == "bridge"
}

/// Returns whether the switch receives frames in XDP.
pub(crate) fn is_in_xdp() -> bool {
    back_end() == "xdp"
}

/// Returns where the switch receives frames.
pub(crate) fn hook() -> Hook {
    match &*back_end() {
        "xdp" => Hook::Xdp,
        other => Hook::TrafficControl { are_direct: other == "tc-direct" },
    }
}

/// Switches an offload of an interface on or off.
pub(crate) fn offload(ns: &NetNs, interface: &str, setting: [&str; 2]) {
    let done = ns.command("ethtool").args(["-K", interface]).args(setting).output().unwrap();
    assert!(done.status.success(), "{done:?}");
}

/// Has packets of bridges pass a namespace's own rules, as they do in a new one if the kernel can, or not.
pub(crate) fn host_rules_see_bridges(host: &NetNs, do_they: bool) {
    for kind in ["iptables", "ip6tables", "arptables"] {
        let setting = format!("/proc/sys/net/bridge/bridge-nf-call-{kind}");
        if Path::new(&setting).exists() {
            host.inside(|| std::fs::write(&setting, u8::from(do_they).to_string())).unwrap();
        }
    }
}

/// Returns the name of a port's other end.
pub(crate) fn end(name: &str) -> String {
    format!("{name}-end")
}

/// Returns a frame that may go to a port, and the port that sends it.
pub(crate) fn allowed_to(to: &str) -> (&'static str, Vec<u8>) {
    let outside = IpAddr::from([198, 51, 100, 1]);
    let [a1, a2, b1] = [0xa1, 0xa2, 0xb1].map(|last| IpAddr::from(v4(last)));
    let (name, to, from, packet) = match to {
        "a1" => ("ga", A1, GA, udp(outside, a1)),
        "a2" => ("ga", A2, GA, udp(outside, a2)),
        "ga" => ("a1", GA, A1, udp(a1, outside)),
        "b1" => ("gb", B1, GB, udp(outside, b1)),
        "gb" => ("b1", GB, B1, udp(b1, outside)),
        "ia" => ("wan", IA, ROUTER, udp(outside, a1)),
        "ib" => ("wan", IB, ROUTER, udp(outside, b1)),
        "wan" => ("ia", ROUTER, IA, udp(a1, outside)),
        other => panic!("there is no port {other}"),
    };
    (name, ethernet(to, from, IPV4, &packet))
}

/// Removes folders of processes that were killed.
fn remove_leftovers(parent: &Path) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let maker = name.strip_prefix("p4s-").and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
        if maker.is_some_and(|maker| !Path::new(&format!("/proc/{maker}")).exists()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}
