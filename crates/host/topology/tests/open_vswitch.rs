//! The rules of plans in the distribution's Open vSwitch, between namespaces for VMs and for the outside. A
//! bridge whose ports for VMs are isolated stands in for the NIC switch.

use p4shield_config::{Config, Level};
use p4shield_testbed::{NetNs, OpenVswitch, wait_until};
use p4shield_topology::{COOKIE, COOKIE_MASK, Compartment, Numbers, Plan, Tenant, Vm, plan};
use std::path::Path;

/// The router's addresses in the VMs' networks.
const ROUTER: [&str; 2] = ["10.0.0.254", "fd00::fe"];
/// An address behind the router.
const FAR: &str = "192.0.2.1";

/// The plan of two tenants, alice with two VMs and bob with one.
fn planned(level: &str) -> Plan {
    let text = include_str!("golden/tenants.toml").replace("level = \"2\"", &format!("level = \"{level}\""));
    let config = Config::parse(Path::new("tenants.toml"), &text).unwrap();
    plan(&config, &Numbers::default(), 2).unwrap()
}

struct World {
    plan: Plan,
    host: NetNs,
    outside: NetNs,
    /// The VMs' namespaces, in the order of the plan.
    vms: Vec<NetNs>,
    lans: Vec<NetNs>,
    switch: OpenVswitch,
}

impl World {
    /// Starts the one switch of a level, or returns `None` after the reason was recorded.
    fn start(level: &str) -> Option<Self> {
        if let Err(why) = OpenVswitch::usable() {
            p4shield_need::skip("openvswitch", why);
            return None;
        }
        let [host, outside] = ["host", "out"].map(|name| NetNs::create(name).unwrap());
        let switch = OpenVswitch::for_afxdp(&host, &[], "0x1").unwrap();
        let mut world =
            Self { plan: planned(level), host, outside, vms: Vec::new(), lans: Vec::new(), switch };
        world.connect_outside();
        for tenant in world.compartment().tenants.clone() {
            match &tenant.gateway {
                Some(link) => world.connect_behind_bridge(&tenant, &link.inner),
                None => tenant.vms.iter().for_each(|vm| world.connect_vm(vm, None)),
            }
        }
        world.add_ports();
        Some(world)
    }

    fn compartment(&self) -> &Compartment {
        &self.plan.compartments[0]
    }

    fn connect_outside(&mut self) {
        let name = self.compartment().in_out.as_ref().map_or("eth0", |link| &*link.inner);
        self.host.veth(name, &self.outside, "eth0").unwrap();
        self.outside.ip(&format!("link set eth0 address {}", self.plan.gateway_mac)).unwrap();
        self.outside.ip(&format!("addr add {}/24 dev eth0", ROUTER[0])).unwrap();
        self.outside.ip(&format!("addr add {}/64 dev eth0 nodad", ROUTER[1])).unwrap();
        self.outside.ip(&format!("addr add {FAR}/32 dev lo")).unwrap();
    }

    fn connect_behind_bridge(&mut self, tenant: &Tenant, gateway: &str) {
        let lan = NetNs::create("lan").unwrap();
        lan.ip("link add b0 type bridge mcast_snooping 0").unwrap();
        lan.ip("link set b0 up").unwrap();
        self.host.veth(gateway, &lan, "gw").unwrap();
        lan.ip("link set gw master b0").unwrap();
        for vm in &tenant.vms {
            self.connect_vm(vm, Some(&lan));
            lan.ip(&format!("link set {} master b0", vm.interface)).unwrap();
            lan.ip(&format!("link set {} type bridge_slave isolated on", vm.interface)).unwrap();
        }
        self.lans.push(lan);
    }

    /// Makes a VM's namespace, whose interface's other side is in `lan` or on the host.
    fn connect_vm(&mut self, vm: &Vm, lan: Option<&NetNs>) {
        let ns = NetNs::create("vm").unwrap();
        lan.unwrap_or(&self.host).veth(&vm.interface, &ns, "eth0").unwrap();
        ns.ip(&format!("link set eth0 address {}", vm.mac)).unwrap();
        for address in &vm.addresses {
            let options = if address.is_ipv4() { "/24 dev eth0" } else { "/64 dev eth0 nodad" };
            ns.ip(&format!("addr add {address}{options}")).unwrap();
        }
        ns.ip("route add default via 10.0.0.1").unwrap();
        self.vms.push(ns);
    }

