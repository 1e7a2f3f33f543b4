//! Definitions of user VMs, which QEMU and libvirt's schema accept.

use p4shield_qemu::{PROGRAM, Port, UserVm, UserVmError};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// A user VM with three pages in a folder whose name has what options and XML have to escape.
fn vm(folder: &Path, port: Option<Port>) -> UserVm {
    let folder = folder.join("a,b&c<d>");
    std::fs::create_dir_all(&folder).unwrap();
    let pages = [("info", 4096), ("log", 1 << 20), ("handshake", 1 << 16)];
    let pages = pages.map(|(name, size)| (folder.join(name), size)).into();
    let mac = Some("52:54:00:aa:00:01".to_owned());
    UserVm { name: "alice-web".to_owned(), memory: 64 << 20, pages, port, mac }
}

fn ports(folder: &Path) -> [Option<Port>; 4] {
    let path = folder.join("a,b").join("vm.sock");
    let tap = Port::Tap("tap-web".to_owned());
    [Some(Port::VhostServer(path.clone())), Some(Port::VhostClient(path)), Some(tap), None]
}

/// Starts QEMU by emulation with these options, and asks it to end at once. Returns what it said.
fn qemu(options: &[[String; 2]]) -> Option<Output> {
    let mut command = Command::new(PROGRAM);
    command.args(["-accel", "tcg", "-machine", "q35", "-nodefaults", "-display", "none", "-S"]);
    command.args(["-qmp", "stdio"]).args(options.iter().flatten());
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let Ok(mut child) = piped else {
        p4shield_need::skip("qemu", "QEMU (package qemu-system-x86) is missing");
        return None;
    };
    let commands = "{\"execute\":\"qmp_capabilities\"}{\"execute\":\"query-pci\"}{\"execute\":\"quit\"}";
    // A QEMU that refuses its options has closed the pipe.
    drop(child.stdin.take().unwrap().write_all(commands.as_bytes()));
    Some(child.wait_with_output().unwrap())
}

#[test]
fn qemu_starts_with_the_pages_and_creates_their_files() {
    let folder = tempfile::tempdir().unwrap();
    let vm = vm(folder.path(), None);
    let options = vm.qemu().unwrap();
    let Some(output) = qemu(&options) else { return };
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(said.matches("\"device\": 4368").count(), 3, "1af4:1110, a device for each page: {said}");
    for (path, size) in &vm.pages {
        assert_eq!(path.metadata().unwrap().len(), *size, "{}", path.display());
    }
    let mut wrong = options;
    wrong.iter_mut().for_each(|[_, value]| *value = value.replace("ivshmem-plain", "ivshmem-none"));
    assert!(!qemu(&wrong).unwrap().status.success(), "the test can fail");
}

/// QEMU connects to a switch, or waits for one, only after it has read all options of the port.
#[test]
fn qemu_reads_the_options_of_a_vhost_user_port() {
    let folder = tempfile::tempdir().unwrap();
    let [_, client, ..] = ports(folder.path());
    let Some(output) = qemu(&vm(folder.path(), client).qemu().unwrap()) else { return };
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("vm.sock"), "no switch listens: {error}");
    assert!(error.contains("Failed to connect"), "and nothing else is wrong: {error}");
}

#[test]
fn each_port_has_its_options() {
    let folder = Path::new("/run");
    let options = |port| {
        let vm = UserVm { pages: Vec::new(), ..vm(&std::env::temp_dir(), port) };
        vm.qemu().unwrap().iter().map(|option| option.join(" ")).collect::<Vec<_>>().join("\n")
    };
    let [server, client, tap, none] = ports(folder).map(options);
    let expected = "-m 64M\n-object memory-backend-memfd,id=p4shield-memory,size=64M,share=on\n\
                    -machine memory-backend=p4shield-memory\n\
                    -chardev socket,id=p4shield-port,path=/run/a,,b/vm.sock,server=on\n\
                    -netdev vhost-user,id=p4shield-port,chardev=p4shield-port\n\
                    -device virtio-net-pci,netdev=p4shield-port,mac=52:54:00:aa:00:01";
    assert_eq!(server, expected);
    assert_eq!(client, expected.replace(",server=on", ""));
    assert!(tap.contains("tap,id=p4shield-port,ifname=tap-web,script=no,downscript=no"), "{tap}");
    assert_eq!(none, "");
}

