//! Zero-copy: P4 VMs read packets in the switch's memory. Debian's Open vSwitch with AF_XDP ports, the daemon
//! and its P4 VMs run as an operator runs them. The kernel reports which process maps which packet memory.

mod common;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::read_to_string;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use common::{code, p4shield, stderr};
use p4shield_testbed::{Guarded, NetNs, OpenVswitch, leftover, process, wait_until};
use serde_json::Value;
use tempfile::TempDir;

/// One cloud at a time: each has a polling switch.
static ONE: Mutex<()> = Mutex::new(());
const ADDRESSES: [&str; 2] = ["10.9.5.1", "10.9.5.2"];
const PORT: u16 = 7777;
/// Offset in a datagram's payload of the byte that the program below reads.
const DEEP: usize = 1000;
/// Value of that byte in datagrams that the program drops.
const MARK: u8 = 0xee;

const PUSH: &str = include_str!("../../../../examples/programs/vlan_push.p4");
const POP: &str = include_str!("../../../../examples/programs/vlan_pop.p4");
/// Drops datagrams by a byte far behind all headers; `@FILL@` is the number of bits between.
const DEEP_PROGRAM: &str = "#include <ubpf_model.p4>
header front_t { bit<96> addresses; bit<16> type; bit<72> a; bit<8> protocol; bit<80> b;
                 bit<16> from; bit<16> to; bit<32> c; }
header fill_t { @FILL@ }
header mark_t { bit<8> value; }
struct headers_t { front_t front; fill_t fill; mark_t mark; }
struct metadata_t {}
parser deep_parser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata std) {
    state start {
        packet.extract(hdr.front);
        transition select(hdr.front.type, hdr.front.protocol, hdr.front.to) {
            (0x0800, 17, 7777): deep;
            default: accept;
        }
    }
    state deep {
        packet.extract(hdr.fill);
        packet.extract(hdr.mark);
        transition accept;
    }
}
control deep(inout headers_t hdr, inout metadata_t meta, inout standard_metadata std) {
    apply { if (hdr.mark.isValid() && hdr.mark.value == 0xee) { mark_to_drop(); } }
}
control deep_deparser(packet_out packet, in headers_t hdr) { apply {
    packet.emit(hdr.front); packet.emit(hdr.fill); packet.emit(hdr.mark);
} }
ubpf(deep_parser(), deep(), deep_deparser()) main;
";

/// A tenant with one VM or both; VMs are numbered from 0.
struct Tenant {
    name: &'static str,
    vms: &'static [usize],
    ingress: &'static str,
    egress: &'static str,
    zero_copy: &'static str,
}

/// Fields are dropped in order: the switch before the namespaces that it is connected to.
struct Cloud {
    switch: OpenVswitch,
    _daemon: Guarded,
    machines: [NetNs; 2],
    folder: TempDir,
    _host: NetNs,
}

fn usable() -> bool {
    OpenVswitch::usable().map_err(|why| p4shield_need::skip("openvswitch", why)).is_ok()
}

impl Cloud {
    fn start(tenants: &[Tenant]) -> Self {
        let folder = leftover::folder("zerocopy").unwrap();
        let at = |name: &str| folder.path().join(name);
        let one_tag = |text: &str| text.replace("FIRST_VLAN + (bit<12>)get_vm()", "FIRST_VLAN");
        let fill: String = (0..DEEP / 8).map(|n| format!("bit<64> w{n}; ")).collect();
        let deep = DEEP_PROGRAM.replace("@FILL@", &fill);
        for (name, text) in [("push", one_tag(PUSH)), ("pop", one_tag(POP)), ("deep", deep)] {
            let source = at(name).with_extension("p4").display().to_string();
            std::fs::write(&source, text).unwrap();
            let object = at(name).with_extension("o").display().to_string();
            let compiled = p4shield(&["compile", &source, "-o", &object]);
            assert_eq!(code(&compiled), 0, "{}", stderr(&compiled));
        }
        let config = at("p4shield.toml");
        std::fs::write(&config, text_of(tenants)).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_p4shield"));
        command.arg("run").arg("--config").arg(&config).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(std::fs::File::create(at("daemon.log")).unwrap());
        let daemon = Guarded::spawn(&mut command).unwrap();
        let [host, one, two] = ["zc", "one", "two"].map(|n| NetNs::create(n).unwrap());
        for (ns, port, address) in [(&one, "s0", ADDRESSES[0]), (&two, "s1", ADDRESSES[1])] {
            host.veth(port, ns, "eth0").unwrap();
            ns.send_whole_packets("eth0").unwrap();
            ns.ip(&format!("addr add {address}/24 dev eth0")).unwrap();
        }
        let library = library();
        let environment =
            [("LD_PRELOAD", library.as_os_str()), ("P4SHIELD_CONFIG", OsStr::new(config.as_os_str()))];
        let switch = OpenVswitch::for_afxdp(&host, &environment, "0x1").unwrap();
        for port in ["s0", "s1"] {
            switch.add_afxdp(port).unwrap();
        }
        let cloud = Self { switch, _daemon: daemon, machines: [one, two], folder, _host: host };
        cloud.wait("a ping", || cloud.ping());
        cloud
    }