    fn add_ports(&self) {
        for port in self.compartment().switch_ports(&self.plan.uplink) {
            let name = &*port.interface;
            if let Some(mac) = port.mac {
                self.host.ip(&format!("link set {name} address {mac}")).unwrap();
            }
            let number = format!("ofport_request={}", port.number);
            let bridge = OpenVswitch::BRIDGE;
            self.switch.vsctl(&["add-port", bridge, name, "--", "set", "Interface", name, &number]).unwrap();
        }
        self.apply(&self.plan);
    }

    /// Replaces the rules by those of a plan.
    fn apply(&self, plan: &Plan) {
        let file = self.switch.folder().join("flows");
        std::fs::write(&file, plan.compartments[0].flow_bundle(plan.gateway_mac)).unwrap();
        self.switch.ofctl("add-flows", &[file.to_str().unwrap(), "--bundle"]).unwrap();
    }

    /// Has the router forward packets, or not.
    fn route(&self, forwards: bool) {
        for key in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
            let value = if forwards { "1" } else { "0" };
            self.outside.inside(|| std::fs::write(format!("/proc/sys/net/{key}"), value)).unwrap();
        }
    }

    /// Returns the actions of the switch for a packet of these fields.
    fn trace(&self, packet: &str) -> String {
        let text = self.switch.appctl(&["ofproto/trace", OpenVswitch::BRIDGE, packet]).unwrap();
        let actions = text.lines().find_map(|line| line.strip_prefix("Datapath actions: "));
        actions.unwrap_or_else(|| panic!("{text}")).to_owned()
    }
}

fn reaches(from: &NetNs, address: &str) -> bool {
    let pings = ["-n", "-c", "3", "-i", "0.2", "-W", "2", address];
    from.command("ping").args(pings).output().unwrap().status.success()
}

/// The same, now or once the switch has a core again.
fn answers(from: &NetNs, address: &str) -> bool {
    wait_until("a ping", 30, || reaches(from, address)).is_ok()
}

fn neighbour(ns: &NetNs, address: &str) -> String {
    ns.ip(&format!("neigh show {address}")).unwrap()
}

/// Checks what both levels have in common.
fn vms_and_the_outside_reach_each_other(world: &World) {
    let [web, db, bob] = &world.vms[..] else { panic!("there are three VMs") };
    for vm in [web, db, bob] {
        for address in [FAR, ROUTER[0], ROUTER[1]] {
            assert!(answers(vm, address), "{address} from {}", vm.name());
        }
    }
    for address in ["10.0.0.2", "fd00::4", "10.0.0.3", "fd00::3"] {
        assert!(answers(&world.outside, address), "{address} from the outside");
        let mac = world.compartment().mac.to_string().to_lowercase();
        assert!(neighbour(&world.outside, address).contains(&mac), "{address}");
    }
    for address in ["10.0.0.4", "fd00::4"] {
        assert!(answers(web, address), "{address} from web");
        let mac = world.compartment().tenants[0].mac.to_string().to_lowercase();
        assert!(neighbour(web, address).contains(&mac), "{}", neighbour(web, address));
    }
}

fn tenants_reach_each_other_through_the_router_only(world: &World) {
    vms_and_the_outside_reach_each_other(world);
    let web = &world.vms[0];
    world.route(false);
    assert!(!reaches(web, "10.0.0.3") && !reaches(web, "fd00::3"), "another tenant is behind the router");
    world.route(true);
    assert!(answers(web, "10.0.0.3") && answers(web, "fd00::3"));
}

#[test]
fn chains_carry_packets_at_level_1() {
    let Some(world) = World::start("1") else { return };
    tenants_reach_each_other_through_the_router_only(&world);
}

#[test]
fn one_switch_carries_packets_at_the_baseline() {
    let Some(world) = World::start("baseline") else { return };
    assert_eq!(world.plan.level, Level::Baseline);
    tenants_reach_each_other_through_the_router_only(&world);
}

