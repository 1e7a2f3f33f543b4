//! The usage that a provider bills.

use super::scene::{Scene, pings};
use super::two_tenants;
use p4shield_testbed::wait_until;
use serde_json::Value;

/// Bytes of an Ethernet header, which Linux does not count for a veth that sends to an XDP program.
const HEADER: u64 = 14;

/// Returns the packets and bytes that a VM's own interface sent and received.
fn at_the_vm(scene: &Scene, vm: usize) -> [u64; 4] {
    let text = scene.vms[vm].ns.ip("-s -j link show eth0").unwrap();
    let counters = &serde_json::from_str::<Value>(&text).unwrap()[0]["stats64"];
    let of = |side: &str, what: &str| counters[side][what].as_u64().unwrap();
    let sent = of("tx", "packets");
    let header = if scene.topology("plan")["nic_switch"] == "xdp" { HEADER } else { 0 };
    [sent, of("tx", "bytes") + sent * header, of("rx", "packets"), of("rx", "bytes")]
}

/// Returns the same of its port at the NIC switch.
fn at_the_port(scene: &Scene, interface: &str) -> [u64; 4] {
    let port = scene.port(interface);
    ["received_packets", "received_bytes", "delivered_packets", "delivered_bytes"]
        .map(|name| port[name].as_u64().unwrap())
}

#[test]
fn usage_is_the_sum_of_interface_counters() {
    let Some(scene) = two_tenants() else { return };
    scene.topology("apply");
    let ports = ["alice-web", "alice-db", "bob-web"];
    let all = || [0, 1, 2].map(|vm| (at_the_vm(&scene, vm), at_the_port(&scene, ports[vm])));
    let before = all();
    let [web, db, bob] = &scene.vms[..] else { unreachable!() };
    assert_eq!((pings(&web.ns, db.address), pings(&bob.ns, "10.0.0.1")), (10, 10));
    // Dropped by the NIC switch, and the VM's all the same.
    db.ns.ip("neigh replace 10.0.2.2 lladdr 02:00:00:00:00:03 dev eth0").unwrap();
    assert_eq!(pings(&db.ns, bob.address), 0);
    let differences = || {
        let pairs = all().into_iter().zip(&before);
        let less = |now: [u64; 4], then: [u64; 4]| std::array::from_fn(|i| now[i] - then[i]);
        pairs.map(|(now, then)| [less(now.0, then.0), less(now.1, then.1)]).collect::<Vec<[[u64; 4]; 2]>>()
    };
    wait_until("the same counts", 10, || differences().iter().all(|[vm, port]| vm == port))
        .unwrap_or_else(|e| panic!("{e}: {:?}", differences()));
    let usage = scene.topology("usage");
    let tenants = usage.as_array().unwrap();
    assert_eq!([&tenants[0]["tenant"], &tenants[1]["tenant"]], ["alice", "bob"]);
    // A VM's kernel may look for its neighbours at any time.
    wait_until("usage that is the sum", 30, || {
        let usage = scene.topology("usage");
        [&ports[..2], &ports[2..]].iter().enumerate().all(|(n, of_tenant)| {
            let sum = of_tenant.iter().map(|port| at_the_port(&scene, port)[1]).sum::<u64>();
            usage[n]["received_bytes"] == sum
        })
    })
    .unwrap();
    for tenant in tenants {
        assert!(tenant["core_seconds"].as_f64().unwrap() > 0.0, "{tenant}");
        assert!(tenant["memory_bytes"].as_u64().unwrap() > 1 << 20, "{tenant}");
    }
    assert!(tenants[0]["dropped_packets"].as_u64().unwrap() >= 10, "{usage}");
}
