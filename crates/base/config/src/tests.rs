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

/// Returns the errors in `text`, without the file's name.
fn errors(text: &str) -> String {
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
        "[machine]\n",
        "[topology]\n",
        "[[port]]\n",
        "[[tunnel]]\n",
        "[[tenant]]\nname=\"a\"\n",
        "[[tenant]]\nname=\"a\"\n[tenant.controllers]\n",
        "[[tenant]]\nname=\"a\"\n[[tenant.vm]]\nname=\"b\"\n",
    ] {
        let error = errors(&format!("{table}zzz = 1"));
        let keys = error.split('`').skip(3).step_by(2);
        for key in keys {
            assert!(EXAMPLE.contains(key), "examples/p4shield.toml does not mention {key}");
        }
    }
}

#[test]
fn a_tenant_has_the_compartment_of_the_file_or_its_own() {
    let text = format!(
        "compartment = \"vm\"\n{MINIMAL}[[tenant]]\nname = \"bob\"\ncompartment = \"process\"\n\
         [[tenant.vm]]\nname = \"db\"\naddresses = [\"10.0.0.3\"]\n"
    );
    let config = parse(&text).unwrap();
    let compartments: Vec<_> = config.tenants.iter().map(|t| t.compartment).collect();
    assert_eq!(compartments, [Compartment::Vm, Compartment::Process]);
    let machine =
        parse(&format!("[machine]\nqemu = \"bin/qemu\"\nimage = \"image\"\n{MINIMAL}")).unwrap().machine;
    assert_eq!(machine.qemu, Path::new("/etc/p4shield/bin/qemu"));
    assert_eq!(machine.image, Path::new("/etc/p4shield/image"));
    assert_eq!(config.machine.qemu, Path::new("qemu-system-x86_64"), "searched in PATH");
}

#[test]
fn virtual_machines_need_memory_and_p4_vms() {
    let text = |keys: &str, tenant: &str| {
        let tenant = MINIMAL.replacen("[[tenant.vm]]", &format!("{tenant}\n[[tenant.vm]]"), 1);
        errors(&format!("{keys}\n{tenant}"))
    };
    let error = text("", "compartment = \"vm\"\nmemory = \"64MiB\"");
    assert!(error.contains("at least 192MiB"), "{error}");
    let error = text("placement = \"inline\"\nattachment = \"dpdk\"", "compartment = \"vm\"");
    assert!(error.contains("\"vm\" needs P4 VMs"), "{error}");
    let error = text("compartment = \"jail\"", "");
    assert!(error.contains("write \"process\" or \"vm\""), "{error}");
}

#[test]
fn tees_belong_to_virtual_machines() {
    let text = |keys: &str, tenant: &str| {
        let tenant = MINIMAL.replacen("[[tenant.vm]]", &format!("{tenant}\n[[tenant.vm]]"), 1);
        format!("{keys}\n{tenant}")
    };
    let tee = |keys: &str, tenant: &str| parse(&text(keys, tenant)).unwrap().tenants[0].tee;
    assert_eq!(tee("compartment = \"vm\"\ntee = \"tdx\"", ""), Tee::Tdx);
    assert_eq!(tee("compartment = \"vm\"\ntee = \"tdx\"", "tee = \"none\""), Tee::None);
    assert_eq!(tee("compartment = \"vm\"\ntee = \"tdx\"", "compartment = \"process\""), Tee::None);
    assert_eq!(tee("", "compartment = \"vm\"\ntee = \"sev-snp\""), Tee::SevSnp);
    for (keys, tenant) in [("tee = \"sev-snp\"", ""), ("", "tee = \"sev-snp\"")] {
        let error = errors(&text(keys, tenant));
        assert!(error.contains("write compartment = \"vm\""), "{error}");
    }
    let error = errors(&text("compartment = \"vm\"\ntee = \"sgx\"", ""));
    assert!(error.contains("\"none\" or \"sev-snp\" or \"tdx\""), "{error}");
    let error = errors(&text("[machine]\nprocessor = \"host\"\nquote_service = \"4050\"", ""));
    assert!(error.contains("processor = \"EPYC-v4\"") && error.contains("vsock:2:4050"), "{error}");
}

