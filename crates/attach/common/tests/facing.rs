//! Where a VM's ingress is asked. Without a daemon its tenant's policy tells: what is asked about is dropped.

use p4shield_attach::{Kind, Lane, Options, PortInfo, Session};
use p4shield_mediator::{Disposition, Reason};
use p4shield_testbed::packet::udp;

/// The VM `web` has a port on both sides, `db` one on the receive side only.
const TAPS: &str = r#"
[[tenant.vm]]
name = "db"
addresses = ["10.0.0.2"]
[[port]]
name = "tap0"
tenant = "alice"
vm = "web"
[[port]]
name = "tap1"
tenant = "alice"
vm = "db"
sides = "receive"
"#;

/// Every VM has a port of its own, on both sides.
const VHOST: &str = r#"
[[port]]
name = "vhost0"
tenant = "alice"
vm = "web"
"#;

/// Returns the configuration of an uplink and Alice's VM `web`, with `more` tables.
fn config(attachment: &str, more: &str) -> String {
    let common = r#"
[daemon]
attach_socket = "attach.sock"
[[port]]
name = "eth0"
role = "uplink"
[[tenant]]
name = "alice"
[[tenant.vm]]
name = "web"
addresses = ["10.0.0.1"]
"#;
    format!("attachment = \"{attachment}\"{common}{more}")
}

const ASKED: Disposition = Disposition::Drop(Reason::NoChannel);

struct Switch {
    session: Session,
    _folder: tempfile::TempDir,
}

impl Switch {
    fn new(config: &str) -> Self {
        Self::of(Kind::Xsk, config)
    }

    fn of(kind: Kind, config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p4shield.toml");
        std::fs::write(&path, config).unwrap();
        let options = Options { config: path, kind, application: "facing".into() };
        Self { session: Session::start(options).unwrap(), _folder: folder }
    }

    fn receive(&self, port: &str) -> Lane<Vec<u8>> {
        self.session.lane(self.up(port), 0)
    }

    fn transmit(&self, port: &str) -> Option<Lane<Vec<u8>>> {
        self.session.transmit_lane(self.up(port), 0)
    }

    fn up(&self, port: &str) -> p4shield_attach::PortId {
        self.session.port_up(PortInfo { name: port.into(), ..PortInfo::default() })
    }
}

/// Returns the disposition of a packet from 10.0.0.9, an unowned address, to this address.
fn to(lane: &mut Lane<Vec<u8>>, last: u8) -> Disposition {
    let mut out = Vec::new();
    lane.submit_burst(0, [udp([10, 0, 0, 9], [10, 0, 0, last])], |r| out.push(r.disposition));
    lane.poll(0, 32, |r| out.push(r.disposition));
    assert_eq!(out.len(), 1, "no lane holds it");
    out[0]
}

#[test]
fn ingress_is_judged_at_the_vms_own_port_while_it_has_a_lane() {
    let switch = Switch::new(&config("xsk", TAPS));
    let mut uplink = switch.receive("eth0");
    assert_eq!(to(&mut uplink, 1), ASKED);
    let mut web = switch.transmit("tap0").expect("a VM's port");
    assert_eq!(to(&mut uplink, 1), Disposition::Pass, "it is asked later");
    assert_eq!(to(&mut web, 1), ASKED);
    assert_eq!(to(&mut web, 77), ASKED, "whatever is sent to the VM is asked about, as multicast");
    let mut other = switch.receive("eth1");
    assert_eq!(to(&mut other, 1), Disposition::Pass, "a lane that came after it knows, too");
    drop(web);
    assert_eq!(to(&mut uplink, 1), ASKED);
    assert_eq!(to(&mut other, 1), ASKED);
}

