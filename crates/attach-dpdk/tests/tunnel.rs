//! Packets that reach a VM through a tunnel of the distribution's Open vSwitch over DPDK are judged by what is inside.

mod common;

use common::daemon::{Cloud, Does, usable};
use common::switch::PATIENCE;
use p4shield_config::{Tunnel, TunnelKind};
use p4shield_testbed::dpdk::OvsDpdk;
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
    new[24..26].fill(0);
    let words = new[14..38].chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])));
    let sum = words.sum::<u32>();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    new[24..26].copy_from_slice(&sum.to_be_bytes());
    new
}

/// A host whose switch ends VXLAN tunnels, a VM on it, and the world at the other end.
struct Clouds {
    host: NetNs,
    _vm: NetNs,
    world: NetNs,
}

impl Clouds {
    /// `more`: of the world's device. An error if this kernel has no such devices.
    fn new(more: &str) -> Result<Self, String> {
        let [host, vm, world] = ["host", "vm", "world"].map(|n| NetNs::create(n).unwrap());
        host.veth("s0", &vm, "eth0").unwrap();
        host.veth("u0", &world, "eth0").unwrap();
        for ns in [&vm, &world] {
            ns.send_whole_packets("eth0").unwrap();
        }
        vm.ip("addr add 10.0.1.1/16 dev eth0").unwrap();
        vm.ip("link set eth0 mtu 1400").unwrap();
        world.ip("addr add 192.0.2.1/24 dev eth0").unwrap();
        let device = format!(
            "link add tun0 type vxlan id 7 dstport 4789 local 192.0.2.1 remote 192.0.2.7 dev eth0 {more}"
        );
        world.ip(&device).map_err(|e| format!("no VXLAN devices: {e}"))?;
        world.ip("addr add 10.0.9.1/16 dev tun0").unwrap();
        world.ip("link set tun0 mtu 1400 up").unwrap();
        world.send_whole_packets("tun0").unwrap();
        Ok(Self { host, _vm: vm, world })
    }

    /// Open vSwitch: a bridge with the uplink and the host's address, and one with the VM and the tunnel.
    fn switch(&self, cloud: &Cloud, more: &[&str]) -> OvsDpdk {
        let environment = cloud.environment().into_iter();
        let setup = environment.fold(OvsDpdk::setup(), |setup, (name, value)| setup.env(name, value));
        let switch = setup.start(&self.host).unwrap();
        switch.add_interface("up", "u0").unwrap();
        let bridge = OvsDpdk::BRIDGE;
        self.host.ip(&format!("addr add 192.0.2.7/24 dev {bridge}")).unwrap();
        self.host.ip(&format!("link set {bridge} up")).unwrap();
        let words = ["add-br", "inner", "--", "set", "Bridge", "inner", "datapath_type=netdev"];
        switch.vsctl(&words).unwrap();
        let devargs = "options:dpdk-devargs=net_af_packet_vm,iface=s0,qpairs=1";
        let vm = ["add-port", "inner", "vm", "--", "set", "Interface", "vm", "type=dpdk", devargs];
        switch.vsctl(&vm).unwrap();
        let mut tunnel = vec!["add-port", "inner", "tun", "--", "set", "Interface", "tun", "type=vxlan"];
        tunnel.extend(["options:remote_ip=192.0.2.1", "options:local_ip=192.0.2.7", "options:key=7"]);
        tunnel.extend(more);
        switch.vsctl(&tunnel).unwrap();
        switch
    }

    /// Pings the VM through the tunnel.
    fn ping(&self) -> bool {
        run(self.world.command("ping").args(["-c1", "-W1", "10.0.1.1"])).is_ok()
    }
}

const UPLINK: &str = "[[port]]\nname = \"net_af_packet_up\"\nrole = \"uplink\"\n";
const TUNNEL: &str = "[[tunnel]]\ntype = \"vxlan\"\naddress = \"192.0.2.7\"\n";

/// One after the other, since they share `MOOD`: without outer checksums and known from the file; with them and known from
/// the daemon.
#[test]
fn what_comes_through_a_tunnel_is_judged_by_what_is_inside() {
    if !usable(OvsDpdk::usable()) {
        return;
    }
    for (device, port, tunnel) in [("", &[][..], TUNNEL), ("udpcsum", &["options:csum=true"], "")] {
        let clouds = match Clouds::new(device) {
            Ok(clouds) => clouds,
            Err(why) => {
                println!("skipped: {why}");
                return;
            }
        };
        let cloud = Cloud::new("1s", &[UPLINK, tunnel].concat());
        let daemon = cloud.daemon(guard);
        let mut switch = clouds.switch(&cloud, port);
        daemon.wait_lanes(2);
        let works = |what: &str| {
            wait_until(what, PATIENCE, || clouds.ping()).unwrap_or_else(|e| panic!("{e}\n{}", switch.log()));
        };
        works("a ping through the tunnel");
        if tunnel.is_empty() {
            let address = Some([192, 0, 2, 7].into());
            daemon.tell_tunnels(&[Tunnel { kind: TunnelKind::Vxlan, address, port: 4789 }]);
            MOOD.store(DROP, Ordering::Relaxed);
            wait_until("the end of pings", PATIENCE, || !clouds.ping()).unwrap();
            MOOD.store(PASS, Ordering::Relaxed);
            works("a ping through the tunnel that is known now");
        }
        let before = daemon.p4vm(0).judged();
        works("a ping through the tunnel");
        assert!(daemon.p4vm(0).judged() >= before + 2, "the request by its inner addresses, and the reply");

        MOOD.store(DROP, Ordering::Relaxed);
        assert!(!clouds.ping(), "the program refuses what is inside");
        MOOD.store(PASS, Ordering::Relaxed);
        works("a ping that is let through again");

        // The kernel answers with the same options: it got a packet whose outer lengths and checksum are right.
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
