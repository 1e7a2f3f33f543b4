//! `p4shield vm devices`: what the definition of a user VM needs, from configuration and database.

use std::path::Path;

use crate::common::{code, p4shield, stderr, stdout};
use p4shield_testbed::NetNs;
use p4shield_testbed::ovsdb::Database;

/// A tenant with three VMs. The first has a key of its own from a handshake, and so a third page.
const CONFIG: &str = r#"attachment = "dpdk"
[daemon]
ovsdb = "@OVSDB@"
[[tenant]]
name = "alice"
key_file = "alice.key"
[[tenant.vm]]
name = "web"
addresses = ["10.0.0.2"]
info_page = "/run/p4/web.info"
log_page = "/run/p4/web.log"
[[tenant.vm]]
name = "db"
addresses = ["10.0.0.3"]
log_page = "/run/p4/db.log"
iface_id = "8d6b-db"
[[tenant.vm]]
name = "mail"
addresses = ["10.0.0.4"]
iface_id = "8d6b-mail"
[[port]]
name = "/run/vm/web.sock"
tenant = "alice"
vm = "web"
"#;

pub(super) struct Cloud(tempfile::TempDir);

impl Cloud {
    pub(super) fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("p4shield.toml"), text).unwrap();
        Self(folder)
    }

    /// Runs the command for a VM. Returns exit code and output, or exit code and error.
    pub(super) fn devices(&self, vm: &str, arguments: &[&str]) -> (i32, String) {
        let config = self.0.path().join("p4shield.toml").display().to_string();
        let ran = p4shield(&[&["vm", "devices", vm, "--config", &config], arguments].concat());
        let said = if code(&ran) == 0 { stdout(&ran) } else { stderr(&ran) };
        (code(&ran), said)
    }
}

#[test]
fn a_definition_has_the_pages_and_the_port_of_its_vm() {
    let cloud = Cloud::new(&CONFIG.replace("@OVSDB@", "/nonexistent"));
    let (code, options) = cloud.devices("alice/web", &["--qemu", "--memory", "2GiB"]);
    assert_eq!(code, 0, "{options}");
    for line in [
        "-object memory-backend-memfd,id=p4shield-memory,size=2048M,share=on",
        "-chardev socket,id=p4shield-port,path=/run/vm/web.sock,server=on",
        "-object memory-backend-file,id=p4shield-page0,size=8192,mem-path=/run/p4/web.info,share=on",
        "-device ivshmem-plain,memdev=p4shield-page1",
    ] {
        assert!(options.lines().any(|other| other == line), "{line}:\n{options}");
    }
    let (code, domain) = cloud.devices("alice/web", &["--libvirt", "--mac", "52:54:00:00:00:07"]);
    assert_eq!(code, 0, "{domain}");
    for part in ["<name>alice-web</name>", "/run/vm/web.sock' mode='server'", "52:54:00:00:00:07", "web.log"]
    {
        assert!(domain.contains(part), "{part}:\n{domain}");
    }
    let (_, connects) = cloud.devices("alice/web", &["--qemu", "--socket", "/run/s", "--switch-listens"]);
    assert!(connects.contains("path=/run/s\n"), "{connects}");
}

#[test]
fn the_tap_of_a_wire_is_the_interface_of_its_vm() {
    let wire = "[[wire]]\nvm_interface = \"tap-web\"\nswitch_interface = \"sw0\"\ntenant = \"alice\"\n\
                vm = \"web\"\n";
    let text = CONFIG.split("[[port]]").next().unwrap().replace("attachment = \"dpdk\"", "");
    let text = text.lines().filter(|l| !l.starts_with("iface_id") && !l.starts_with("ovsdb"));
    let text = text.collect::<Vec<_>>().join("\n") + "\n" + wire;
    let cloud = Cloud::new(&text);
    let (code, options) = cloud.devices("alice/web", &["--qemu"]);
    assert!(code == 0 && options.contains("ifname=tap-web,"), "{options}");
    let (code, none) = cloud.devices("alice/mail", &["--qemu"]);
    assert_eq!((code, &*none), (0, ""), "neither page nor wire");
}

#[test]
fn a_vm_without_a_definition_is_refused_with_a_remedy() {
    let cloud = Cloud::new(&CONFIG.replace("@OVSDB@", "/nonexistent/db.sock"));
    let expected: [(&str, &[&str], i32, &str); 7] = [
        ("alice", &["--qemu"], 3, "write TENANT/VM"),
        ("bob/web", &["--qemu"], 3, "there are alice/web, alice/db, alice/mail"),
        ("alice/db", &["--qemu"], 1, "or give it with --socket"),
        ("alice/web", &["--qemu", "--memory", "1000"], 3, "--memory 1GiB"),
        ("alice/web", &["--libvirt", "--mac", "web"], 3, "--mac 52:54:00:12:34:56"),
        ("alice/web", &["--qemu", "--socket", "/run/a b"], 3, "white space"),
        ("alice/web", &[], 2, "--libvirt"),
    ];
    for (vm, arguments, expected, text) in expected {
        let (code, said) = cloud.devices(vm, arguments);
        assert!(code == expected && said.contains(text), "{vm} {arguments:?}: {code}: {said}");
    }
    let unknown = Cloud::new(&CONFIG.replace("iface_id", "#").replace("ovsdb", "#"));
    let (code, said) = unknown.devices("alice/db", &["--qemu"]);
    assert!(code == 3 && said.contains("no [[port]] names it") && said.contains("--socket"), "{said}");
}

#[test]
fn open_vswitchs_database_names_the_socket() {
    if let Err(why) = p4shield_testbed::usable() {
        p4shield_need::skip("openvswitch", why);
        return;
    }
    let ns = NetNs::create("devices").unwrap();
    let database = Database::start(&ns).unwrap();
    let vsctl = |words: &str| {
        let words = [&["--no-wait"], &*words.split(' ').collect::<Vec<_>>()].concat();
        database.vsctl(&words).unwrap();
    };
    vsctl("add-br br0");
    vsctl("add-port br0 vhu-db -- set Interface vhu-db type=dpdkvhostuserclient");
    vsctl("set Interface vhu-db options:vhost-server-path=/run/vm/db.sock external_ids:iface-id=8d6b-db");
    vsctl("add-port br0 mail0 -- set Interface mail0 external_ids:iface-id=8d6b-mail");
    let socket = database.socket();
    let cloud = Cloud::new(&CONFIG.replace("@OVSDB@", &Path::new(&socket).display().to_string()));
    let (code, options) = cloud.devices("alice/db", &["--qemu"]);
    assert!(code == 0 && options.contains("path=/run/vm/db.sock,server=on"), "{options}");
    let (code, said) = cloud.devices("alice/mail", &["--qemu"]);
    assert!(code == 3 && said.contains("mail0 of Open vSwitch has no vhost-user socket"), "{said}");
    vsctl("del-port mail0");
    let (code, said) = cloud.devices("alice/mail", &["--qemu"]);
    assert!(code == 3 && said.contains("Open vSwitch has no interface of VM mail"), "{said}");
}
