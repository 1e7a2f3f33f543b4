//! The kernel's bridge as the NIC switch. The tests' machine may have none that filters VLANs, so a guest of
//! QEMU with the distribution's kernel runs this program: some tests of other modules, and those here.

use super::nic_switches::{change, configure};
use super::scene::{NIC_SWITCH, pings};
use p4shield_probe::{Area, Host, State, probe};

use super::{buffers, in_guest, two_tenants};

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

    /// Returns the default, which depends on tcx: Debian 12 has Linux 6.1.
    fn default() -> &'static str {
        let system = rustix::system::uname();
        let mut version = system.release().to_str().unwrap().split(['.', '-']).map(|n| n.parse::<u32>());
        let mut next = || version.next().unwrap().unwrap();
        if (next(), next()) < (6, 6) { "xdp" } else { "tc" }
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
            change(&scene, Some(kind));
            assert_eq!(bridges(), usize::from(kind == "bridge"), "{kind}");
        }
        let before = scene.port("alice-web")["received_packets"].as_u64().unwrap();
        assert_eq!(pings(&web.ns, scene.vms[1].address), 10);
        assert!(scene.port("alice-web")["received_packets"].as_u64().unwrap() >= before + 10);
        if default() == "xdp" {
            configure(&scene, Some("tc"));
            let refused = scene.command("apply").output().unwrap();
            let text = String::from_utf8_lossy(&refused.stderr);
            assert!(!refused.status.success() && text.contains("write nic_switch = \"xdp\""), "{text}");
        }
        configure(&scene, None);
        assert_eq!(scene.topology("plan")["nic_switch"], default(), "without the key");
        let found = probe(Area::Tcx, &Host::this());
        assert_eq!(found.state == State::Limited, default() == "xdp", "host check: {found:?}");
        scene.topology("delete");
        assert_eq!((bridges(), scene.leftovers()), (0, vec![]));
    }
}
