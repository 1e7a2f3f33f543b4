//! The domain that `p4shield vm devices --libvirt` prints, started by libvirt.

use super::user_vm::Cloud;
use p4shield_testbed::process::run;
use p4shield_testbed::{Guarded, NetNs, OpenVswitch, leftover, listens, wait_until};
use std::fs::File;
use std::process::{Command, Stdio};
use tempfile::TempDir;

const CONFIG: &str = r#"
[[tenant]]
name = "alice"
key_file = "alice.key"
[[tenant.vm]]
name = "web"
addresses = ["10.0.0.2"]
info_page = "FOLDER/web.info"
log_page = "FOLDER/web.log"
"#;

/// The port of the VM in front of a wire.
const WIRE: &str = r#"
[[wire]]
vm_interface = "tap-web"
switch_interface = "sw0"
tenant = "alice"
vm = "web"
"#;

/// Its port at Open vSwitch over DPDK.
const PORT: &str = r#"
[[port]]
name = "FOLDER/web.sock"
tenant = "alice"
vm = "web"
"#;

/// Starts libvirt's daemon in mounts that end with it: whatever it writes is in the folder `$0`. Its users
/// are those that the package of its service makes.
const DAEMON: &str = r#"
set -e
cd "$0"
mkdir etc run
printf '%s\n' 'user = "root"' 'group = "root"' 'security_driver = "none"' 'stdio_handler = "file"' \
  'cgroup_controllers = [ ]' 'namespaces = [ ]' >etc/qemu.conf
printf '%s\n' "unix_sock_dir = \"$0/run\"" 'auth_unix_rw = "none"' >etc/libvirtd.conf
{ cat /etc/passwd; echo 'libvirt-qemu:x:64055:64055::/:/usr/sbin/nologin'; } >passwd
{ cat /etc/group; echo 'libvirt-qemu:x:64055:'; echo 'kvm:x:64056:'; } >group
mount --make-rprivate /
mount --bind passwd /etc/passwd
mount --bind group /etc/group
mkdir -p /etc/libvirt
mount --bind etc /etc/libvirt
for place in /run/libvirt /var/lib/libvirt /var/cache/libvirt /var/log/libvirt; do
  mkdir -p $place
  mount -t tmpfs none $place
done
exec libvirtd --config "$0/etc/libvirtd.conf" --pid-file "$0/pid"
"#;

struct Libvirt {
    folder: TempDir,
    _daemon: Guarded,
}

impl Libvirt {
    /// Returns the daemon, or nothing where it does not run, which it reports.
    fn start(host: &NetNs) -> Option<Self> {
        let folder = leftover::folder("libvirt").unwrap();
        let mut command = host.command("unshare");
        command.args(["--mount", "sh", "-c", DAEMON]).arg(folder.path()).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(File::create(folder.path().join("said")).unwrap());
        let mut daemon = Guarded::spawn(&mut command).unwrap();
        let socket = folder.path().join("run/libvirt-sock");
        let answers = wait_until("libvirt", 30, || daemon.ended().is_some() || listens(&socket));
        if answers.is_err() || daemon.ended().is_some() {
            let said = std::fs::read_to_string(folder.path().join("said")).unwrap();
            p4shield_need::skip("libvirtd", format!("libvirt's daemon does not start: {said}"));
            return None;
        }
        Some(Self { folder, _daemon: daemon })
    }

    fn command(&self, words: &[&str]) -> Command {
        let socket = self.folder.path().join("run/libvirt-sock");
        let mut command = Command::new("virsh");
        command.arg("--connect").arg(format!("qemu:///system?socket={}", socket.display())).args(words);
        command
    }

    fn virsh(&self, words: &[&str]) -> String {
        run(&mut self.command(words)).unwrap()
    }
}

impl Drop for Libvirt {
    fn drop(&mut self) {
        // Domains outlive the daemon. There is none if the test ended before it started one.
        let _ = self.command(&["destroy", "alice-web"]).output();
    }
}

impl Libvirt {
    /// Starts the domain that is printed for the VM with this port, by emulation, whatever this machine can
    /// do.
    fn start_printed(&self, attachment: &str, port: &str) {
        let text = format!("attachment = \"{attachment}\"{CONFIG}{port}");
        let cloud = Cloud::new(&text.replace("FOLDER", &self.folder.path().display().to_string()));
        let (code, domain) = cloud.devices("alice/web", &["--libvirt", "--memory", "64MiB"]);
        assert_eq!(code, 0, "{domain}");
        let file = self.folder.path().join("web.xml");
        std::fs::write(&file, domain.replace("<domain type='kvm'", "<domain type='qemu'")).unwrap();
        self.virsh(&["create", &file.display().to_string()]);
        assert_eq!(self.virsh(&["domstate", "alice-web"]).trim(), "running");
        let devices = self.virsh(&["qemu-monitor-command", "--hmp", "alice-web", "info pci"]);
        assert_eq!(devices.matches("1af4:1110").count(), 2, "a device for each page: {devices}");
    }
}

/// Returns a network namespace of a host, where tests with them can run.
fn host() -> Option<NetNs> {
    p4shield_testbed::usable().map_err(|why| p4shield_need::skip("machine", why)).ok()?;
    Some(NetNs::create("libvirt").unwrap())
}

#[test]
fn libvirt_starts_the_printed_domain() {
    let Some(host) = host() else { return };
    let Some(libvirt) = Libvirt::start(&host) else { return };
    host.ip("tuntap add tap-web mode tap").unwrap();
    host.ip("link set tap-web up").unwrap();
    libvirt.start_printed("wire", WIRE);
    assert!(host.ip("link show tap-web").unwrap().contains("LOWER_UP"), "QEMU has opened the tap");
}

#[test]
fn libvirt_starts_the_printed_domain_at_open_vswitch() {
    let Some(host) = host() else { return };
    if let Err(why) = OpenVswitch::usable() {
        return p4shield_need::skip("openvswitch", why);
    }
    let Some(libvirt) = Libvirt::start(&host) else { return };
    let setup = OpenVswitch::over_dpdk().megabytes(1024).other_config("per-port-memory", "true");
    let ovs = setup.start(&host).unwrap();
    ovs.add_vhost_client("web", &libvirt.folder.path().join("web.sock")).unwrap();
    libvirt.start_printed("dpdk", PORT);
    let status = || ovs.vsctl(&["get", "Interface", "web", "status"]).unwrap();
    wait_until("the connection", 30, || status().contains("status=connected")).unwrap();
    libvirt.virsh(&["destroy", "alice-web"]);
    wait_until("the end of the connection", 30, || status().contains("status=disconnected")).unwrap();
}
