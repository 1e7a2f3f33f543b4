//! The distribution's Open vSwitch and the library read packets alike: whatever the switch takes for a packet
//! to a VM, directly or out of a tunnel, the library took for one as well.

use crate::common::daemon::{Cloud, text, usable};
use crate::common::frames::{read, write};
use crate::common::switch::PATIENCE;
use p4shield_need::extent;
use p4shield_testbed::frames::{Frames, V4, V6};
use p4shield_testbed::{NetNs, OpenVswitch, wait_until};
use std::net::{IpAddr, Ipv4Addr};

/// The bridge that ends the tunnels, and its addresses.
const OUTER: &str = OpenVswitch::BRIDGE;
const OUTER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x77];
const OUTER_IP: [u8; 4] = [192, 0, 2, 7];

const PORTS: &str = r#"
[[port]]
name = "net_pcap_up"
role = "uplink"
[[port]]
name = "net_pcap_vm0"
tenant = "carol"
vm = "vm"
[[port]]
name = "net_pcap_vm1"
tenant = "carol"
vm = "vm"
[[tunnel]]
type = "vxlan"
address = "192.0.2.7"
[[tunnel]]
type = "geneve"
address = "192.0.2.7"
"#;

/// The VM's addresses.
fn addresses() -> [IpAddr; 4] {
    let ([a, b], [c, d]) = (V4.map(IpAddr::from), V6.map(IpAddr::from));
    [a, b, c, d]
}

/// What becomes of a packet that has to be judged: there is no daemon, so no program judges any.
fn cloud(fail: &str) -> Cloud {
    let addresses = addresses().map(|a| format!("{:?}", a.to_string())).join(", ");
    let tenant = format!(
        "[[tenant]]\nname = \"carol\"\nfail = \"{fail}\"\n[[tenant.vm]]\nname = \"vm\"\n\
         addresses = [{addresses}]\n"
    );
    Cloud::new("1s", &[&tenant, PORTS].concat())
}

