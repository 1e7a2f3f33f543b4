//! The card with its virtual functions in network namespaces, in the guest.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use macaddr::MacAddr6;
use p4shield_nicswitch::{Changes, Function, NicError, NicSwitch, Sriov};
use p4shield_testbed::{NetNs, wait_until};
use p4shield_topology::{Port, Role};

use crate::raw::Raw;

pub(crate) const CARD: &str = "eth0";
pub(crate) const A: u16 = 10;
pub(crate) const B: u16 = 20;
/// Ports by virtual function.
pub(crate) const NAMES: [&str; 4] = ["ia", "ga", "a1", "b1"];

pub(crate) const fn mac(last: u8) -> MacAddr6 {
    MacAddr6::new(2, 0, 0, 0, 0, last)
}
pub(crate) const IA: MacAddr6 = mac(0xca);
pub(crate) const GA: MacAddr6 = mac(0xaf);
pub(crate) const A1: MacAddr6 = mac(0xa1);
pub(crate) const B1: MacAddr6 = mac(0xb1);
/// A station outside.
pub(crate) const ROUTER: MacAddr6 = mac(0xee);

pub(crate) fn ports() -> Vec<Port> {
    let packet_rate = None;
    let port = |name: &str, role| Port {
        interface: name.into(),
        tenant: Some(name[..1].to_owned()),
        role,
        packet_rate,
    };
    let vm = |vlan, mac| Role::Vm { vlan, mac, addresses: vec![] };
    vec![
        Port { interface: CARD.into(), tenant: None, role: Role::Uplink, packet_rate },
        Port { tenant: None, ..port("ia", Role::InOut { mac: IA, addresses: vec![] }) },
        Port { tenant: None, ..port("ga", Role::Gateway { vlan: A, mac: GA }) },
        port("a1", vm(A, A1)),
        port("b1", vm(B, B1)),
    ]
}

/// Returns the switch, as another process would open it.
pub(crate) fn nic() -> Sriov {
    let functions = (0..).zip(NAMES).map(|(number, name)| (name.to_owned(), Function { number, rate: None }));
    Sriov::new(CARD, functions.collect(), Sriov::FOLDER)
}

pub(crate) fn apply(ports: &[Port]) -> Result<Changes, NicError> {
    nic().apply(ports)
}

