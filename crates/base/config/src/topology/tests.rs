//! The topology's keys, and what they are refused for.

use super::*;
use crate::{Config, Controllers};

pub(crate) const TOPOLOGY: &str = r#"level = "2"
[topology]
uplink = "eth0"
gateway_mac = "02:00:00:00:00:fe"
[[tenant]]
name = "alice"
[[tenant.vm]]
name = "web"
addresses = ["10.0.0.2"]
interface = "tap-web"
mac = "02:00:00:00:00:01"
[[tenant]]
name = "bob"
zone = "red"
[[tenant.vm]]
name = "db"
addresses = ["10.0.0.3"]
interface = "tap-db"
mac = "02:00:00:00:00:02"
"#;

pub(crate) fn parse(text: &str) -> Result<Config, String> {
    Config::parse(Path::new("/etc/p4shield.toml"), text).map_err(|e| e.to_string())
}

/// Returns the errors in `text`, without the file's name.
pub(crate) fn errors(text: &str) -> String {
    parse(text).unwrap_err().replace("/etc/p4shield.toml:", "")
}

/// Returns the errors after one change of [`TOPOLOGY`].
fn refused(old: &str, new: &str) -> String {
    let text = TOPOLOGY.replacen(old, new, 1);
    assert_ne!(text, TOPOLOGY, "{old} is not in the text");
    errors(&text)
}

#[test]
fn a_topology_has_defaults() {
    let config = parse(TOPOLOGY).unwrap();
    assert_eq!(config.level, Level::Two);
    let expected = Topology {
        uplink: "eth0".to_owned(),
        gateway_mac: "02:00:00:00:00:fe".parse().unwrap(),
        host: 0,
        cores: Cores::Shared,
        switch: SwitchKind::Ovs,
        datapath: Datapath::Sockets,
        nic_switch: None,
        outside_vlan: 0,
        machine: None,
        first_vlan: 100,
        memory: 128 << 20,
        huge_pages: 0,
        state: "/var/lib/p4shield/topology".into(),
        run: "/run/p4shield/topology".into(),
    };
    assert_eq!(config.topology, Some(expected));
    let zones: Vec<_> = config.tenants.iter().map(|t| t.zone.as_deref()).collect();
    assert_eq!(zones, [None, Some("red")]);
    let vm = &config.tenants[0].vms[0];
    assert_eq!(vm.interface.as_deref(), Some("tap-web"));
    assert_eq!(vm.mac, Some(MacAddr6::new(2, 0, 0, 0, 0, 1)));
    assert!(vm.programs.iter().all(Vec::is_empty), "a tenant without programs is allowed");
}

#[test]
fn one_key_changes_the_level() {
    let levels = [Level::Baseline, Level::One, Level::Two, Level::Three];
    for (word, level) in ["baseline", "1", "2", "3"].into_iter().zip(levels) {
        let text = TOPOLOGY.replacen("\"2\"", &format!("{word:?}"), 1);
        assert_eq!(parse(&text).unwrap().level, level);
    }
    assert_eq!(parse(&TOPOLOGY.replacen("level = \"2\"", "", 1)).unwrap().level, Level::Baseline);
}

#[test]
fn levels_above_the_baseline_need_the_table() {
    let text =
        "level = \"1\"\n[[tenant]]\nname = \"a\"\n[[tenant.vm]]\nname = \"b\"\naddresses = [\"10.0.0.2\"]\n";
    let expected = "1:9: level: \"1\" needs the table [topology]; write it with uplink and gateway_mac";
    assert_eq!(errors(text), expected);
    let table = "[topology]\nuplink = \"eth0\"\ngateway_mac = \"02:00:00:00:00:fe\"\n";
    let without = TOPOLOGY.replace(table, "");
    assert_eq!(errors(&without), expected.replace("\"1\"", "\"2\""));
    let baseline = errors(&without.replacen("\"2\"", "\"baseline\"", 1));
    for place in ["7:13: interface: only", "8:7: mac: only", "11:8: zone: only"] {
        assert!(baseline.contains(place) && baseline.contains("or remove the key"), "{baseline}");
    }
}

#[test]
fn a_vm_needs_interface_mac_and_address() {
    let interface = refused("interface = \"tap-web\"\n", "");
    assert!(
        interface.starts_with("8:8: VM \"web\" has no interface, which [topology] needs: write"),
        "{interface}"
    );
    let mac = refused("mac = \"02:00:00:00:00:01\"\n", "");
    assert!(mac.starts_with("8:8: VM \"web\" has no mac, which [topology] needs: write"), "{mac}");
    let address = refused("addresses = [\"10.0.0.2\"]\n", "");
    assert!(address.starts_with("8:8: VM \"web\" has no address: write"), "{address}");
}

