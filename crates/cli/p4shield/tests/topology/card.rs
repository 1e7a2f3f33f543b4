//! A network card with virtual functions (SR-IOV) as the NIC switch. A guest of QEMU with two emulated cards
//! at one wire (82576, `igb`) runs the test of `inside`: the first is the uplink, the second the outside.

use super::in_guest;
use super::scene::pings;
use p4shield_testbed::{Guest, NetNs, wait_until};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const TEST: &str = "card::inside::virtual_functions_go_where_the_policy_says";

/// Returns QEMU's options for two cards at one wire.
fn cards() -> Vec<String> {
    let mut options = vec!["-machine".to_owned(), "q35".to_owned()];
    for card in 0..2 {
        let port = format!("pcie-root-port,id=rp{card},slot={card},chassis={card}");
        let nic = format!("igb,bus=rp{card},netdev=n{card},mac=52:54:00:00:00:0{card}");
        let netdev = format!("hubport,hubid=0,id=n{card}");
        options.extend(["-netdev", &netdev, "-device", &port, "-device", &nic].map(str::to_owned));
    }
    options
}

#[test]
fn a_network_card_serves_a_topology() {
    let Some(setup) = in_guest::setup(&[]) else { return };
    // A QEMU without the device says so on the other output, and succeeds.
    let help = Command::new("qemu-system-x86_64").args(["-device", "igb,help"]).output().unwrap();
    if !String::from_utf8_lossy(&help.stdout).contains("igb options") {
        return p4shield_need::skip("qemu-igb", "this QEMU has no igb (QEMU 8.0 has; Debian 12 has 7.2)");
    }
    if let Err(why) = Guest::usable_with_drivers() {
        return p4shield_need::skip("qemu", why);
    }
    let setup = setup.drivers(&["igb", "igbvf", "8021q", "veth", "tun"]).options(cards());
    in_guest::run(setup, "", &[TEST]);
}

mod inside {
    use super::*;

    const CARD: &str = "eth0";
    const ROUTER: &str = "02:00:00:00:ee:01";
    /// Tenant, VM, last byte of its Ethernet address, address.
    const VMS: [(&str, &str, u8, &str); 3] =
        [("alice", "web", 1, "10.0.1.2"), ("alice", "db", 2, "10.0.1.3"), ("bob", "web", 3, "10.0.2.2")];