    fn wait(&self, what: &str, done: impl FnMut() -> bool) {
        wait_until(what, 60, done).unwrap_or_else(|e| {
            let log = read_to_string(self.folder.path().join("daemon.log")).unwrap_or_default();
            panic!("{e}\n{:#}\ndaemon: {log}\nswitch: {}", self.status(), self.switch.said());
        });
    }

    fn status(&self) -> Value {
        let socket = self.folder.path().join("p4shield.sock").display().to_string();
        serde_json::from_slice(&p4shield(&["status", "--json", "--socket", &socket]).stdout)
            .unwrap_or_default()
    }

    fn ping(&self) -> bool {
        process::run(self.machines[0].command("ping").args(["-c1", "-W2", ADDRESSES[1]])).is_ok()
    }

    /// Returns the process of the n-th tenant's P4 VM while it runs.
    fn p4vm(&self, tenant: usize) -> Option<i64> {
        let tenant = &self.status()["tenants"][tenant];
        (tenant["state"] == "running").then(|| tenant["pid"].as_i64()).flatten()
    }

    /// Returns the packet memory that the n-th tenant's P4 VM maps: access rights and inode of each mapping.
    fn mapped(&self, tenant: usize) -> Vec<(String, u64)> {
        let Some(pid) = self.p4vm(tenant) else { return Vec::new() };
        family(pid).into_iter().flat_map(packet_mappings).collect()
    }

    /// Returns the inodes of these mappings.
    fn memories(&self, tenant: usize) -> BTreeSet<u64> {
        self.mapped(tenant).into_iter().map(|(_, inode)| inode).collect()
    }

    /// Waits until the n-th tenant's P4 VM maps this many packet memories; returns them.
    fn wait_memories(&self, tenant: usize, count: usize) -> BTreeSet<u64> {
        self.wait("the mappings", || self.memories(tenant).len() == count);
        let mapped = self.mapped(tenant);
        assert!(mapped.iter().all(|(rights, _)| rights == "r--s"), "mapped to be read: {mapped:?}");
        self.memories(tenant)
    }

    /// Returns the number of zero-copy queues by port.
    fn zero_copy_queues(&self) -> [u64; 2] {
        let status = self.status();
        let ports = status["switches"][0]["ports"].as_array().cloned().unwrap_or_default();
        ["s0", "s1"].map(|name| {
            let port = ports.iter().find(|p| p["name"] == name);
            port.and_then(|p| p["zero_copy_queues"].as_u64()).unwrap_or_default()
        })
    }

    /// Returns whether a datagram with this byte reaches the second VM from the first unchanged.
    fn gets_through(&self, deep: u8) -> bool {
        let [one, two] = &self.machines;
        let to = two.inside(|| UdpSocket::bind((ADDRESSES[1], PORT)).unwrap());
        let from = one.inside(|| UdpSocket::bind((ADDRESSES[0], 0)).unwrap());
        to.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let mut sent: Vec<u8> = (0..1400_u16).map(|n| n as u8).collect();
        sent[DEEP] = deep;
        from.send_to(&sent, (ADDRESSES[1], PORT)).unwrap();
        let mut got = [0; 2000];
        while let Ok(len) = to.recv(&mut got) {
            // An earlier call may have ended before its datagram arrived.
            sent[DEEP] = got[DEEP];
            assert!(got[..len] == sent, "the datagram came as another");
            if got[DEEP] == deep {
                return true;
            }
        }
        false
    }
}

fn library() -> PathBuf {
    let library = std::env::current_exe().unwrap().with_file_name("libp4shield_xsk.so");
    assert!(library.is_file(), "{} was not built", library.display());
    library
}