#[test]
fn nothing_belongs_to_two_parties() {
    for (old, new, expected) in [
        (
            "\"tap-db\"",
            "\"tap-web\"",
            "18:13: interface \"tap-web\" exists already, in line 10; write another",
        ),
        ("\"tap-db\"", "\"eth0\"", "18:13: interface \"eth0\" exists already, in line 3; write another"),
        ("00:02\"", "00:01\"", "19:7: mac: 02:00:00:00:00:01 exists already, in line 11; write another"),
        ("00:02\"", "00:FE\"", "19:7: mac: 02:00:00:00:00:FE exists already, in line 4; write another"),
        (
            "10.0.0.3",
            "10.0.0.2",
            "17:14: address 10.0.0.2 belongs to another VM already, in line 9; an address must identify one \
             VM",
        ),
    ] {
        assert_eq!(refused(old, new), expected);
    }
}

#[test]
fn addresses_of_one_machine_are_demanded() {
    for mac in ["ff:ff:ff:ff:ff:ff", "01:00:5e:00:00:01", "00:00:00:00:00:00"] {
        let error = refused("02:00:00:00:00:01", mac);
        assert!(error.starts_with("11:7: mac: ") && error.ends_with("write a unicast address"), "{error}");
    }
    for mac in ["02:00:00:00:00", "020000000001", "02:00:00:00:00:0g", ""] {
        let error = refused("02:00:00:00:00:01", mac);
        assert!(
            error.ends_with("is not an Ethernet address; write one such as 02:00:00:00:00:01"),
            "{error}"
        );
    }
    let own = refused("02:00:00:00:00:01", "02:50:34:00:00:01");
    assert!(own.contains("like the addresses of P4 Shield's own switches"), "{own}");
    let mapped = refused("10.0.0.2", "::ffff:10.0.0.2");
    assert!(mapped.ends_with("is an IPv4 address in the form of IPv6; write 10.0.0.2"), "{mapped}");
    let network = refused("interface = \"tap-web\"", "vni = 5\ninterface = \"tap-web\"");
    assert!(
        network.contains("10:7: vni: with [topology], addresses are unique over all tenants"),
        "{network}"
    );
}

#[test]
fn interfaces_that_switches_cannot_take_are_refused() {
    for (name, part) in [
        ("p4s1gw1", "like the names of interfaces that P4 Shield makes"),
        ("p4s65000io", "like the names of interfaces that P4 Shield makes"),
        ("-x", "is not a name that switches take"),
        ("a,b", "is not a name that switches take"),
        ("a-name-that-is-too-long", "is not a valid name of an interface"),
        ("", "is not a valid name of an interface"),
    ] {
        let error = refused("tap-web", name);
        assert!(error.starts_with("10:13: interface: ") && error.contains(part), "{error}");
        let uplink = refused("eth0", name);
        assert!(uplink.starts_with("3:10: uplink: ") && uplink.contains(part), "{uplink}");
    }
    assert!(parse(&TOPOLOGY.replace("tap-web", "p4s")).is_ok());
}

#[test]
fn each_tenant_needs_a_vlan() {
    let with = |first: u16| TOPOLOGY.replacen("uplink", &format!("first_vlan = {first}\nuplink"), 1);
    assert_eq!(parse(&with(4093)).unwrap().topology.unwrap().first_vlan, 4093);
    assert_eq!(
        errors(&with(4094)),
        "3:14: first_vlan: the VLANs from 4094 to 4094 are fewer than the 2 tenants; write first_vlan = 4093 \
         or less"
    );
    assert!(errors(&with(0)).ends_with("write a number from 1 to 4094"));
}

#[test]
fn a_host_has_a_number() {
    let with = |host: u32| TOPOLOGY.replacen("uplink", &format!("host = {host}\nuplink"), 1);
    assert_eq!(parse(&with(4094)).unwrap().topology.unwrap().host, MAX_HOST);
    assert!(errors(&with(4095)).ends_with("write a number from 0 to 4094"), "{}", errors(&with(4095)));
}

#[test]
fn names_of_compartments_are_unique() {
    let error = refused("zone = \"red\"", "zone = \"alice\"");
    assert!(
        error.starts_with("14:8: zone: \"alice\" is the name of a tenant outside the zone, in line 6"),
        "{error}"
    );
    assert!(parse(&TOPOLOGY.replace("zone = \"red\"", "zone = \"bob\"")).is_ok());
    assert!(refused("zone = \"red\"", "zone = \"a b\"").contains("is not a valid name of a zone"));
}

#[test]
fn attachments_to_other_switches_are_refused() {
    for attachment in ["dpdk", "xsk"] {
        for level in ["baseline", "1", "2"] {
            let text = format!("attachment = \"{attachment}\"\n{TOPOLOGY}");
            let error = errors(&text.replacen("\"2\"", &format!("{level:?}"), 1));
            assert!(error.starts_with("4:10: [topology] does not go with attachment"), "{error}");
            assert!(error.contains("each VM with a program gets a wire"), "{error}");
        }
    }
}

