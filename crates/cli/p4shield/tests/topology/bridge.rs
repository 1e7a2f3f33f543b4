//! The kernel's bridge as the NIC switch. The tests' machine may have none that filters VLANs, so a guest of
//! QEMU with the distribution's kernel runs this program: some tests of other modules, and those here.

use super::levels::{AWAY, PAUSE, Stream};
use super::scene::{NIC_SWITCH, Scene, pings};
use super::two_tenants;
use p4shield_testbed::Guest;
use std::fs;
use std::path::{Path, PathBuf};

/// Modules of the guest's kernel.
const MODULES: [&str; 6] = ["bridge", "veth", "tun", "nf_tables", "nft_limit", "nft_objref"];
/// The programs of a topology and of its tests.
const PROGRAMS: [&str; 10] = [
    "ovsdb-server",
    "ovsdb-tool",
    "ovs-vswitchd",
    "ovs-vsctl",
    "ovs-ofctl",
    "ovs-appctl",
    "nft",
    "ip",
    "ethtool",
    "ping",
];
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
/// Tests that run in the guest.
const TESTS: [&str; 2] =
    ["pings_go_where_the_policy_says", "bridge::inside::a_change_of_the_back_end_keeps_networks"];

fn program(name: &str) -> Option<PathBuf> {
    let folders = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(PathBuf::from);
    folders.map(|folder| folder.join(name)).into_iter().find(|path| path.exists())
}

#[test]
fn the_kernels_bridge_serves_a_topology() {
    if let Err(why) = Guest::usable() {
        return p4shield_need::skip("qemu", why);
    }
    let (this, product) = (std::env::current_exe().unwrap(), PathBuf::from(env!("CARGO_BIN_EXE_p4shield")));
    let mut setup = Guest::setup().modules(&MODULES).program(&this).program(&product);
    for name in PROGRAMS.into_iter().chain(["ps"]) {
        let Some(path) = program(name) else {
            return p4shield_need::skip("programs", format!("there is no program {name}"));
        };
        setup = setup.program(&path);
    }
    let mut guest = setup.file(SCHEMA, &fs::read(SCHEMA).unwrap()).start().unwrap();
    guest.wait_booted().unwrap();
    let folder = product.parent().map(Path::display).unwrap();
    let prepare = format!(
        "mkdir -p /tmp /run /etc /usr /var {folder} && chmod 1777 /tmp && ln -s /bin /usr/sbin; ln -s /bin \
         /usr/bin; ln -s /bin/p4shield {folder}; mount -t bpf bpf /sys/fs/bpf; mount -t tmpfs run /run; \
         chmod 666 /dev/net/tun"
    );
    let prepared = guest.run(&prepare, 60).unwrap();
    assert_eq!(prepared.code, 0, "{}", prepared.output);
    let name = this.file_name().unwrap().to_str().unwrap();
    let tests = TESTS.join(" ");
    let line = format!(
        "{NIC_SWITCH}=bridge {name} --include-ignored --exact --test-threads=1 --nocapture {tests} 2>&1"
    );
    let result = guest.run(&line, 900).unwrap();
    println!("{}", result.output);
    assert_eq!(result.code, 0, "{}\n{}", result.output, guest.log());
    for test in TESTS {
        assert!(result.output.contains(&format!("test {test} ")), "{test} did not run: {}", result.output);
    }
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