fn text_of(tenants: &[Tenant]) -> String {
    let mut text =
        "attachment = \"xsk\"\n[daemon]\nsocket = \"p4shield.sock\"\nattach_socket = \"attach.sock\"\n"
            .to_owned();
    for t in tenants {
        text += &format!(
            "[[tenant]]\nname = \"{}\"\nfail = \"drop\"\nno_program = \"pass\"\n\
             deadline = \"100ms\"\nstall = \"60s\"\n\
             header_bytes = 1600\n",
            t.name
        );
        for vm in t.vms {
            text += &format!("[[tenant.vm]]\nname = \"vm{vm}\"\naddresses = [\"{}\"]\n", ADDRESSES[*vm]);
            for (direction, program) in [("ingress", t.ingress), ("egress", t.egress)] {
                if !program.is_empty() {
                    text += &format!("{direction} = [\"{program}.o\"]\n");
                }
            }
        }
    }
    for t in tenants {
        for vm in t.vms {
            text += &format!(
                "[[port]]\nname = \"s{vm}\"\ntenant = \"{}\"\nvm = \"vm{vm}\"\nzero_copy = \"{}\"\n",
                t.name, t.zero_copy
            );
        }
    }
    text
}

/// Returns a process and its descendants.
fn family(pid: i64) -> Vec<i64> {
    let children = read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let children = children.split_whitespace().filter_map(|c| c.parse().ok());
    std::iter::once(pid).chain(children.flat_map(family)).collect()
}

fn packet_mappings(pid: i64) -> Vec<(String, u64)> {
    let maps = read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let ours = maps.lines().filter(|l| l.contains("p4shield-packets"));
    let mapping = |line: &str| {
        let mut words = line.split_whitespace();
        Some((words.nth(1)?.to_owned(), words.nth(2)?.parse().ok()?))
    };
    ours.filter_map(mapping).collect()
}

#[test]
fn a_p4_vm_resizes_packets_in_the_switchs_memory() {
    if !usable() {
        return;
    }
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let alice = Tenant { name: "alice", vms: &[0, 1], ingress: "pop", egress: "push", zero_copy: "auto" };
    let cloud = Cloud::start(&[alice]);
    // Each port of Open vSwitch has a packet memory of its own, with a lane of each side.
    let memories = cloud.wait_memories(0, 2);
    assert_eq!(cloud.zero_copy_queues(), [2, 2], "{:#}", cloud.status());
    cloud.wait("a datagram, tagged and untagged on its way", || cloud.gets_through(1));

    // The successor of a killed P4 VM maps the same memory.
    let pid = cloud.p4vm(0).unwrap();
    process::run(Command::new("kill").args(["-KILL", &pid.to_string()])).unwrap();
    cloud.wait("another P4 VM", || cloud.p4vm(0).is_some_and(|p| p != pid));
    assert_eq!(cloud.wait_memories(0, 2), memories);
    cloud.wait("a ping with the new P4 VM", || cloud.ping());

    // A removed port releases its memory; a new port has memory of its own.
    cloud.switch.remove("s1").unwrap();
    let left = cloud.wait_memories(0, 1);
    assert!(left.is_subset(&memories));
    cloud.switch.add_afxdp("s1").unwrap();
    let again = cloud.wait_memories(0, 2);
    assert!(left.is_subset(&again) && again != memories, "{memories:?}, then {again:?}");
    cloud.wait("a ping through the new port", || cloud.ping());
}

/// Two tenants; the second one's program reads far into the packets of its VM.
fn two_tenants(bobs: &'static str) -> Cloud {
    let alice = Tenant { name: "alice", vms: &[0], ingress: "", egress: "", zero_copy: "auto" };
    let bob = Tenant { name: "bob", vms: &[1], ingress: "deep", egress: "", zero_copy: bobs };
    let cloud = Cloud::start(&[alice, bob]);
    cloud.wait("a datagram", || cloud.gets_through(1));
    for _ in 0..5 {
        assert!(!cloud.gets_through(MARK), "the program sees the byte and drops");
    }
    cloud.wait("another datagram", || cloud.gets_through(2));
    cloud
}

#[test]
fn each_tenants_p4_vm_maps_its_own_memory_only() {
    if !usable() {
        return;
    }
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let cloud = two_tenants("auto");
    let (alices, bobs) = (cloud.wait_memories(0, 1), cloud.wait_memories(1, 1));
    assert!(alices.is_disjoint(&bobs), "{alices:?} and {bobs:?}");
    assert_eq!(cloud.zero_copy_queues(), [2, 2]);
}

#[test]
fn a_p4_vm_with_header_copies_maps_no_packet_memory() {
    if !usable() {
        return;
    }
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let cloud = two_tenants("off");
    cloud.wait_memories(0, 1);
    assert_eq!(cloud.mapped(1), [], "bob's P4 VM has copies only");
    assert_eq!(cloud.zero_copy_queues(), [2, 0]);
}