#[test]
fn vms_with_programs_have_wires_at_each_level() {
    let with = |line: &str| {
        TOPOLOGY.replacen("mac = \"02:00:00:00:00:01\"", &format!("mac = \"02:00:00:00:00:01\"\n{line}"), 1)
    };
    assert_eq!(parse(TOPOLOGY).unwrap().wires, []);
    assert!(parse(TOPOLOGY).unwrap().has_no_wire("alice", 0));
    for line in ["ingress = [\"a.o\"]", "egress = [\"a.o\"]", "info_page = \"/run/i\"\nkey_file = \"k\""] {
        for level in ["baseline", "1", "2"] {
            let config = parse(&with(line).replacen("\"2\"", &format!("{level:?}"), 1)).unwrap();
            let [wire] = &config.wires[..] else { panic!("{:?}", config.wires) };
            assert_eq!((&*wire.vm_interface, &*wire.switch_interface), ("tap-web", "p4sw1165c1b9i"));
            assert_eq!(wire.port.as_deref(), Some("p4sw1165c1b9"));
            assert_eq!((wire.vm.tenant, wire.vm.vm), (0, 0));
            assert!(!config.has_no_wire("alice", 0) && config.has_no_wire("bob", 0));
        }
    }
    for line in ["socket = \"/run/s\"", "no_program = \"drop\""] {
        let text = TOPOLOGY.replacen("name = \"alice\"", &format!("name = \"alice\"\n{line}"), 1);
        assert_eq!(parse(&text).unwrap().wires.len(), 1, "{line}");
    }
}

#[test]
fn wires_of_the_file_keep_their_vms() {
    let wire = |interface: &str| {
        format!(
            "{}[[wire]]\nvm_interface = \"{interface}\"\nswitch_interface = \"s\"\n\
             tenant = \"alice\"\nvm = \"web\"\n",
            TOPOLOGY.replacen(
                "mac = \"02:00:00:00:00:01\"",
                "mac = \"02:00:00:00:00:01\"\ningress = [\"a.o\"]",
                1
            )
        )
    };
    let config = parse(&wire("tap-inner")).unwrap();
    assert_eq!(config.wires.len(), 1, "a wire before the topology's port");
    assert_eq!(config.wires[0].port, None);
    let error = errors(&wire("tap-web"));
    assert!(error.starts_with("22:16: interface \"tap-web\" is a port of [topology], and both"), "{error}");
    let error = refused("\"tap-web\"", "\"p4sw00000000\"");
    assert!(error.contains("like the names of interfaces that P4 Shield makes"), "{error}");
}

#[test]
fn packet_rates_need_a_nic_switch() {
    let mac = "mac = \"02:00:00:00:00:01\"";
    let text = TOPOLOGY.replacen(mac, &format!("{mac}\npacket_rate = 5000"), 1);
    assert_eq!(parse(&text).unwrap().tenants[0].vms[0].packet_rate.unwrap().get(), 5000);
    let error = errors(&text.replacen("\"2\"", "\"baseline\"", 1));
    assert!(error.contains("the NIC switch limits it, and level = \"baseline\" has none"), "{error}");
}

#[test]
fn sizes_and_words_are_checked() {
    let with = |keys: &str| errors(&TOPOLOGY.replacen("uplink", &format!("{keys}\nuplink"), 1));
    assert_eq!(
        with("memory = \"16MiB\""),
        "3:10: memory: \"16MiB\" is not a size of at least 32MiB; write for example memory = \"128MiB\""
    );
    assert!(with("cores = \"two\"").ends_with("write \"shared\" or \"isolated\""));
    assert!(with("state = 1").starts_with("3:9: "));
}

const CONTROLLERS: &str = r#"
[tenant.controllers]
ovsdb = "192.0.2.1:6640"
openflow = "[2001:db8::1]:6653"
private_key = "sc-privkey.pem"
certificate = "/pki/sc-cert.pem"
ca_certificate = "/pki/cacert.pem"
"#;

/// Returns [`TOPOLOGY`] with end points for alice's controllers.
fn with_controllers() -> String {
    TOPOLOGY.replacen("name = \"alice\"\n", &format!("name = \"alice\"\n{CONTROLLERS}"), 1)
}

#[test]
fn a_tenants_switch_has_end_points_for_controllers() {
    let config = parse(&with_controllers()).unwrap();
    let expected = Controllers {
        ovsdb: Some("192.0.2.1:6640".parse().unwrap()),
        openflow: Some("[2001:db8::1]:6653".parse().unwrap()),
        private_key: "/etc/sc-privkey.pem".into(),
        certificate: "/pki/sc-cert.pem".into(),
        ca_certificate: "/pki/cacert.pem".into(),
    };
    assert_eq!(config.tenants[0].controllers, Some(expected));
    assert_eq!(config.tenants[1].controllers, None);
}