pub(crate) fn run(program: &str, words: &str) -> String {
    let output = Command::new(program).args(words.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "{program} {words}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the lines of the virtual functions in the output of `ip`, which reads them on its own.
pub(crate) fn shown() -> Vec<String> {
    let text = run("ip", &format!("-d link show dev {CARD}"));
    text.lines().map(str::trim).filter(|line| line.starts_with("vf ")).map(str::to_owned).collect()
}

fn device() -> PathBuf {
    fs::canonicalize(format!("/sys/class/net/{CARD}/device")).unwrap()
}

pub(crate) fn count() -> String {
    fs::read_to_string(device().join("sriov_numvfs")).unwrap().trim().to_owned()
}

pub(crate) fn make(count: u32) {
    fs::write(device().join("sriov_numvfs"), count.to_string()).unwrap();
}

/// Starts the card, without a virtual function and what a test before left.
pub(crate) fn start() {
    nic().delete().unwrap();
    if count() != "0" {
        make(0);
    }
    run("ip", &format!("link set {CARD} up"));
    let has_link = || run("ip", &format!("link show {CARD}")).contains("LOWER_UP");
    wait_until("the card's link", 60, has_link).unwrap();
}

/// The virtual functions and the wire in network namespaces.
#[derive(Debug)]
pub(crate) struct Bed {
    /// Each receives and sends at a port; `wire` at the other card, and `wire20` there in the VLAN 20. Packet
    /// sockets do not see tags.
    sockets: BTreeMap<&'static str, Raw>,
    wire: NetNs,
    /// The VLAN of `ia`; 0: none.
    outside_vlan: u16,
    /// They end after the sockets.
    _namespaces: Vec<NetNs>,
}

impl Bed {
    /// Gives each of the ports' virtual functions, which exist, a namespace.
    pub(crate) fn build(outside_vlan: u16) -> Self {
        let wire = NetNs::create("wire").unwrap();
        run("ip", &format!("link set eth1 netns {}", wire.name()));
        let mut bed = Self { sockets: BTreeMap::new(), wire, outside_vlan, _namespaces: Vec::new() };
        bed.wire.disable_ipv6().unwrap();
        wait_for_link(&bed.wire, "eth1");
        bed.wire.ip("link set dev eth1 promisc on").unwrap();
        bed.wire.ip(&format!("link add link eth1 name wire20 up type vlan id {B}")).unwrap();
        for (name, interface) in [("wire", "eth1"), ("wire20", "wire20")] {
            bed.sockets.insert(name, Raw::open(&bed.wire, interface));
        }
        for (number, name) in NAMES.into_iter().enumerate() {
            let namespace = NetNs::create(name).unwrap();
            namespace.disable_ipv6().unwrap();
            let interface = rebind(number);
            run("ip", &format!("link set {interface} netns {}", namespace.name()));
            wait_for_link(&namespace, &interface);
            bed.sockets.insert(name, Raw::open(&namespace, &interface));
            bed._namespaces.push(namespace);
        }
        bed
    }

    /// Sends a frame, and returns where it arrives.
    pub(crate) fn send(&self, from: &str, frame: &[u8]) -> Vec<&'static str> {
        self.sockets[from].send(frame);
        // Everything that is sent later to a port arrives later.
        let others = self.sockets.keys().filter(|name| **name != from);
        others.filter(|to| self.came(to, frame)).copied().collect()
    }

    /// Sends a frame with the tag of a VLAN, and returns whether it reaches a port, without the tag.
    pub(crate) fn reaches(&self, from: &str, vlan: u16, frame: &[u8], to: &str) -> bool {
        self.sockets[from].send(&tagged(frame, vlan));
        self.came(to, frame)
    }

    /// Waits for a frame that may go to a port, and returns whether `frame` came before.
    fn came(&self, to: &str, frame: &[u8]) -> bool {
        let (from, last) = allowed_to(to);
        let is_tagged = to == "ia" && self.outside_vlan > 0;
        let sent = if is_tagged { tagged(&last, self.outside_vlan) } else { last.clone() };
        let (mut has_come, mut is_last) = (false, false);
        let waited = wait_until("an allowed frame's arrival", 30, || {
            self.sockets[from].send(&sent);
            while let Some(received) = self.sockets[to].receive() {
                has_come |= is_same(&received, frame);
                is_last |= is_same(&received, &last);
            }
            is_last
        });
        waited.unwrap_or_else(|e| panic!("{from} to {to}: {e}; {:?}", shown()));
        has_come
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        // A namespace that ends gives a card back only some time later.
        let _ = self.wire.ip("link set eth1 netns 1");
    }
}

/// Returns whether a received frame is one that was sent: it may have got longer.
fn is_same(received: &[u8], sent: &[u8]) -> bool {
    received.starts_with(sent)
}

/// Starts an interface, and waits until it can send.
fn wait_for_link(namespace: &NetNs, interface: &str) {
    namespace.ip(&format!("link set {interface} up")).unwrap();
    let has_link = || namespace.ip(&format!("link show {interface}")).is_ok_and(|s| s.contains("LOWER_UP"));
    wait_until("a link", 60, has_link).unwrap_or_else(|e| panic!("{interface}: {e}"));
}

/// Has the driver of a virtual function start again, with the MAC address that it was given. Returns the name
/// of its interface.
fn rebind(number: usize) -> String {
    let function = fs::canonicalize(device().join(format!("virtfn{number}"))).unwrap();
    let address = function.file_name().unwrap().to_str().unwrap().to_owned();
    let driver = PathBuf::from("/sys/bus/pci/drivers/igbvf");
    if driver.join(&address).exists() {
        fs::write(driver.join("unbind"), &address).unwrap();
    }
    fs::write(driver.join("bind"), &address).unwrap();
    let mut name = None;
    wait_until("an interface of a virtual function", 30, || {
        name = fs::read_dir(function.join("net")).ok().and_then(|mut found| found.next()?.ok());
        name.is_some()
    })
    .unwrap();
    name.unwrap().file_name().to_str().unwrap().to_owned()
}

/// Returns a frame of no known protocol, with a number of its own.
pub(crate) fn frame(to: MacAddr6, from: MacAddr6) -> Vec<u8> {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NUMBER: AtomicU32 = AtomicU32::new(1);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    let head = [to.as_bytes(), from.as_bytes(), &[0x88, 0xb5]].concat();
    [&head[..], &number, &[0x5a; 46]].concat()
}

/// Returns a frame with the tag of a VLAN in it.
fn tagged(frame: &[u8], vlan: u16) -> Vec<u8> {
    [&frame[..12], &[0x81, 0], &vlan.to_be_bytes(), &frame[12..]].concat()
}

/// Returns a frame that may go to a port, and the port that sends it.
fn allowed_to(to: &str) -> (&'static str, Vec<u8>) {
    match to {
        "ia" => ("wire", frame(IA, ROUTER)),
        "ga" => ("a1", frame(GA, A1)),
        "a1" => ("ga", frame(A1, GA)),
        "b1" => ("wire20", frame(B1, ROUTER)),
        "wire20" => ("b1", frame(ROUTER, B1)),
        "wire" => ("ia", frame(ROUTER, IA)),
        other => panic!("there is no port {other}"),
    }
}
