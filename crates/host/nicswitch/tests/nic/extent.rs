//! Many tenants.

use std::fmt::Write as _;
use std::net::IpAddr;

use macaddr::MacAddr6;
use p4shield_topology::{Port, Role};

use crate::bed::*;
use crate::frames::*;
use crate::raw::Raw;

const VMS: u8 = 4;
const ADDRESSES: u8 = 8;

fn station(tenant: u8, last: u8) -> MacAddr6 {
    MacAddr6::new(2, 9, 0, 0, tenant, last)
}

fn addresses(tenant: u8, vm: u8) -> Vec<IpAddr> {
    (0..ADDRESSES).map(|last| IpAddr::from([10, tenant, vm, last + 1])).collect()
}

/// Returns a tenant's VMs, gateway and compartment.
fn tenant(number: u8) -> Vec<Port> {
    let vlan = u16::from(number) + 100;
    let vm = |vm| Role::Vm { vlan, mac: station(number, vm), addresses: addresses(number, vm) };
    let all = (0..VMS).flat_map(|vm| addresses(number, vm)).collect();
    let roles = (0..VMS).map(vm).chain([
        Role::Gateway { vlan, mac: station(number, 0xf0) },
        Role::InOut { mac: station(number, 0xf1), addresses: all },
    ]);
    let port = |(at, role)| Port {
        interface: format!("t{number}p{at}"),
        tenant: Some(number.to_string()),
        role,
        packet_rate: None,
    };
    roles.enumerate().map(port).collect()
}

#[test]
fn many_tenants_have_one_switch() {
    let Some(bed) = Bed::without_switch() else { return };
    let tenants: u8 = p4shield_need::extent(6, 64);
    let mut list: Vec<Port> = (0..tenants).flat_map(tenant).collect();
    list.push(ports().pop().expect("the uplink"));
    let mut commands = String::new();
    for name in list.iter().map(|port| &port.interface).filter(|name| *name != "wan") {
        let _ =
            writeln!(commands, "link add {name} up type veth peer name {name}e netns {} ", bed.ends.name());
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, commands).unwrap();
    bed.host.ip(&format!("-batch {}", file.path().display())).unwrap();
    assert_eq!(bed.apply(&list).unwrap().added.len(), list.len());
    assert!(bed.apply(&list).unwrap().is_empty());

    // The last tenant's last VM sends from the last of its addresses.
    let (number, vm) = (tenants - 1, VMS - 1);
    let [from, to] = [usize::from(vm), usize::from(VMS)].map(|at| format!("t{number}p{at}e"));
    bed.ends.ip(&format!("link set {from} up")).unwrap();
    bed.ends.ip(&format!("link set {to} up")).unwrap();
    assert!(bed.ends.command("ethtool").args(["-K", &to, "gro", "on"]).status().unwrap().success());
    let (from, to) = (Raw::open(&bed.ends, &from), Raw::open(&bed.ends, &to));
    let own = *addresses(number, vm).last().expect("it has some");
    let frame = |source| {
        let packet = udp(source, [198, 51, 100, 1].into());
        ethernet(station(number, 0xf0), station(number, vm), IPV4, &packet)
    };
    let (foreign, good) = (frame(addresses(number, 0)[0]), frame(own));
    from.send(&foreign);
    from.send(&good);
    let mut seen = Vec::new();
    p4shield_testbed::wait_until("arrival", 10, || {
        seen.extend(std::iter::from_fn(|| to.receive()));
        seen.contains(&good)
    })
    .unwrap();
    assert_eq!(seen, [good]);
}
