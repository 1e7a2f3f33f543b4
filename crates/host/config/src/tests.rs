use super::*;

const EXAMPLE: &str = include_str!("../../../../examples/p4shield.toml");

const MINIMAL: &str = r#"
[[tenant]]
name = "alice"
[[tenant.vm]]
name = "web"
addresses = ["10.0.0.2"]
"#;

fn parse(text: &str) -> Result<Config, String> {
    Config::parse(Path::new("/etc/p4shield/p4shield.toml"), text).map_err(|e| e.to_string())
}

/// What the configuration says of `text`, without the file's name.
fn complaint(text: &str) -> String {
    parse(text).unwrap_err().replace("/etc/p4shield/p4shield.toml:", "")
}

#[test]
fn the_example_is_a_configuration() {
    let config = parse(EXAMPLE).unwrap();
    assert!(!config.tenants.is_empty() && !config.wires.is_empty());
    let vms = config.tenants.iter().flat_map(|t| &t.vms);
    assert!(vms.clone().any(|v| v.info_page.is_some() && !v.programs[0].is_empty()));
}

#[test]
fn the_example_names_every_key() {
    // Keys are what the refusal of an unknown key lists, so this notices a key that the example forgot.
    for table in [
        "",
        "[daemon]\n",
        "[[port]]\n",
        "[[tunnel]]\n",
        "[[tenant]]\nname=\"a\"\n",
        "[[tenant]]\nname=\"a\"\n[[tenant.vm]]\nname=\"b\"\n",
    ] {
        let error = complaint(&format!("{table}zzz = 1"));
        let keys = error.split('`').skip(3).step_by(2);
        for key in keys {
            assert!(EXAMPLE.contains(key), "examples/p4shield.toml does not mention {key}");
        }
    }
}

#[test]
fn defaults_fill_what_is_not_said() {
    let config = parse(MINIMAL).unwrap();
    let tenant = &config.tenants[0];
    assert_eq!(tenant.fail, FailPolicy::Drop);
    assert_eq!(tenant.no_program, NoProgram::Drop);
    assert_eq!(
        [NoProgram::Drop, NoProgram::Pass, NoProgram::Skip].map(NoProgram::verdict),
        [Verdict::Drop, Verdict::Pass, Verdict::Drop]
    );
    assert_eq!(tenant.geometry, Geometry::default());
    assert_eq!(config.daemon.socket, Path::new("/run/p4shield/p4shield.sock"));
    assert_eq!(config.tenants[0].vms[0].addresses, ["10.0.0.2".parse::<IpAddr>().unwrap()]);
}

#[test]
fn relative_paths_are_relative_to_the_file() {
    let text = MINIMAL.replace("name = \"web\"", "name = \"web\"\ningress = [\"a.o\", \"/b.o\"]");
    let vm = &parse(&text).unwrap().tenants[0].vms[0];
    assert_eq!(vm.programs[0], [Path::new("/etc/p4shield/a.o"), Path::new("/b.o")]);
}

#[test]
fn choices_that_do_not_exist_yet_are_told_from_mistakes() {
    let text = format!("placement = \"extern\"\nlevel = \"9\"\n{MINIMAL}");
    assert_eq!(
        complaint(&text),
        "1:13: placement: \"extern\" is planned and does not exist in this version; write placement = \"p4vm\"\n\
         2:9: level: \"9\" is not known; write level = \"baseline\""
    );
}

#[test]
fn unknown_keys_are_refused_with_their_place() {
    let error = complaint(&MINIMAL.replace("addresses", "adresses"));
    assert!(error.starts_with("6:1: unknown field `adresses`, expected one of"), "{error}");
}

#[test]
fn missing_keys_are_named() {
    let error = complaint("[[tenant]]\nfail = \"drop\"\n");
    assert!(error.starts_with("1:1: missing field `name`"), "{error}");
}

