//! The kernel's bridge as the NIC switch. The tests' machine may have none that filters VLANs, so a guest of
//! QEMU with the distribution's kernel runs this program: some tests of other modules, and those here.

use super::levels::{AWAY, PAUSE, Stream};
use super::scene::{NIC_SWITCH, Scene, pings};
use super::{buffers, in_guest, two_tenants};
use std::fs;

/// Modules of the guest's kernel.
const MODULES: [&str; 6] = ["bridge", "veth", "tun", "nf_tables", "nft_limit", "nft_objref"];
/// Tests that run in the guest.
const TESTS: [&str; 3] = [
    buffers::RAISED,
    "pings_go_where_the_policy_says",
    "bridge::inside::a_change_of_the_back_end_keeps_networks",
];

#[test]
fn the_kernels_bridge_serves_a_topology() {
    let Some(setup) = in_guest::setup(&["nft"]) else { return };
    in_guest::run(setup.modules(&MODULES), &format!("{NIC_SWITCH}=bridge"), &TESTS);
}

mod inside {
    use super::*;

    /// Writes the configuration with this NIC switch.
    fn configure(scene: &Scene, kind: &str) {
        let text = fs::read_to_string(scene.config()).unwrap();
        let line = text.lines().find(|line| line.starts_with("nic_switch")).unwrap();
        fs::write(scene.config(), text.replacen(line, &format!("nic_switch = \"{kind}\""), 1)).unwrap();
    }

    #[test]
    #[ignore = "runs in a guest"]
    fn a_change_of_the_back_end_keeps_networks() {
        let Some(scene) = two_tenants() else { return };
        let web = &scene.vms[0];
        let bridges = || {
            let links = scene.host.ip("-br link show type bridge").unwrap();
            links.lines().count()
        };
        scene.topology("apply");
        assert_eq!(pings(&scene.outside, web.address), 10);
        for kind in ["xdp", "bridge"] {
            let stream = Stream::start(&scene.outside, web.address);
            configure(&scene, kind);
            let applied = scene.topology("apply");
            let gap = stream.longest_gap();
            println!("to {kind}: {} ms away", gap * PAUSE);
            assert!(gap < AWAY, "to {kind}: {gap} pings in a row were lost");
            assert_eq!(pings(&scene.outside, web.address), 10, "{kind}: {applied}");
            assert_eq!(bridges(), usize::from(kind == "bridge"), "{kind}");
            let again = scene.topology("apply");
            assert!(again.as_object().unwrap().values().all(|v| v.as_array().unwrap().is_empty()), "{again}");
        }
        let before = scene.port("alice-web")["received_packets"].as_u64().unwrap();
        assert_eq!(pings(&web.ns, scene.vms[1].address), 10);
        assert!(scene.port("alice-web")["received_packets"].as_u64().unwrap() >= before + 10);
        scene.topology("delete");
        assert_eq!((bridges(), scene.leftovers()), (0, vec![]));
    }
}
