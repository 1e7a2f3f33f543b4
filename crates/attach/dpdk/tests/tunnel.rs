//! Packets that reach a VM through a tunnel of the distribution's Open vSwitch over DPDK are judged by what
//! is inside.

mod common;

use common::daemon::{Cloud, Does, usable};
use common::switch::PATIENCE;
use p4shield_config::{Tunnel, TunnelKind};
use p4shield_frame::ipv4;
use p4shield_testbed::OpenVswitch;
use p4shield_testbed::process::run;
use p4shield_testbed::{NetNs, wait_until};
use std::net::UdpSocket;
use std::sync::atomic::{AtomicU8, Ordering};

/// What becomes of echo requests.
static MOOD: AtomicU8 = AtomicU8::new(PASS);
const PASS: u8 = 0;
const DROP: u8 = 1;
const GROW: u8 = 2;

/// Sees the inner packet: Ethernet, IPv4 without options, ICMP.
fn guard(front: &[u8]) -> Does {
    let is_request =
        front.get(12..15) == Some(&[8, 0, 0x45]) && front.get(23) == Some(&1) && front.get(34) == Some(&8);
    match MOOD.load(Ordering::Relaxed) {
        DROP if is_request => Does::Drop,
        GROW if is_request => Does::Rewrite(with_options(front)),
        _ => Does::Pass,
    }
}

/// With four bytes of IPv4 options that say nothing.
fn with_options(front: &[u8]) -> Vec<u8> {
    let mut new = [&front[..34], &[1, 1, 1, 0], &front[34..]].concat();
    new[14] = 0x46;
    let total = u16::from_be_bytes([new[16], new[17]]) + 4;
    new[16..18].copy_from_slice(&total.to_be_bytes());
    ipv4::set_checksum(&mut new[14..]);
    new
}

/// A host whose switch ends VXLAN tunnels of some networks, with a VM in each, and the world at the other
/// end. In each network the VM has the same address, and so has the world.
struct Clouds {
    host: NetNs,
    _vms: Vec<NetNs>,
    world: NetNs,
    networks: Vec<u32>,
}

impl Clouds {
    /// `more`: of the world's devices. An error if this kernel has no such devices.
    fn new(networks: &[u32], vm: &str, more: &str) -> Result<Self, String> {
        let [host, world] = ["host", "world"].map(|n| NetNs::create(n).unwrap());
        host.veth("u0", &world, "eth0").unwrap();
        world.send_whole_packets("eth0").unwrap();
        world.ip("addr add 192.0.2.1/24 dev eth0").unwrap();
        let mut vms = Vec::new();
        for network in networks {
            let ns = NetNs::create("vm").unwrap();
            host.veth(&format!("s{network}"), &ns, "eth0").unwrap();
            ns.send_whole_packets("eth0").unwrap();
            ns.ip(&format!("addr add {vm}/16 dev eth0")).unwrap();
            ns.ip("link set eth0 mtu 1400").unwrap();
            vms.push(ns);
            let device = format!(
                "link add tun{network} type vxlan id {network} dstport 4789 \
                 local 192.0.2.1 remote 192.0.2.7 dev eth0 {more}"
            );
            world.ip(&device).map_err(|e| format!("no VXLAN devices: {e}"))?;
            world.ip(&format!("addr add 10.0.9.1/16 dev tun{network}")).unwrap();
            world.ip(&format!("link set tun{network} mtu 1400 up")).unwrap();
            world.send_whole_packets(&format!("tun{network}")).unwrap();
        }
        Ok(Self { host, _vms: vms, world, networks: networks.to_vec() })
    }

    /// Open vSwitch: a bridge with the uplink and the host's address, and for each network one with the VM
    /// and the tunnel.
    fn switch(&self, cloud: &Cloud, more: &[&str]) -> OpenVswitch {
        let environment = cloud.environment().into_iter();
        let setup = environment.fold(OpenVswitch::over_dpdk(), |setup, (name, value)| setup.env(name, value));
        let switch = setup.start(&self.host).unwrap();
        switch.add_interface("up", "u0").unwrap();
        let bridge = OpenVswitch::BRIDGE;
        self.host.ip(&format!("addr add 192.0.2.7/24 dev {bridge}")).unwrap();
        self.host.ip(&format!("link set {bridge} up")).unwrap();
        for n in &self.networks {
            let vsctl = |line: String, more: &[&str]| {
                let words: Vec<_> = line.split(' ').chain(more.iter().copied()).collect();
                switch.vsctl(&words).unwrap();
            };
            vsctl(format!("add-br inner{n} -- set Bridge inner{n} datapath_type=netdev"), &[]);
            let devargs = format!("options:dpdk-devargs=net_af_packet_vm{n},iface=s{n},qpairs=1");
            vsctl(format!("add-port inner{n} vm{n} -- set Interface vm{n} type=dpdk {devargs}"), &[]);
            let options = format!("options:remote_ip=192.0.2.1 options:key={n}");
            vsctl(format!("add-port inner{n} tun{n} -- set Interface tun{n} type=vxlan {options}"), more);
        }
        switch
    }

    /// Pings a VM through the tunnel of its network.
    fn ping(&self, network: u32, vm: &str) -> bool {
        self.pings(1, network, vm)
    }

    /// The same so many times. True if there was a reply at all.
    fn pings(&self, count: u64, network: u32, vm: &str) -> bool {
        let (count, device) = (format!("-c{count}"), format!("tun{network}"));
        run(self.world.command("ping").args([&count, "-i0.01", "-W1", "-I", &device, vm])).is_ok()
    }
}