#[test]
fn all_that_is_wrong_is_told_at_once() {
    let text = r#"
[daemon]
metrics = "0.0.0.0:9464"
allow_missing = ["apparmor"]
[[tenant]]
name = "a b"
fail = "open"
deadline = "soon"
slots = 1000
max_held = 0
[[tenant.vm]]
name = "web"
addresses = ["10.0.0.2/24"]
info_page = "web.info"
[[wire]]
vm_interface = "a-name-that-is-too-long"
switch_interface = "s0"
tenant = "bob"
vm = "web"
"#;
    let expected = [
        "3:11: metrics: \"0.0.0.0:9464\" is not a loopback address with a port; write for example metrics = \"127.0.0.1:9464\"",
        "4:18: allow_missing: no measure is named \"apparmor\"; those that may be missing are user-namespace, cgroup-namespace, landlock, seccomp",
        "6:8: name: \"a b\" cannot name a tenant; write 1 to 64 letters, digits, '.', '_' or '-'",
        "7:8: fail: \"open\" is not known; write \"drop\" or \"pass\"",
        "8:12: deadline: \"soon\" is not a duration above zero and up to 10s; write for example deadline = \"2ms\"",
        "9:9: slots: 1000 is not a power of two; write slots = 1024",
        "10:12: max_held: 0 is out of range; write a number from 1 to 65536",
        "13:14: addresses: \"10.0.0.2/24\" is no IP address; write one without a prefix length",
        "14:13: VM \"web\" has a page and tenant \"a b\" no key: make one with `p4shield keygen FILE` and write key_file = FILE",
        "16:16: vm_interface: \"a-name-that-is-too-long\" cannot name an interface; write 1 to 15 visible characters",
        "18:10: tenant: no [[tenant]] is named \"bob\"; write the name of one",
    ];
    assert_eq!(complaint(text).lines().collect::<Vec<_>>(), expected);
}

#[test]
fn what_has_to_be_unique_is() {
    let twice = format!("{MINIMAL}{}", MINIMAL.replace("10.0.0.2", "::ffff:1").replace("\"web\"", "\"db\""));
    assert_eq!(complaint(&twice), "9:8: tenant \"alice\" is there already, in line 3; write another");
    let same = MINIMAL.replace("alice", "bob");
    assert_eq!(
        complaint(&format!("{MINIMAL}{same}")),
        "12:14: address 10.0.0.2 belongs to a VM already, in line 6; an address finds one VM"
    );
}

const DPDK: &str = r#"
attachment = "dpdk"
placement = "inline"
[daemon]
attach_socket = "attach.sock"
switch_uids = [996]
switch_gids = [997]
[[tenant]]
name = "alice"
[[tenant.vm]]
name = "web"
addresses = ["10.0.0.2"]
iface_id = "8d6b"
[[port]]
name = "/run/vm0.sock"
tenant = "alice"
vm = "web"
[[port]]
name = "dpdk0"
role = "uplink"
"#;

#[test]
fn ports_of_a_switch_are_known_by_name_and_by_iface_id() {
    let config = parse(DPDK).unwrap();
    assert_eq!((config.attachment, config.placement), (Attachment::Dpdk, Placement::Inline));
    assert_eq!(config.daemon.attach_socket, Path::new("/etc/p4shield/attach.sock"));
    assert_eq!(
        (config.daemon.switch_uids.as_slice(), config.daemon.switch_gids.as_slice()),
        (&[996][..], &[997][..])
    );
    assert_eq!(config.daemon.ovsdb.as_deref(), Some(Path::new("/run/openvswitch/db.sock")));
    let web = Role::Vm(VmRef { tenant: 0, vm: 0 });
    assert_eq!(config.role_of_name("/run/vm0.sock"), Some(web));
    assert_eq!(config.role_of_name("dpdk0"), Some(Role::Uplink));
    assert_eq!(config.role_of_name("dpdk1"), None);
    assert_eq!(config.role_of_iface_id("8d6b"), Some(web));
    assert_eq!(config.role_of_iface_id("web"), None);
    assert_eq!(parse(MINIMAL).unwrap().daemon.ovsdb, None, "nobody needs it");
}

#[test]
fn a_vms_port_has_two_sides_where_both_are_seen() {
    let xsk = DPDK.replace("\"dpdk\"", "\"xsk\"");
    let sides = |text: &str| {
        let config = parse(text).unwrap();
        let may = |name| config.may_be_asked_at_transmit([name].into_iter());
        (config.ports[0].sides, ["/run/vm0.sock", "dpdk0", "tap7"].map(may))
    };
    assert_eq!(sides(&xsk), (Sides::Both, [true, false, true]), "tap7 may have the VM's iface-id");
    assert_eq!(sides(&xsk.replace("iface_id = \"8d6b\"\n", "")), (Sides::Both, [true, false, false]));
    assert_eq!(sides(DPDK), (Sides::Both, [false; 3]), "transmit sides are not seen");
    let one = xsk.replace("vm = \"web\"\n", "vm = \"web\"\nsides = \"receive\"\n");
    assert_eq!(sides(&one), (Sides::Receive, [false, false, true]));

    let expected = "only a VM's port of attachment = \"xsk\" has two; leave it out";
    assert!(complaint(&one.replace("\"xsk\"", "\"dpdk\"")).ends_with(expected));
    assert!(complaint(&format!("{xsk}sides = \"both\"\n")).ends_with(expected), "an uplink has no VM");
    let two = format!("{one}[[port]]\nname = \"tap8\"\ntenant = \"alice\"\nvm = \"web\"\n");
    assert_eq!(
        complaint(&two),
        "23:8: port \"tap8\": it has other sides than \"/run/vm0.sock\", which is the same VM's; write sides for both, \
         and the same"
    );
}