/// Puts a frame into a tunnel to the bridge: VXLAN, or Geneve with or without an option. Some outer headers
/// are damaged.
fn encapsulate(random: &mut Frames, inner: &[u8]) -> Vec<u8> {
    let geneve = random.below(2) == 1;
    let options: &[u8] = if geneve && random.below(2) == 1 { &[1, 2, 3, 0, 0, 0, 0, 9] } else { &[] };
    let mut tunnel = match geneve {
        false => vec![8, 0, 0, 0, 0, 0, 7, 0],
        true => vec![(options.len() / 4) as u8, 0, 0x65, 0x58, 0, 0, 7, 0],
    };
    tunnel.extend(options);
    let udp = (8 + tunnel.len() + inner.len()) as u16;
    let port: u16 = if geneve { 6081 } else { 4789 };
    let mut frame = [OUTER_MAC, [2, 0, 0, 0, 0, 1]].concat();
    if random.below(8) == 0 {
        frame.extend([0x81, 0, 0, 0]);
    }
    let link = frame.len() + 2;
    frame.extend([8, 0, 0x45, 0]);
    frame.extend((20 + udp).to_be_bytes());
    frame.extend([0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1]);
    frame.extend(OUTER_IP);
    p4shield_frame::ipv4::set_checksum(&mut frame[link..]);
    frame.extend([0xc0, 0]);
    frame.extend(port.to_be_bytes());
    frame.extend(udp.to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(tunnel);
    if random.below(4) == 0 {
        let at = 12 + random.below(frame.len() - 12);
        frame[at] ^= 1 << random.below(8);
        p4shield_frame::ipv4::set_checksum(&mut frame[link..]);
    }
    frame.extend(inner);
    frame
}

fn frames(count: usize) -> Vec<Vec<u8>> {
    let mut random = Frames::new(0x5eed_0f0e);
    let mut inner = Vec::new();
    (0..count)
        .map(|_| {
            random.fill(&mut inner);
            if random.below(2) == 0 { inner.clone() } else { encapsulate(&mut random, &inner) }
        })
        .collect()
}

/// Sends `count` frames of a file through the switch. Returns those that it delivers to the VM's two ports.
fn delivered(cloud: &Cloud, is_loaded: bool, count: usize) -> [Vec<Vec<u8>>; 2] {
    let host = NetNs::create("host").unwrap();
    // What the host sends through the bridge's internal port reaches no lane: its kernel must be silent.
    host.disable_ipv6().unwrap();
    let mut setup = OpenVswitch::over_dpdk().megabytes(1_024).other_config("vlan-limit", "0");
    if is_loaded {
        setup = cloud.environment().into_iter().fold(setup, |s, (name, value)| s.env(name, value));
    }
    let mut switch = setup.start(&host).unwrap();
    let vsctl = |line: &str| switch.vsctl(&line.split(' ').collect::<Vec<_>>()).unwrap();
    let mac = OUTER_MAC.map(|b| format!("{b:02x}")).join(":");
    vsctl(&format!("set Bridge {OUTER} other_config:hwaddr={mac}"));
    host.ip(&format!("addr add {}/24 dev {OUTER}", Ipv4Addr::from(OUTER_IP))).unwrap();
    host.ip(&format!("link set {OUTER} up")).unwrap();
    vsctl("add-br inner -- set Bridge inner datapath_type=netdev");
    for kind in ["vxlan", "geneve"] {
        let options = "options:remote_ip=flow options:local_ip=192.0.2.7 options:key=flow";
        vsctl(&format!("add-port inner {kind} -- set Interface {kind} type={kind} {options}"));
    }
    let outputs = [cloud.file("vm0.pcap"), cloud.file("vm1.pcap")];
    for ((bridge, port), file) in [(OUTER, "vm0"), ("inner", "vm1")].into_iter().zip(&outputs) {
        let devargs = format!("options:dpdk-devargs=net_pcap_{port},tx_pcap={}", text(file));
        vsctl(&format!("add-port {bridge} {port} -- set Interface {port} type=dpdk {devargs}"));
    }
    for (bridge, port, other) in [(OUTER, "vm0", "LOCAL"), ("inner", "vm1", "drop")] {
        let to = switch.vsctl(&["get", "Interface", port, "ofport"]).unwrap();
        assert_ne!(to.trim(), "-1", "{}", switch.log());
        let to = format!("output:{}", to.trim());
        let to_vm = addresses().map(|address| match address {
            IpAddr::V4(v4) => format!("priority=2,ip,nw_dst={v4},actions={to}"),
            IpAddr::V6(v6) => format!("priority=2,ipv6,ipv6_dst={v6},actions={to}"),
        });
        for flow in to_vm.into_iter().chain([format!("priority=1,actions={other}")]) {
            switch.ofctl_of(bridge, "add-flow", &[&flow]).unwrap();
        }
    }
    let (input, sink) = (cloud.file("in.pcap"), cloud.file("sink.pcap"));
    switch.add_dpdk("up", &format!("net_pcap_up,rx_pcap={},tx_pcap={}", text(&input), text(&sink))).unwrap();
    let received = || -> usize {
        let count = switch.vsctl(&["get", "Interface", "up", "statistics:rx_packets"]);
        count.ok().and_then(|n| n.trim().parse().ok()).unwrap_or(0)
    };
    wait_until("the switch to read the file", PATIENCE * 20, || received() >= count)
        .unwrap_or_else(|e| panic!("{e}: {} of {count}\n{}", received(), switch.log()));
    let status = switch.stop().unwrap();
    assert!(status.success(), "{status}\n{}", switch.log());
    outputs.map(|file| read(&file))
}

/// Whether a frame is neighbour discovery, which no program judges: an ICMPv6 message of a type and size of
/// RFC 4861 that has crossed no router.
fn is_discovery(frame: &[u8]) -> bool {
    let tags =
        frame[12..].chunks(4).take_while(|t| matches!(t, [0x81 | 0x91, 0, ..] | [0x88, 0xa8, ..])).count();
    let ip = &frame[14 + 4 * tags..];
    frame[12 + 4 * tags..][..2] == [0x86, 0xdd]
        && ip.len() >= 44
        && ip[6..8] == [58, 255]
        && (133..=136).contains(&ip[40])
        && ip[41] == 0
        && ip[4] == 0
        && ip[5] <= 104 - 40
}

/// Generated frames, half of them in tunnels: the switch alone delivers many of them to the VM. With the
/// library and a policy that drops what no program judges, it delivers none. With a policy that passes these,
/// it delivers many: the others have a VM's source address or could be read in two ways.
#[test]
fn whatever_the_switch_delivers_to_a_vm_was_judged() {
    if !usable(OpenVswitch::usable()) {
        return;
    }
    let count = extent(60_000, 1_000_000);
    let frames = frames(count);
    let run = |fail: &str, is_loaded: bool| {
        let cloud = cloud(fail);
        write(&cloud.file("in.pcap"), &frames);
        delivered(&cloud, is_loaded, count)
    };
    let number = |[direct, tunnelled]: [Vec<_>; 2]| [direct.len(), tunnelled.len()];
    let plain = number(run("drop", false));
    assert!(plain.iter().all(|n| n * 100 > count), "of {count} frames the switch alone delivers {plain:?}");
    let unjudged = run("drop", true).map(|mut frames| {
        frames.retain(|frame| !is_discovery(frame));
        frames
    });
    let some = |frames: &[Vec<u8>]| frames.iter().take(8).map(|f| hex(f)).collect::<Vec<_>>().join("\n");
    let [direct, tunnelled] = [0, 1].map(|port| some(&unjudged[port]));
    let unjudged = number(unjudged);
    assert_eq!(unjudged, [0, 0], "unjudged, of {plain:?}:\n{direct}\nand out of tunnels:\n{tunnelled}");
    let passed = number(run("pass", true));
    println!("of {count} frames the switch delivers {plain:?}, with the library {passed:?}");
    for (with, without) in passed.into_iter().zip(plain) {
        assert!(with <= without && with * 10 > without * 3, "{passed:?} of {plain:?}");
    }
}

fn hex(frame: &[u8]) -> String {
    frame.iter().map(|b| format!("{b:02x}")).collect()
}