#[test]
fn without_transmit_lanes_at_all_ports_receive_lanes_judge() {
    let second = VHOST.replace("vhost0", "tap2");
    let switch = Switch::new(&config("xsk", &format!("{TAPS}{second}")));
    let mut uplink = switch.receive("eth0");
    let mut first = switch.transmit("tap0").expect("a VM's port");
    assert_eq!((to(&mut uplink, 1), to(&mut first, 1)), (Disposition::Pass, ASKED));
    let second = switch.receive("tap2");
    assert_eq!((to(&mut uplink, 1), to(&mut first, 1)), (ASKED, Disposition::Pass), "tap2's packets, too");
    drop(second);
    assert_eq!((to(&mut uplink, 1), to(&mut first, 1)), (Disposition::Pass, ASKED));
}

#[test]
fn a_vm_with_a_port_of_its_own_sends_from_there_only() {
    let switch = Switch::new(&config("xsk", TAPS));
    let from_web = |lane: &mut Lane<Vec<u8>>| {
        let mut out = Vec::new();
        lane.submit_burst(0, [udp([10, 0, 0, 1], [10, 0, 0, 9])], |r| out.push(r.disposition));
        assert_eq!(out.len(), 1, "no lane holds it");
        out[0]
    };
    let mut shared = switch.receive("lan");
    assert_eq!(from_web(&mut shared), ASKED, "its port is not known");
    let mut own = switch.receive("tap0");
    assert_eq!(from_web(&mut own), ASKED);
    assert_eq!(from_web(&mut shared), Disposition::Drop(Reason::Spoofed));
    assert_eq!(from_web(&mut switch.receive("wan")), Disposition::Drop(Reason::Spoofed), "a later lane");
    drop(own);
    assert_eq!(from_web(&mut shared), ASKED);
}

#[test]
fn a_one_sided_port_has_no_lane_on_the_other_side() {
    let switch = Switch::new(&config("xsk", TAPS));
    assert!(switch.transmit("tap1").is_none());
    assert!(switch.transmit("eth0").is_none(), "no VM is behind it");
    assert!(switch.transmit("lan").is_none(), "nor can one turn out to be");
    let mut uplink = switch.receive("eth0");
    let _web = switch.transmit("tap0");
    assert_eq!(to(&mut uplink, 2), ASKED);
}

#[test]
fn a_port_of_unknown_role_judges_nothing_at_first() {
    let named = config("xsk", TAPS)
        .replace("addresses = [\"10.0.0.2\"]", "addresses = [\"10.0.0.2\"]\niface_id = \"8d6b\"");
    let switch = Switch::new(&named);
    let mut unknown = switch.transmit("lan").expect("it may be the VM's");
    let mut uplink = switch.receive("eth0");
    assert_eq!(to(&mut unknown, 2), Disposition::Pass);
    assert_eq!(to(&mut uplink, 2), ASKED);
}

#[test]
fn other_ports_rest_while_vms_have_lanes_on_both_sides() {
    let switch = Switch::of(Kind::Dpdk, &config("dpdk", VHOST));
    let (mut uplink, mut shared) = (switch.receive("eth0"), switch.receive("eth1"));
    let judges = |lane: &mut Lane<Vec<u8>>| {
        lane.check(0);
        lane.judges()
    };
    assert!(judges(&mut uplink) && judges(&mut shared));
    let port = switch.up("vhost0");
    let transmit = switch.session.transmit_lane::<Vec<u8>>(port, 0).expect("a VM's port");
    assert!(judges(&mut uplink), "the VM may still send from another port");
    let mut own = switch.session.lane(port, 0);
    assert!(!judges(&mut uplink) && !judges(&mut shared) && judges(&mut own));
    assert!(!judges(&mut switch.receive("eth2")), "a lane that came after it");
    drop(transmit);
    assert!(judges(&mut uplink) && judges(&mut shared));
    assert_eq!(to(&mut uplink, 1), ASKED);
}

#[test]
fn lanes_that_wake_p4_vms_do_not_rest() {
    let switch = Switch::new(&config("xsk", VHOST));
    let mut uplink = switch.receive("eth0");
    let port = switch.up("vhost0");
    let _transmit = switch.session.transmit_lane::<Vec<u8>>(port, 0).expect("a VM's port");
    let _own = switch.session.lane::<Vec<u8>>(port, 0);
    uplink.check(0);
    assert!(uplink.judges());
}