/// Where alice's VM is.
const VM: &str = "10.0.1.1";
const UPLINK: &str = "[[port]]\nname = \"net_af_packet_up\"\nrole = \"uplink\"\n";
const TUNNEL: &str = "[[tunnel]]\ntype = \"vxlan\"\naddress = \"192.0.2.7\"\n";
/// The switch's end of the tunnel.
const HERE: &str = "options:local_ip=192.0.2.7";

/// One after the other, since they share `MOOD`: without outer checksums and known from the file; with them
/// and known from the daemon; and with an end at each address of the host, whichever these are.
#[test]
fn tunnelled_packets_are_judged_by_their_inner_headers() {
    if !usable(OpenVswitch::usable()) {
        return;
    }
    for (device, port, tunnel, address) in [
        ("", &[HERE][..], TUNNEL, [192, 0, 2, 7]),
        ("udpcsum", &[HERE, "options:csum=true"], "", [192, 0, 2, 7]),
        ("", &[], "", [0; 4]),
    ] {
        let clouds = match Clouds::new(&[7], VM, device) {
            Ok(clouds) => clouds,
            Err(why) => {
                p4shield_need::skip("machine", why);
                return;
            }
        };
        let cloud = Cloud::new("1s", &[UPLINK, tunnel].concat());
        let daemon = cloud.daemon(guard);
        let mut switch = clouds.switch(&cloud, port);
        daemon.wait_lanes(2);
        let works = |what: &str| {
            wait_until(what, PATIENCE, || clouds.ping(7, VM))
                .unwrap_or_else(|e| panic!("{e}\n{}", switch.log()));
        };
        works("a ping through the tunnel");
        if tunnel.is_empty() {
            let address = Some(address.into());
            daemon.tell_tunnels(&[Tunnel { kind: TunnelKind::Vxlan, address, port: 4789 }]);
            MOOD.store(DROP, Ordering::Relaxed);
            wait_until("the end of pings", PATIENCE, || !clouds.ping(7, VM)).unwrap();
            MOOD.store(PASS, Ordering::Relaxed);
            works("a ping through the tunnel that is known now");
        }
        let before = daemon.p4vm(0).judged();
        works("a ping through the tunnel");
        assert!(daemon.p4vm(0).judged() >= before + 2, "the request by its inner addresses, and the reply");

        MOOD.store(DROP, Ordering::Relaxed);
        assert!(!clouds.ping(7, VM), "the program refuses what is inside");
        MOOD.store(PASS, Ordering::Relaxed);
        works("a ping that is let through again");

        // The kernel answers with the same options: it got a packet whose outer lengths and checksum are
        // right.
        MOOD.store(GROW, Ordering::Relaxed);
        works("a ping that grew inside its tunnel");
        MOOD.store(PASS, Ordering::Relaxed);

        // What is no frame inside is not let through, and told.
        let send = || UdpSocket::bind("192.0.2.1:0").and_then(|s| s.send_to(b"no frame", "192.0.2.7:4789"));
        clouds.world.inside(send).unwrap();
        wait_until("the count of refused packets", PATIENCE, || daemon.refused() != 0).unwrap();
        let status = switch.stop().unwrap();
        assert!(status.success(), "{status}\n{}", switch.log());
    }
}

/// The address that two tenants' VMs have.
const BOTH: &str = "10.0.3.1";

/// A tenant whose VM has that address in this network.
fn overlapping(name: &str, network: u32) -> String {
    format!(
        r#"
[[tenant]]
name = "{name}"
deadline = "1s"
stall = "60s"
[[tenant.vm]]
name = "vm"
addresses = ["{BOTH}"]
vni = {network}
[[port]]
name = "net_af_packet_vm{network}"
tenant = "{name}"
vm = "vm"
"#
    )
}

#[test]
fn networks_distinguish_tenants_with_one_address() {
    if !usable(OpenVswitch::usable()) {
        return;
    }
    const RED: usize = 2;
    const BLUE: usize = 3;
    // More than a VM's kernel sends by itself meanwhile (multicast listener reports), which is its tenant's.
    const PINGS: u64 = 30;
    let clouds = match Clouds::new(&[8, 9], BOTH, "") {
        Ok(clouds) => clouds,
        Err(why) => {
            p4shield_need::skip("machine", why);
            return;
        }
    };
    let cloud = Cloud::new("1s", &[UPLINK, TUNNEL, &overlapping("red", 8), &overlapping("blue", 9)].concat());
    let daemon = cloud.daemon(|_| Does::Pass);
    let mut switch = clouds.switch(&cloud, &[HERE]);
    daemon.wait_lanes(3);
    for (network, own, other) in [(8, RED, BLUE), (9, BLUE, RED)] {
        wait_until("a ping through the tunnel", PATIENCE, || clouds.ping(network, BOTH))
            .unwrap_or_else(|e| panic!("{e} {network}\n{}", switch.log()));
        let before = [own, other].map(|tenant| daemon.p4vm(tenant).judged());
        wait_until("pings", PATIENCE, || clouds.pings(PINGS, network, BOTH)).unwrap();
        let judged = || daemon.p4vm(own).judged();
        wait_until("requests, and replies, to be judged", PATIENCE, || judged() >= before[0] + PINGS)
            .unwrap_or_else(|e| panic!("{e}: network {network}"));
        let others = daemon.p4vm(other).judged() - before[1];
        assert!(others < PINGS, "network {network}: no other program saw the packets");
    }
    let status = switch.stop().unwrap();
    assert!(status.success(), "{status}\n{}", switch.log());
}