#[test]
fn end_points_that_cannot_be_opened_are_refused() {
    let text = with_controllers();
    let refused = |old: &str, new: &str| errors(&text.replacen(old, new, 1));
    let error = refused("192.0.2.1:6640", "192.0.2.1");
    assert!(error.contains("not an IP address with a port; write for example ovsdb"), "{error}");
    assert!(refused("192.0.2.1:6640", "192.0.2.1:0").contains("has no port"));
    assert!(refused("192.0.2.1:6640", "224.0.0.1:6640").contains("many machines"));
    let error = refused("[2001:db8::1]:6653", "192.0.2.1:6640");
    assert!(error.contains("192.0.2.1:6640 is in line 9 already; write another port"), "{error}");
    let error = errors(&text.replace("ovsdb = ", "#").replace("openflow = ", "#"));
    assert!(error.contains("there is no end point; write ovsdb, openflow, or both"), "{error}");
    let (top, tenants) = (text.find("[topology]").unwrap(), text.find("[[tenant]]").unwrap());
    let without = text.replacen(&text[top..tenants], "", 1).replacen("level = \"2\"", "", 1);
    let error = errors(&without);
    assert!(error.contains("only tenants' switches have end points for controllers"), "{error}");
}

#[test]
fn changes_of_end_points_name_their_tenant() {
    let text = with_controllers();
    let before = parse(&text).unwrap();
    let after = parse(&text.replacen("192.0.2.1:6640", "192.0.2.1:6641", 1)).unwrap();
    let changes: Vec<_> = before.changes(&after).iter().map(ToString::to_string).collect();
    assert_eq!(changes, ["~ tenant alice, controllers: ovsdb = \"192.0.2.1:6640\" -> \"192.0.2.1:6641\""]);
}

#[test]
fn level_3_forwards_with_dpdk_and_other_levels_may() {
    let of = |level: &str, keys: &str| {
        let text = TOPOLOGY.replacen("\"2\"", &format!("{level:?}"), 1);
        parse(&text.replacen("uplink", &format!("{keys}uplink"), 1)).map(|c| c.topology.unwrap())
    };
    let three = of("3", "").unwrap();
    assert_eq!((three.datapath, three.memory), (Datapath::Dpdk, 256 << 20));
    assert_eq!(of("2", "").unwrap().datapath, Datapath::Sockets);
    for level in ["baseline", "1", "2", "3"] {
        assert_eq!(of(level, "datapath = \"dpdk\"\n").unwrap().datapath, Datapath::Dpdk);
    }
    let error = of("3", "datapath = \"sockets\"\n").unwrap_err();
    assert!(
        error.contains("level = \"3\" means \"dpdk\"; remove the key, or write level = \"2\""),
        "{error}"
    );
    let error = of("3", "memory = \"128MiB\"\n").unwrap_err();
    assert!(error.contains("not a size of at least 192MiB"), "{error}");
}

#[test]
fn switches_in_virtual_machines_have_an_image_and_memory() {
    let of = |level: &str, keys: &str| {
        let text = TOPOLOGY.replacen("\"2\"", &format!("{level:?}"), 1);
        parse(&text.replacen("uplink", &format!("{keys}uplink"), 1)).map(|c| c.topology.unwrap())
    };
    let vm = of("2", "compartment = \"vm\"\n").unwrap();
    let machine = vm.machine.unwrap();
    assert_eq!(machine.image, Path::new("/usr/lib/p4shield/tenant-switch-image"));
    assert_eq!((machine.qemu, machine.accelerator), ("qemu-system-x86_64".into(), None));
    assert_eq!(vm.memory, 256 << 20);
    assert_eq!(of("2", "compartment = \"process\"\n").unwrap().machine, None);
    for (level, keys, refused) in [
        ("baseline", "compartment = \"vm\"\n", "the switch is on the host, in no compartment"),
        ("3", "compartment = \"vm\"\n", "the image has Open vSwitch without DPDK"),
        ("1", "compartment = \"vm\"\nmemory = \"128MiB\"\n", "not a size of at least 192MiB"),
        ("2", "image = \"x\"\n", "write compartment = \"vm\", or remove the key"),
    ] {
        let error = of(level, keys).unwrap_err();
        assert!(error.contains(refused), "{error}");
    }
    let text = with_controllers().replacen("uplink", "compartment = \"vm\"\nuplink", 1);
    let error = parse(&text).unwrap_err();
    assert!(error.contains("the host reaches no port of a switch in a virtual machine"), "{error}");
}