#[test]
fn numbers_without_a_unit_are_refused_with_the_remedy() {
    let tenant = |keys: &str| MINIMAL.replacen("[[tenant.vm]]", &format!("{keys}\n[[tenant.vm]]"), 1);
    let error = errors(&tenant("deadline = 2\nstall = 1.5\nmemory = 512"));
    for part in [
        "4:12: deadline: 2 has no unit; write it in quotes, for example deadline = \"2ms\"",
        "5:9: stall: 1.5 has no unit; write it in quotes, for example stall = \"5s\"",
        "6:10: memory: 512 is not in quotes; write for example memory = \"512MiB\"",
    ] {
        assert!(error.contains(part), "{part}\n{error}");
    }
    let error = errors(&tenant("deadline = true"));
    assert!(error.contains("a number and a unit in quotes") && !error.contains("a string"), "{error}");
}

#[test]
fn missing_keys_have_defaults() {
    let config = parse(MINIMAL).unwrap();
    let tenant = &config.tenants[0];
    assert_eq!(tenant.fail, FailPolicy::Drop);
    assert_eq!(tenant.no_program, NoProgram::Pass);
    assert_eq!(
        [NoProgram::Drop, NoProgram::Pass, NoProgram::Skip].map(NoProgram::verdict),
        [Verdict::Drop, Verdict::Pass, Verdict::Drop]
    );
    assert_eq!(tenant.geometry, Geometry { slots: 4096, ..Geometry::default() });
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
fn unimplemented_values_differ_from_unknown_ones() {
    let text = format!("placement = \"extern\"\nlevel = \"9\"\n{MINIMAL}");
    assert_eq!(
        errors(&text),
        "1:13: placement: \"extern\" is not implemented in this version; write placement = \"p4vm\"\n\
         2:9: level: \"9\" is unknown; write \"baseline\" or \"1\" or \"2\" or \"3\""
    );
}

#[test]
fn unknown_keys_are_refused_with_their_position() {
    let error = errors(&MINIMAL.replace("addresses", "adresses"));
    assert!(error.starts_with("6:1: unknown field `adresses`, expected one of"), "{error}");
}

#[test]
fn missing_keys_are_named() {
    let error = errors("[[tenant]]\nfail = \"drop\"\n");
    assert!(error.starts_with("1:1: missing field `name`"), "{error}");
}

#[test]
fn all_errors_are_reported_at_once() {
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
        "3:11: metrics: \"0.0.0.0:9464\" is not a loopback address with a port; write for example metrics = \
         \"127.0.0.1:9464\"",
        "4:18: allow_missing: there is no sandbox measure \"apparmor\"; write one of user-namespace, \
         cgroup-namespace, \
         landlock, seccomp",
        "6:8: name: \"a b\" is not a valid name of a tenant; write 1 to 64 letters, digits, '.', '_' or '-'",
        "7:8: fail: \"open\" is unknown; write \"drop\" or \"pass\"",
        "8:12: deadline: \"soon\" is not a duration above 0 and up to 10s; write for example deadline = \
         \"200ms\"",
        "9:9: slots: 1000 is not a power of two; write slots = 1024",
        "10:12: max_held: 0 is out of range; write a number from 1 to 65536",
        "13:14: addresses: \"10.0.0.2/24\" is not an IP address; write one without a prefix length",
        "14:13: VM \"web\" has a page, but tenant \"a b\" has no key: make one with `p4shield keygen \
         FILE` and write \
         key_file = FILE",
        "16:16: vm_interface: \"a-name-that-is-too-long\" is not a valid name of an interface; write 1 to \
         15 visible \
         characters",
        "18:10: tenant: there is no [[tenant]] named \"bob\"; write an existing name",
    ];
    assert_eq!(errors(text).lines().collect::<Vec<_>>(), expected);
}