    fn run(program: &str, words: &str) -> String {
        let output = Command::new(program).args(words.split_whitespace()).output().unwrap();
        assert!(output.status.success(), "{program} {words}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The outside's router, in the VLAN of switches.
    fn outside() -> NetNs {
        let ns = NetNs::create("card-out").unwrap();
        run("ip", &format!("link set eth1 netns {}", ns.name()));
        ns.disable_ipv6().unwrap();
        for words in [
            "link set eth1 up promisc on",
            "link add link eth1 name out type vlan id 9",
            &format!("link set out address {ROUTER} up"),
            "addr add 10.0.0.1/8 dev out",
        ] {
            ns.ip(words).unwrap();
        }
        ns
    }

    struct Host {
        folder: PathBuf,
    }

    impl Host {
        fn configure(&self, level: &str) {
            let folder = self.folder.display();
            let mut text = format!(
                "level = \"{level}\"\n[topology]\nnic_switch = \"sriov\"\noutside_vlan = 9\n\
                 uplink = \"{CARD}\"\ngateway_mac = \"{ROUTER}\"\n\
                 run = \"{folder}/run\"\nstate = \"{folder}/state\"\n"
            );
            let mut before = "";
            for (tenant, vm, mac, address) in VMS {
                if before != tenant {
                    text += &format!("[[tenant]]\nname = \"{tenant}\"\n");
                    before = tenant;
                }
                text += &format!(
                    "[[tenant.vm]]\nname = \"{vm}\"\ninterface = \"{tenant}-{vm}\"\nmac = \
                     \"02:00:00:00:00:0{mac}\"\naddresses = [\"{address}\"]\n"
                );
            }
            fs::write(self.folder.join("config"), text).unwrap();
        }

        fn topology(&self, action: &str) -> Value {
            let config = self.folder.join("config");
            let words = format!("topology {action} --json --config {}", config.display());
            serde_json::from_str(&run(env!("CARGO_BIN_EXE_p4shield"), &words)).unwrap()
        }

        /// Gives each VM its virtual function, as a program that manages VMs does.
        fn vms(&self) -> Vec<NetNs> {
            let status = self.topology("status");
            let ports = status["ports"].as_array().unwrap();
            let vm = |(tenant, vm, _, address): (&str, &str, u8, &str)| {
                let port = ports.iter().find(|p| p["interface"] == format!("{tenant}-{vm}")).unwrap();
                let device = port["function"]["device"].as_str().unwrap();
                let interface = restart(device);
                let ns = NetNs::create(&format!("card-{tenant}-{vm}")).unwrap();
                run("ip", &format!("link set {interface} netns {}", ns.name()));
                ns.disable_ipv6().unwrap();
                for words in
                    [format!("addr add {address}/8 dev {interface}"), format!("link set {interface} up")]
                {
                    ns.ip(&words).unwrap();
                }
                ns
            };
            VMS.map(vm).into()
        }
    }

    /// Starts the driver of a virtual function. Returns its interface.
    fn restart(device: &str) -> String {
        let folder = Path::new("/sys/bus/pci/devices").join(device);
        fs::write(folder.join("driver/unbind"), device).unwrap();
        fs::write("/sys/bus/pci/drivers_probe", device).unwrap();
        let mut name = None;
        wait_until("an interface", 30, || {
            name = fs::read_dir(folder.join("net")).ok().and_then(|mut found| found.next()?.ok());
            name.is_some()
        })
        .unwrap();
        name.unwrap().file_name().into_string().unwrap()
    }

    fn count() -> String {
        let file = format!("/sys/class/net/{CARD}/device/sriov_numvfs");
        fs::read_to_string(file).unwrap().trim().to_owned()
    }

    fn all_answer(from: &NetNs, to: &str) {
        wait_until(&format!("answers of {to}"), 60, || pings(from, to) == 10).unwrap();
    }

    #[test]
    #[ignore = "runs in a guest"]
    fn virtual_functions_go_where_the_policy_says() {
        let folder = tempfile::tempdir().unwrap();
        let host = Host { folder: folder.path().to_owned() };
        run("ip", &format!("link set {CARD} up"));
        wait_until("the card's link", 60, || run("ip", &format!("link show {CARD}")).contains("LOWER_UP"))
            .unwrap();
        let outside = outside();
        host.configure("2");
        let applied = host.topology("apply");
        assert_eq!(applied["started"].as_array().unwrap().len(), 2, "{applied}");
        assert_eq!(count(), "7");
        let [web, db, bob] = &host.vms()[..] else { unreachable!() };
        for (from, to) in [(web, "10.0.0.1"), (bob, "10.0.0.1"), (web, "10.0.1.3"), (&outside, "10.0.1.3")] {
            all_answer(from, to);
        }
        assert_eq!((pings(web, "10.0.2.2"), pings(bob, "10.0.1.3")), (0, 0), "another tenant");
        let again = host.topology("apply");
        assert!(again.as_object().unwrap().values().all(|v| v.as_array().unwrap().is_empty()), "{again}");
        // A switch that ends loses its functions, and its successor gets them.
        for pid in process_ids("alice") {
            run("kill", &format!("-9 {pid}"));
        }
        wait_until("its end", 10, || process_ids("alice").is_empty()).unwrap();
        assert_eq!((pings(web, "10.0.0.1"), pings(bob, "10.0.0.1")), (0, 10));
        assert_eq!(host.topology("apply")["started"], serde_json::json!(["alice"]));
        all_answer(db, "10.0.0.1");
        host.configure("1");
        host.topology("apply");
        for vm in [web, db, bob] {
            all_answer(vm, "10.0.0.1");
        }
        host.topology("delete");
        assert_eq!((count().as_str(), pings(web, "10.0.0.1")), ("0", 0));
    }

    /// Returns the processes of a compartment's first program.
    fn process_ids(name: &str) -> Vec<String> {
        let listed = run("ps", "-eo pid=,args=");
        let words = format!("tenant-switch --name {name} ");
        let of =
            |line: &str| line.contains(&words).then(|| line.split_whitespace().next().unwrap().to_owned());
        listed.lines().filter_map(of).collect()
    }
}
