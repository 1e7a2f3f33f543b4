//! Interfaces that change, go down, go away and return, while the other wires go on.

mod common;

use common::{Cloud, VM, VM4, usable};
use p4shield_attach_wire::{Error, WireConfig, WireSide};
use p4shield_mediator::{FailPolicy, VmRef};
use p4shield_testbed::process::run;
use p4shield_testbed::{Switch, wait_until};

impl Cloud {
    fn set_mtu(&self, mtu: u32) {
        for (ns, names) in [
            (&self.host, &["vm0", "sw0", "sw0p", "cl0", "br0"][..]),
            (&self.vm, &["eth0"]),
            (&self.client, &["eth0"]),
        ] {
            for name in names {
                ns.ip(&format!("link set {name} mtu {mtu}")).unwrap();
            }
        }
    }

    fn pings_with(&self, bytes: u32) -> bool {
        let size = bytes.to_string();
        run(self.client.command("ping").args(["-c2", "-i0.05", "-W1", "-Mdo", "-s", &size, VM4])).is_ok()
    }

    fn notice(&self, side: WireSide) -> String {
        self.status().sides[side as usize].notice.clone().unwrap_or_default()
    }
}

#[test]
fn too_large_mtus_are_reported() {
    if !usable() {
        return;
    }
    let cloud = Cloud::new(FailPolicy::Pass);
    cloud.wait_forwarding();
    cloud.set_mtu(1700);
    wait_until("a ping of 1600 bytes", 5, || cloud.pings_with(1600)).unwrap();
    cloud.set_mtu(3000);
    wait_until("a notice about the MTU", 5, || cloud.notice(WireSide::Vm).contains("MTU 3000")).unwrap();
    assert!(cloud.answers(VM4), "short frames still pass");
    assert!(!cloud.pings_with(2500));
    let counted = cloud.status().sides[WireSide::Switch as usize].attached.unwrap().kernel.xdp.oversize;
    assert!(counted >= 1, "too large frames are counted");
    cloud.set_mtu(1500);
    wait_until("the notice to go", 5, || cloud.notice(WireSide::Vm).is_empty()).unwrap();
    wait_until("large frames to pass", 20, || cloud.pings_with(1400)).unwrap();
    cloud.check_frames();
}

#[test]
fn interfaces_may_go_down_and_up() {
    if !usable() {
        return;
    }
    let cloud = Cloud::new(FailPolicy::Pass);
    cloud.wait_forwarding();
    for name in ["vm0", "sw0"] {
        cloud.host.ip(&format!("link set {name} down")).unwrap();
        assert!(!cloud.pings(VM4), "{name} is down");
        cloud.host.ip(&format!("link set {name} up")).unwrap();
        wait_until("a ping after up", 10, || cloud.pings(VM4)).unwrap();
        cloud.check_frames();
    }
}

#[test]
fn interfaces_may_go_and_come_back() {
    if !usable() {
        return;
    }
    let cloud = Cloud::new(FailPolicy::Pass);
    cloud.wait_forwarding();
    for round in 0..3 {
        cloud.host.ip("link del vm0").unwrap();
        if round > 0 {
            cloud.host.ip("link del sw0").unwrap();
            wait_until("the loss of both", 5, || cloud.status().sides.iter().all(|s| s.attached.is_none()))
                .unwrap();
            cloud.host.veth("sw0", &cloud.host, "sw0p").unwrap();
            cloud.switch.plug(&cloud.host, "sw0p").unwrap();
        }
        wait_until("the loss", 5, || cloud.notice(WireSide::Vm).contains("no interface vm0")).unwrap();
        assert!(!cloud.pings(VM4));
        cloud.host.veth("vm0", &cloud.vm, "eth0").unwrap();
        cloud.vm.ip(&format!("addr add {VM4}/24 dev eth0")).unwrap();
        // The VM has another MAC address now.
        cloud.client.ip("neigh flush dev eth0").unwrap();
        cloud.wait_whole();
        wait_until("a ping after the return", 10, || cloud.pings(VM4)).unwrap();
        cloud.check_frames();
    }
    let status = cloud.status().sides.map(|s| s.attached.unwrap());
    assert!(status.iter().all(|a| a.native && a.restores_tags));
}

#[test]
fn wires_wait_for_interfaces_and_are_removed() {
    if !usable() {
        return;
    }
    let cloud = Cloud::new(FailPolicy::Pass);
    cloud.wait_forwarding();
    let id = cloud.wire.add_wire(WireConfig::new("vm9", "sw9", VM)).unwrap();
    let of = |id| cloud.wire.status().unwrap().into_iter().find(|w| w.id == id).unwrap();
    assert!(of(id).sides.iter().all(|s| s.notice.as_deref().is_some_and(|r| r.contains("no interface"))));
    for (a, b) in [("vm9", "vm9p"), ("sw9", "sw9p")] {
        cloud.host.veth(a, &cloud.host, b).unwrap();
    }
    wait_until("the late interfaces", 5, || of(id).is_whole()).unwrap();
    cloud.wire.remove_wire(id, true).unwrap();
    assert_eq!(cloud.wire.status().unwrap().len(), 1);
    assert!(cloud.answers(VM4), "the other wire goes on");
    // The queues are free for another wire at once, apart from the kernel's cleanup.
    let id = cloud.wire.add_wire(WireConfig::new("sw9", "vm9", VM)).unwrap();
    wait_until("the same interfaces again", 5, || of(id).is_whole()).unwrap();
    cloud.check_frames();
}

#[test]
fn invalid_wires_are_refused() {
    if !usable() {
        return;
    }
    let cloud = Cloud::new(FailPolicy::Pass);
    for (vm_if, switch_if, vm) in [
        ("vm0", "other", VM),
        ("other", "sw0", VM),
        ("same", "same", VM),
        ("vm9", "sw9", VmRef { tenant: 1, vm: 0 }),
        ("vm9", "sw9", VmRef { tenant: 0, vm: 1 }),
    ] {
        let refused = cloud.wire.add_wire(WireConfig::new(vm_if, switch_if, vm));
        assert!(matches!(refused, Err(Error::Wire { .. })), "{vm_if} {switch_if} {vm:?}");
    }
}

#[test]
fn umem_frames_are_never_promised_twice() {
    if !usable() {
        return;
    }
    let mut config = common::loop_config(FailPolicy::Pass);
    config.memory.frames = u32::try_from(config.frames_needed(3)).unwrap();
    let cloud = Cloud::with(config, WireConfig::new("vm0", "sw0", VM), Switch::bridge);
    for (a, b) in [("vm9", "vm9p"), ("sw9", "sw9p")] {
        cloud.host.veth(a, &cloud.host, b).unwrap();
    }
    let id = cloud.wire.add_wire(WireConfig::new("vm9", "sw9", VM)).unwrap();
    let status = cloud.wire.status().unwrap().into_iter().find(|w| w.id == id).unwrap();
    assert!(status.sides[0].attached.is_some(), "the UMEM is large enough for three sockets");
    let notice = status.sides[1].notice.clone().unwrap();
    assert!(notice.contains("the UMEM has"), "{notice}");
    let config = common::loop_config(FailPolicy::Pass).for_wires(100);
    let largest = config.mediator.tenants.iter().map(|t| 2 * t.max_held as u64).max().unwrap();
    let spare = p4shield_attach_wire::SPARE as u32;
    let need = config.frames_needed(2 * (100 + spare)) + u64::from(spare) * largest;
    assert_eq!(u64::from(config.memory.frames), need, "with room for more wires and tenants");
}