#[test]
fn what_no_chain_takes_is_dropped() {
    let Some(world) = World::start("1") else { return };
    let (web, switch) = ("dl_src=02:00:00:00:00:0a", "dl_dst=02:50:34:ff:f0:01");
    let from_web = format!("in_port=2,{web}");
    let dropped = [
        // A tag, from a VM and from the outside.
        format!("{from_web},{switch},dl_vlan=5,dl_vlan_pcp=0,ip,nw_src=10.0.0.2,nw_dst=192.0.2.1"),
        "in_port=1,dl_dst=02:50:34:00:00:01,dl_vlan=5,dl_vlan_pcp=0,ip,nw_dst=10.0.0.2".to_owned(),
        // To an address that is not the switch's.
        format!("{from_web},dl_dst=02:00:00:00:00:0c,ip,nw_src=10.0.0.2,nw_dst=10.0.0.4"),
        format!("{from_web},dl_dst=ff:ff:ff:ff:ff:ff,ip,nw_src=10.0.0.2,nw_dst=255.255.255.255"),
        format!("{from_web},dl_dst=02:50:34:ff:f0:02,ip,nw_src=10.0.0.2,nw_dst=10.0.0.3"),
        "in_port=1,dl_dst=02:50:34:ff:f0:01,ip,nw_dst=10.0.0.2".to_owned(),
        // From the outside to no VM.
        "in_port=1,dl_dst=02:50:34:00:00:01,ip,nw_dst=10.0.0.9".to_owned(),
        "in_port=1,dl_dst=ff:ff:ff:ff:ff:ff,arp,arp_op=1,arp_tpa=10.0.0.9".to_owned(),
        // Questions for one's own address, and answers.
        format!("{from_web},dl_dst=ff:ff:ff:ff:ff:ff,arp,arp_op=1,arp_spa=0.0.0.0,arp_tpa=10.0.0.2"),
        format!("{from_web},{switch},arp,arp_op=2,arp_spa=10.0.0.3,arp_tpa=10.0.0.1"),
        format!(
            "{from_web},icmp6,ipv6_src=::,ipv6_dst=ff02::1:ff00:a,icmpv6_type=135,nw_ttl=255,\
             nd_target=fd00::a"
        ),
        // Neighbour discovery that was routed, and advertisements, redirects and routers of others.
        format!("{from_web},{switch},icmp6,ipv6_src=fd00::2,ipv6_dst=fd00::3,icmpv6_type=135,nw_ttl=64"),
        format!("{from_web},{switch},icmp6,ipv6_src=fd00::2,ipv6_dst=fd00::4,icmpv6_type=136,nw_ttl=255"),
        "in_port=1,dl_dst=02:50:34:00:00:01,icmp6,ipv6_dst=fd00::2,icmpv6_type=137,nw_ttl=255".to_owned(),
        "in_port=1,dl_dst=02:50:34:00:00:01,icmp6,ipv6_dst=fd00::2,icmpv6_type=134,nw_ttl=255".to_owned(),
        // Neither IP nor ARP.
        format!("{from_web},{switch},dl_type=0x88cc"),
    ];
    for packet in dropped {
        assert_eq!(world.trace(&packet), "drop", "{packet}");
    }
    let passed = format!("{from_web},{switch},ip,nw_src=10.0.0.2,nw_dst=10.0.0.3");
    let actions = world.trace(&passed);
    assert!(
        actions.contains("dst=02:00:00:00:00:fe"),
        "another tenant's VM is the router's to find: {actions}"
    );
}

#[test]
fn a_new_plan_leaves_rules_of_others() {
    let Some(world) = World::start("1") else { return };
    world.switch.ofctl("add-flow", &["cookie=7,priority=20000,udp,actions=drop"]).unwrap();
    let rules = |cookie: &str| {
        let text = world.switch.ofctl("dump-flows", &[&format!("cookie={cookie}")]).unwrap();
        text.lines().filter(|line| line.contains("actions=")).count()
    };
    let own = format!("{COOKIE:#x}/{COOKIE_MASK:#x}");
    assert_eq!(rules(&own), world.compartment().flows(world.plan.gateway_mac).len());
    let mut smaller = world.plan.clone();
    smaller.compartments[0].tenants.pop();
    world.apply(&smaller);
    assert_eq!(rules(&own), smaller.compartments[0].flows(smaller.gateway_mac).len());
    assert_eq!(rules("7/-1"), 1);
    world.apply(&world.plan);
    assert!(answers(&world.vms[2], FAR), "the tenant is back");
}
