//! The domain that `p4shield vm devices --libvirt` prints, started by libvirt.

use super::user_vm::Cloud;
use p4shield_testbed::process::run;
use p4shield_testbed::{Guarded, NetNs, leftover, listens, wait_until};
use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use tempfile::TempDir;

const CONFIG: &str = r#"attachment = "wire"
[[tenant]]
name = "alice"
key_file = "alice.key"
[[tenant.vm]]
name = "web"
addresses = ["10.0.0.2"]
info_page = "FOLDER/web.info"
log_page = "FOLDER/web.log"
[[wire]]
vm_interface = "tap-web"
switch_interface = "sw0"
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

#[test]
fn libvirt_starts_the_printed_domain() {
    let host = match p4shield_testbed::usable() {
        Ok(()) => NetNs::create("libvirt").unwrap(),
        Err(why) => return p4shield_need::skip("machine", why),
    };
    let Some(libvirt) = Libvirt::start(&host) else { return };
    host.ip("tuntap add tap-web mode tap").unwrap();
    host.ip("link set tap-web up").unwrap();
    let at = |name: &str| -> PathBuf { libvirt.folder.path().join(name) };
    let cloud = Cloud::new(&CONFIG.replace("FOLDER", &libvirt.folder.path().display().to_string()));
    let (code, domain) = cloud.devices("alice/web", &["--libvirt", "--memory", "64MiB"]);
    assert_eq!(code, 0, "{domain}");
    // By emulation, whatever this machine can do.
    std::fs::write(at("web.xml"), domain.replace("<domain type='kvm'", "<domain type='qemu'")).unwrap();
    libvirt.virsh(&["create", &at("web.xml").display().to_string()]);
    assert_eq!(libvirt.virsh(&["domstate", "alice-web"]).trim(), "running");
    let devices = libvirt.virsh(&["qemu-monitor-command", "--hmp", "alice-web", "info pci"]);
    assert_eq!(devices.matches("1af4:1110").count(), 2, "a device for each page: {devices}");
    assert!(host.ip("link show tap-web").unwrap().contains("LOWER_UP"), "QEMU has opened the tap");
}