#[test]
fn duplicate_names_and_addresses_are_refused() {
    let twice = format!("{MINIMAL}{}", MINIMAL.replace("10.0.0.2", "::ffff:1").replace("\"web\"", "\"db\""));
    assert_eq!(errors(&twice), "9:8: tenant \"alice\" exists already, in line 3; write another");
    let same = MINIMAL.replace("alice", "bob");
    assert_eq!(
        errors(&format!("{MINIMAL}{same}")),
        "12:14: address 10.0.0.2 belongs to another VM already, in line 6; an address must identify one VM"
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
fn ports_are_found_by_name_and_by_iface_id() {
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
    assert_eq!(parse(MINIMAL).unwrap().daemon.ovsdb, None, "no VM has an iface_id");
}

#[test]
fn sides_apply_to_a_vms_port_of_a_switch() {
    let xsk = DPDK.replace("\"dpdk\"", "\"xsk\"");
    let sides = |text: &str| parse(text).unwrap().ports[0].sides;
    assert_eq!(sides(&xsk), Sides::Both);
    assert_eq!(sides(DPDK), Sides::Both, "a vhost-user port has both, too");
    let one = xsk.replace("vm = \"web\"\n", "vm = \"web\"\nsides = \"receive\"\n");
    assert_eq!(sides(&one), Sides::Receive);

    let expected = "only a VM's port of a switch has two sides; remove the key";
    assert_eq!(sides(&one.replace("\"xsk\"", "\"dpdk\"")), Sides::Receive);
    assert!(errors(&format!("{xsk}sides = \"both\"\n")).ends_with(expected), "an uplink has no VM");
    let two = format!("{one}[[port]]\nname = \"tap8\"\ntenant = \"alice\"\nvm = \"web\"\n");
    assert_eq!(
        errors(&two),
        "23:8: port \"tap8\": its sides differ from those of \"/run/vm0.sock\", which belongs to the same \
         VM; write \
         the same sides for both"
    );
}

#[test]
fn packet_memory_is_shared_only_where_configured() {
    let xsk = DPDK.replace("\"dpdk\"", "\"xsk\"").replace("\"inline\"", "\"p4vm\"");
    let owner = |text: &str, port: &str| {
        let config = parse(text).unwrap();
        config.packet_memory_of([port].into_iter()).map(|t| t.name.clone())
    };
    let vm = "vm = \"web\"\n";
    let auto = xsk.replacen(vm, &format!("{vm}zero_copy = \"auto\"\n"), 1);
    assert_eq!(owner(&auto, "/run/vm0.sock").as_deref(), Some("alice"));
    for port in ["dpdk0", "tap7"] {
        assert_eq!(owner(&auto, port), None, "{port} is not known to be a VM's");
    }
    assert_eq!(owner(&xsk, "/run/vm0.sock"), None, "the default is off");
    assert_eq!(owner(&auto.replace("\"auto\"", "\"off\""), "/run/vm0.sock"), None);
    let inline = auto.replace("\"p4vm\"", "\"inline\"");
    assert_eq!(owner(&inline, "/run/vm0.sock"), None, "there is no P4 VM");

    let expected = "has packet memory of one tenant; remove the key";
    assert!(errors(&auto.replace("\"xsk\"", "\"dpdk\"")).ends_with(expected));
    assert!(errors(&format!("{xsk}zero_copy = \"auto\"\n")).ends_with(expected), "an uplink has no VM");
}

#[test]
fn ports_and_wires_do_not_mix() {
    let error = errors(&DPDK.replace("\"inline\"", "\"p4vm\"").replace("\"dpdk\"", "\"wire\""));
    assert_eq!(
        error,
        "15:8: [[port]] needs attachment = \"dpdk\" or \"xsk\"; write one of these, or [[wire]] tables"
    );
    let wire = "[[wire]]\nvm_interface = \"a\"\nswitch_interface = \"b\"\ntenant = \"alice\"\nvm = \"web\"\n";
    assert_eq!(
        errors(&format!("{DPDK}{wire}")),
        "22:16: [[wire]] needs attachment = \"wire\"; write [[port]] tables, or remove the key attachment"
    );
    let inline = errors(&format!("placement = \"inline\"\n{MINIMAL}"));
    assert!(inline.starts_with("1:13: placement: \"inline\" needs a switch process"), "{inline}");
}

#[test]
fn invalid_ports_are_refused() {
    let refused = |old: &str, new: &str| errors(&DPDK.replacen(old, new, 1));
    assert_eq!(
        refused("role = \"uplink\"", "role = \"trunk\""),
        "20:8: role: \"trunk\" is unknown; write \"uplink\" or \"shared\""
    );
    let roleless = "has no role: write either tenant and vm, or role = \"uplink\" or \"shared\"";
    assert_eq!(refused("role = \"uplink\"", ""), format!("19:8: port \"dpdk0\" {roleless}"));
    assert_eq!(
        refused("role = \"uplink\"", "tenant = \"alice\""),
        format!("19:8: port \"dpdk0\" {roleless}")
    );
    assert_eq!(
        refused("role = \"uplink\"", "tenant = \"bob\"\nvm = \"web\""),
        "20:10: tenant: there is no [[tenant]] named \"bob\"; write an existing name"
    );
    assert_eq!(
        refused("\"dpdk0\"", "\"/run/vm0.sock\""),
        "19:8: port \"/run/vm0.sock\" exists already, in line 15; write another"
    );
    assert_eq!(
        refused("\"8d6b\"", "\"8d 6b\""),
        "13:12: iface_id: \"8d 6b\" is not a valid name; write 1 to 107 visible characters"
    );
}

#[test]
fn a_p4_vm_may_have_a_core_of_its_own() {
    let text = |keys: &str| MINIMAL.replace("name = \"alice\"", &format!("name = \"alice\"\n{keys}"));
    let tenant = &parse(&text("cpu = 3\nbusy = true")).unwrap().tenants[0];
    assert_eq!((tenant.cpu, tenant.busy), (Some(3), true));
    let tenant = &parse(MINIMAL).unwrap().tenants[0];
    assert_eq!((tenant.cpu, tenant.busy), (None, false));
    assert_eq!(errors(&text("cpu = 1024")), "4:7: cpu: 1024 is out of range; write a number from 0 to 1023");
}

#[test]
fn columns_count_characters() {
    let error = errors("attachment = \"ä\" # ok\nplacement = 1\n");
    assert!(error.starts_with("2:13:"), "{error}");
}

#[test]
fn an_empty_file_is_refused() {
    assert_eq!(errors(""), "1:1: there is no tenant: write at least one [[tenant]]");
}

#[test]
fn random_bytes_never_panic() {
    let budget = p4shield_need::extent(1 << 20, 1 << 24);
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
        ("wire", "type = \"geneve\"", "needs attachment = \"dpdk\""),
        ("dpdk", "type = \"gre\"", "\"gre\""),
        ("dpdk", "type = \"vxlan\"\naddress = \"here\"", "\"here\" is not an IP address"),
        ("dpdk", "type = \"vxlan\"\nport = 0", "write a number from 1 to 65535"),
    ] {
        let error = errors(&with(attachment, tunnel));
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn networks_distinguish_vms_with_the_same_address() {
    let vms = |first: &str, second: &str| {
        let other = MINIMAL.replace("alice", "bob");
        format!("attachment = \"dpdk\"\n{MINIMAL}{first}\n{other}{second}\n")
    };
    let config = parse(&vms("vni = 5", "vni = 16777215")).unwrap();
    let networks = config.tenants.iter().map(|t| t.vms[0].vni).collect::<Vec<_>>();
    assert_eq!(networks, [Some(5), Some(16_777_215)]);
    for (first, second) in [("", ""), ("vni = 5", ""), ("", "vni = 5"), ("vni = 5", "vni = 5")] {
        let error = errors(&vms(first, second));
        assert!(error.contains("address 10.0.0.2 belongs to another VM already"), "{error}");
        assert!(error.contains("write vni = NUMBER for each VM"), "{error}");
    }
    assert!(errors(&vms("vni = 5", "vni = 16777216")).contains("write a number from 0 to 16777215"));
    let wire = errors(&format!("{MINIMAL}vni = 5\n"));
    assert!(wire.contains("vni needs attachment = \"dpdk\""), "{wire}");
}

#[test]
fn an_address_that_no_vm_can_have_is_refused() {
    for address in ["224.0.0.1", "ff02::1", "0.0.0.0", "::", "255.255.255.255", "::ffff:224.0.0.1"] {
        let text = MINIMAL.replace("10.0.0.2", address);
        assert!(errors(&text).starts_with("6:14: addresses: "), "{}", errors(&text));
    }
}

#[test]
fn pages_and_keys_belong_to_one_vm_or_tenant() {
    let vm = |name: &str, address: &str, pages: &str| {
        format!("[[tenant.vm]]\nname = {name:?}\naddresses = [{address:?}]\n{pages}\n")
    };
    let tenant = |name: &str| format!("[[tenant]]\nname = {name:?}\nkey_file = \"shared.key\"\n");
    let one = tenant("alice") + &vm("web", "10.0.0.2", "info_page = \"a\"\nlog_page = \"./a\"");
    assert!(errors(&one).starts_with("8:12: page: ./a is in line 7 already"), "{}", errors(&one));
    let pages = tenant("alice")
        + &vm("web", "10.0.0.2", "info_page = \"a\"")
        + &vm("db", "10.0.0.3", "log_page = \"a\"");
    assert!(errors(&pages).starts_with("11:12: page: a is in line 7 already"), "{}", errors(&pages));
    let keys = tenant("alice") + &vm("web", "10.0.0.2", "") + &tenant("bob") + &vm("db", "10.0.0.3", "");
    assert!(errors(&keys).starts_with("10:12: key: shared.key is in line 3 already"), "{}", errors(&keys));
}

#[test]
fn a_vms_own_key_replaces_its_tenants() {
    let text = MINIMAL.replace("[[tenant.vm]]", "key_file = \"a.key\"\nkey_window = \"2h\"\n[[tenant.vm]]")
        + "info_page = \"i\"\n[[tenant.vm]]\nname = \"own\"\naddresses = [\"10.9.0.3\"]\n"
        + "key_file = \"own.key\"\n";
    let config = parse(&text).unwrap();
    let tenant = &config.tenants[0];
    let file = |vm: usize| tenant.key_file_of(&tenant.vms[vm]).unwrap().file_name().unwrap().to_owned();
    assert_eq!((file(0), file(1)), ("a.key".into(), "own.key".into()));
    let names: Vec<_> = tenant.key_files().map(|(_, vm)| vm).collect();
    assert_eq!(names, [None, Some("own")]);
    assert_eq!(tenant.key_window, Duration::from_secs(7200));
    // A VM with a key of its own needs none of its tenant's; two VMs with one key are refused.
    let without = text.replace("key_file = \"a.key\"\n", "").replace("info_page = \"i\"\n", "");
    assert!(parse(&without.replace("\"own.key\"\n", "\"own.key\"\nlog_page = \"l\"\n")).is_ok());
    let shared = errors(&text.replace("own.key", "a.key"));
    assert!(shared.contains("key: a.key is in line"), "{shared}");
}