#[test]
fn packet_memory_is_handed_to_the_tenant_of_a_port_that_says_so_and_to_nobody_else() {
    let xsk = DPDK.replace("\"dpdk\"", "\"xsk\"").replace("\"inline\"", "\"p4vm\"");
    let whose = |text: &str, port: &str| {
        let config = parse(text).unwrap();
        config.packet_memory_of([port].into_iter()).map(|t| t.name.clone())
    };
    let vm = "vm = \"web\"\n";
    let auto = xsk.replacen(vm, &format!("{vm}zero_copy = \"auto\"\n"), 1);
    assert_eq!(whose(&auto, "/run/vm0.sock").as_deref(), Some("alice"));
    for port in ["dpdk0", "tap7"] {
        assert_eq!(whose(&auto, port), None, "{port} is not known to be a VM's");
    }
    assert_eq!(whose(&xsk, "/run/vm0.sock"), None, "it has to be said");
    assert_eq!(whose(&auto.replace("\"auto\"", "\"off\""), "/run/vm0.sock"), None);
    let inline = auto.replace("\"p4vm\"", "\"inline\"");
    assert_eq!(whose(&inline, "/run/vm0.sock"), None, "there is no P4 VM");

    let expected = "has packet memory that is one tenant's; leave it out";
    assert!(complaint(&auto.replace("\"xsk\"", "\"dpdk\"")).ends_with(expected));
    assert!(complaint(&format!("{xsk}zero_copy = \"auto\"\n")).ends_with(expected), "an uplink has no VM");
}

#[test]
fn ports_and_wires_do_not_mix() {
    let error = complaint(&DPDK.replace("\"inline\"", "\"p4vm\"").replace("\"dpdk\"", "\"wire\""));
    assert_eq!(
        error,
        "15:8: [[port]] belongs to attachment = \"dpdk\" or \"xsk\"; write one of these, or [[wire]] tables"
    );
    let wire = "[[wire]]\nvm_interface = \"a\"\nswitch_interface = \"b\"\ntenant = \"alice\"\nvm = \"web\"\n";
    assert_eq!(
        complaint(&format!("{DPDK}{wire}")),
        "22:16: [[wire]] belongs to attachment = \"wire\"; write [[port]] tables, or no attachment"
    );
    let inline = complaint(&format!("placement = \"inline\"\n{MINIMAL}"));
    assert!(
        inline.starts_with("1:13: placement: with attachment = \"wire\" there is no switch process"),
        "{inline}"
    );
}

#[test]
fn ports_that_make_no_sense_are_refused() {
    let said = |old: &str, new: &str| complaint(&DPDK.replacen(old, new, 1));
    assert_eq!(
        said("role = \"uplink\"", "role = \"trunk\""),
        "20:8: role: \"trunk\" is not known; write \"uplink\" or \"shared\""
    );
    let whose = "whose is it? write either tenant and vm, or role = \"uplink\" or \"shared\"";
    assert_eq!(said("role = \"uplink\"", ""), format!("19:8: port \"dpdk0\": {whose}"));
    assert_eq!(said("role = \"uplink\"", "tenant = \"alice\""), format!("19:8: port \"dpdk0\": {whose}"));
    assert_eq!(
        said("role = \"uplink\"", "tenant = \"bob\"\nvm = \"web\""),
        "20:10: tenant: no [[tenant]] is named \"bob\"; write the name of one"
    );
    assert_eq!(
        said("\"dpdk0\"", "\"/run/vm0.sock\""),
        "19:8: port \"/run/vm0.sock\" is there already, in line 15; write another"
    );
    assert_eq!(
        said("\"8d6b\"", "\"8d 6b\""),
        "13:12: iface_id: \"8d 6b\" cannot be a port's; write 1 to 107 visible characters"
    );
}