/// Returns whether libvirt's schema accepts a domain, and what its validator says.
fn validate(folder: &Path, xml: &str) -> Option<(bool, String)> {
    let file = folder.join("domain.xml");
    std::fs::write(&file, xml).unwrap();
    if let Err(e) = Command::new("xmllint").arg("--version").output() {
        p4shield_need::skip("libvirt", format!("xmllint (package libxml2-utils): {e}"));
        return None;
    }
    let Ok(output) = Command::new("virt-xml-validate").arg(&file).arg("domain").output() else {
        p4shield_need::skip("libvirt", "virt-xml-validate (package libvirt-clients) is missing");
        return None;
    };
    let said = [output.stdout, output.stderr].concat();
    Some((output.status.success(), String::from_utf8_lossy(&said).into_owned()))
}

#[test]
fn libvirts_schema_accepts_every_domain() {
    let folder = tempfile::tempdir().unwrap();
    for port in ports(folder.path()) {
        let xml = vm(folder.path(), port).libvirt().unwrap();
        let Some((accepted, said)) = validate(folder.path(), &xml) else { return };
        assert!(accepted, "{said}\n{xml}");
        let wrong = xml.replace("<memory unit='MiB'>", "<memory unit='apples'>");
        assert!(!validate(folder.path(), &wrong).unwrap().0, "the test can fail");
    }
}

#[test]
fn a_domain_has_the_pages_and_shares_its_memory() {
    let folder = tempfile::tempdir().unwrap();
    let [server, _, tap, _] = ports(folder.path()).map(|p| vm(folder.path(), p).libvirt().unwrap());
    for xml in [&server, &tap] {
        assert_eq!(xml.matches("ivshmem-plain,memdev=p4shield-page").count(), 3, "{xml}");
        assert!(xml.contains("a,,b&amp;c&lt;d&gt;/info,share=on"), "{xml}");
    }
    assert!(server.contains("<access mode='shared'/>") && server.contains("mode='server'"), "{server}");
    assert!(!tap.contains("memoryBacking") && tap.contains("<target dev='tap-web' managed='no'/>"), "{tap}");
}

#[test]
fn what_a_command_line_would_cut_is_refused() {
    let good = vm(&std::env::temp_dir(), None);
    let refused = |vm: UserVm| {
        assert_eq!(vm.qemu().unwrap_err(), vm.libvirt().unwrap_err());
        vm.qemu().unwrap_err()
    };
    for path in ["/run/a b", "/run/a'b", "/run/a\nb", "/run/$b"] {
        let vm = UserVm { pages: vec![(path.into(), 4096)], ..good.clone() };
        assert_eq!(refused(vm), UserVmError::Text(path.to_owned()));
    }
    let tap = Some(Port::Tap("tap 0".to_owned()));
    assert_eq!(refused(UserVm { port: tap, ..good.clone() }), UserVmError::Text("tap 0".to_owned()));
    for memory in [0, 1 << 19] {
        assert_eq!(refused(UserVm { memory, ..good.clone() }), UserVmError::Memory(memory));
    }
    for mac in
        ["52:54:00:aa:00", "53:54:00:aa:00:01", "00:00:00:00:00:00", "52:54:00:aa:00:1g", "+1:0:0:0:0:0"]
    {
        let refusal = refused(UserVm { mac: Some(mac.to_owned()), ..good.clone() });
        assert_eq!(refusal, UserVmError::Mac(mac.to_owned()));
    }
}