#[test]
fn a_p4_vm_may_have_a_core_of_its_own() {
    let text = |keys: &str| MINIMAL.replace("name = \"alice\"", &format!("name = \"alice\"\n{keys}"));
    let tenant = &parse(&text("cpu = 3\nbusy = true")).unwrap().tenants[0];
    assert_eq!((tenant.cpu, tenant.busy), (Some(3), true));
    let tenant = &parse(MINIMAL).unwrap().tenants[0];
    assert_eq!((tenant.cpu, tenant.busy), (None, false));
    assert_eq!(
        complaint(&text("cpu = 1024")),
        "4:7: cpu: 1024 is out of range; write a number from 0 to 1023"
    );
}

#[test]
fn columns_count_characters() {
    let error = complaint("attachment = \"ä\" # ok\nplacement = 1\n");
    assert!(error.starts_with("2:13:"), "{error}");
}

#[test]
fn nothing_is_not_a_configuration() {
    assert_eq!(complaint(""), "1:1: there is no tenant: write at least one [[tenant]]");
}

#[test]
fn random_bytes_never_panic() {
    let budget: usize =
        std::env::var("P4SHIELD_FUZZ_BYTES").ok().and_then(|v| v.parse().ok()).unwrap_or(1 << 20);
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed as usize
    };
    let mut spent = 0;
    while spent < budget {
        let mut bytes = EXAMPLE.as_bytes().to_vec();
        for _ in 0..1 + next() % 8 {
            let at = next() % bytes.len().max(1);
            match next() % 3 {
                0 => bytes.insert(at, next() as u8),
                1 => drop(bytes.drain(at..(at + next() % 40).min(bytes.len()))),
                _ => bytes.truncate(bytes.len().saturating_sub(at % 16)),
            }
        }
        spent += bytes.len() + 1;
        let _ = parse(&String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn tunnels_have_defaults_and_belong_to_dpdk() {
    let with = |attachment: &str, tunnel: &str| {
        format!("attachment = \"{attachment}\"\n{MINIMAL}[[tunnel]]\n{tunnel}")
    };
    let tunnels = parse(&with(
        "dpdk",
        "type = \"geneve\"\n[[tunnel]]\ntype = \"vxlan\"\naddress = \"fd00::1\"\nport = 8472",
    ));
    let address = "fd00::1".parse().ok();
    assert_eq!(
        tunnels.unwrap().tunnels,
        [
            Tunnel { kind: TunnelKind::Geneve, address: None, port: 6081 },
            Tunnel { kind: TunnelKind::Vxlan, address, port: 8472 }
        ]
    );
    for (attachment, tunnel, part) in [
        ("wire", "type = \"geneve\"", "belongs to attachment = \"dpdk\""),
        ("dpdk", "type = \"gre\"", "\"gre\""),
        ("dpdk", "type = \"vxlan\"\naddress = \"here\"", "\"here\" is no IP address"),
        ("dpdk", "type = \"vxlan\"\nport = 0", "write a number from 1 to 65535"),
    ] {
        let error = complaint(&with(attachment, tunnel));
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn networks_tell_vms_with_one_address_apart() {
    let vms = |first: &str, second: &str| {
        let other = MINIMAL.replace("alice", "bob");
        format!("attachment = \"dpdk\"\n{MINIMAL}{first}\n{other}{second}\n")
    };
    let config = parse(&vms("vni = 5", "vni = 16777215")).unwrap();
    let networks = config.tenants.iter().map(|t| t.vms[0].vni).collect::<Vec<_>>();
    assert_eq!(networks, [Some(5), Some(16_777_215)]);
    for (first, second) in [("", ""), ("vni = 5", ""), ("", "vni = 5"), ("vni = 5", "vni = 5")] {
        let error = complaint(&vms(first, second));
        assert!(error.contains("address 10.0.0.2 belongs to a VM already"), "{error}");
        assert!(error.contains("write vni = NUMBER for each VM"), "{error}");
    }
    assert!(complaint(&vms("vni = 5", "vni = 16777216")).contains("write a number from 0 to 16777215"));
    let wire = complaint(&format!("{MINIMAL}vni = 5\n"));
    assert!(wire.contains("vni belongs to attachment = \"dpdk\""), "{wire}");
}
