//! Attacks of a switch that was taken over, each tried in a compartment, where it fails for the expected
//! reason, and by root on the host, where it succeeds: an attack that never succeeds shows nothing.

use crate::levels::with_dpdk;
use crate::scene::Scene;
use crate::{exec, two_tenants};
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// Debian's own, which compartments see.
const PYTHON: &str = "/usr/bin/python3";

const DENIED: &str = "Operation not permitted";
const FORBIDDEN: &str = "Permission denied";
const ABSENT: &str = "No such file or directory";

/// An attack: its name, a script, and the error that it meets inside.
type Attack = (&'static str, &'static str, &'static str);

/// By the tools that a compartment has.
const SHELL: &[Attack] = &[
    ("reading a file that all may read", "cat {readable}", ABSENT),
    ("reading one beside the tree", "cat {elsewhere}", ABSENT),
    ("reading the host's users", "cat /etc/passwd", ABSENT),
    ("climbing out of the root", "cat ../../../../../../etc/passwd", ABSENT),
    ("listing the root", "ls /", FORBIDDEN),
    ("listing the host's processes", "ls /proc/{victim}", ABSENT),
    ("reading a kernel setting", "cat /proc/sys/net/ipv4/ip_forward", ABSENT),
    ("changing a kernel setting", "echo 0 >/proc/sys/net/ipv4/ip_forward", "nonexistent"),
    ("writing a program", "touch /usr/p4shield-{id} && rm /usr/p4shield-{id}", "Read-only"),
    ("writing into the root", "touch /p4shield-{id} && rm /p4shield-{id}", "Read-only"),
    ("opening another device", "head -c1 /dev/full", ABSENT),
    ("seeing an interface of the host", "ip link show up0", "does not exist"),
    ("changing an interface of the host", "ip link set up0 mtu 1400", "Cannot find device"),
    ("reading another tenant's database", "ovs-vsctl --timeout=5 --db=unix:{bob} show", "connection failed"),
    ("mounting by the tool", "mount -t tmpfs none /tmp", "permission denied"),
    ("entering a user namespace by the tool", "unshare --user true", DENIED),
];

/// By system calls. `call` makes one; `SYS` has their numbers.
const PYTHONS: &[Attack] = &[
    ("signalling a process", "os.kill({victim}, 0)", "No such process"),
    ("connecting to a socket", "socket.socket(socket.AF_UNIX).connect('{socket}')", ABSENT),
    (
        "connecting to an abstract socket",
        r"socket.socket(socket.AF_UNIX).connect('\0p4shield-{id}')",
        "Connection refused",
    ),
    ("connecting by TCP", "socket.create_connection(('127.0.0.1', {port}))", FORBIDDEN),
    ("listening by TCP", "socket.create_server(('127.0.0.1', 0))", FORBIDDEN),
    ("sending by UDP", "socket.socket(type=2).sendto(b'x', ('127.0.0.1', 9))", "Network is unreachable"),
    ("taking the host's huge pages", "call(SYS.memfd_create, b'x', 4)", DENIED),
    ("mapping huge pages", "mmap.mmap(-1, 2 << 20, flags=0x44022)", DENIED),
    ("a socket to the hypervisor", "socket.socket(socket.AF_VSOCK)", DENIED),
    ("an AF_XDP socket", "socket.socket(44, socket.SOCK_RAW)", DENIED),
    ("rules of netfilter", "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)", DENIED),
    ("listing other sockets", "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4)", DENIED),
    ("mounting", "call(SYS.mount, b'none', b'/tmp', b'tmpfs', 0, 0)", DENIED),
    ("mounting by the new calls", "call(SYS.fsopen, b'tmpfs', 0)", DENIED),
    ("copying a tree of mounts", "call(SYS.open_tree, -100, b'/usr', 1)", DENIED),
    ("a user namespace", "call(SYS.unshare, NEWUSER)", DENIED),
    ("a network namespace", "call(SYS.unshare, NEWNET)", DENIED),
    ("a mount namespace", "call(SYS.unshare, NEWNS)", DENIED),
    ("cloning into a namespace", "call(SYS.clone, NEWUSER | 17, 0, 0, 0, 0) or os._exit(0)", DENIED),
    (
        "cloning by the new call",
        "call(SYS.clone3, struct.pack('8Q', NEWUSER, 0, 0, 0, 17, 0, 0, 0), 64) or os._exit(0)",
        "Function not implemented",
    ),
    ("entering a namespace", "call(SYS.setns, os.pidfd_open(os.getpid()), NEWNET)", DENIED),
    ("leaving the root", "os.chroot('/usr')", DENIED),
    ("tracing a process", "call(SYS.ptrace, 0x4206, {target}, 0, 0)", DENIED),
    ("taking a descriptor", "call(SYS.pidfd_getfd, os.pidfd_open({target}), 0, 0)", DENIED),
    ("loading BPF", "call(SYS.bpf, 0, struct.pack('4I', 2, 4, 4, 1) + bytes(112), 128)", DENIED),
    ("asynchronous calls", "call(SYS.io_uring_setup, 1, ctypes.create_string_buffer(120))", DENIED),
    ("the kernel's keys", "call(SYS.add_key, b'user', b'p4shield', b'x', 1, -2)", DENIED),
    ("a session of keys", "call(SYS.keyctl, 0, -1, 1)", DENIED),
    (
        "counting events",
        "call(SYS.perf_event_open, struct.pack('2IQ', 1, 112, 0) + bytes(96), 0, -1, -1, 0)",
        DENIED,
    ),
    ("stopping page faults", "call(SYS.userfaultfd, 0)", DENIED),
    ("the kernel's log", "call(SYS.syslog, 3, ctypes.create_string_buffer(9), 9)", DENIED),
    (
        "files by handle",
        "call(SYS.name_to_handle_at, -100, b'/dev/null', struct.pack('I', 99) + bytes(99), bytes(8), 0)",
        DENIED,
    ),
    (
        "making a device",
        "os.mknod('/tmp/p4shield-{id}', 0o20600, os.makedev(1, 1)); os.unlink('/tmp/p4shield-{id}')",
        DENIED,
    ),
    // Most kernels lack the interface, and then have no such call.
    ("calls by other numbers", X32, DENIED),
    ("becoming another user", "os.setresuid(1234, 1234, 1234)", "Errno"),
    ("joining a group", "os.setgroups([1234])", DENIED),
    ("going before others", "os.setpriority(os.PRIO_PROCESS, 0, -5)", FORBIDDEN),
    ("raising a limit", "resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192))", "not allowed"),
    (
        "filling the disk",
        "f = open('{writable}/big', 'wb'); os.unlink(f.name); f.truncate(65 << 20)",
        "File too large",
    ),
    ("a session, which has a share of the core", SESSION, DENIED),
    ("starting processes without end", FORKS, "Resource temporarily unavailable"),
];

const X32: &str = "
try:
    call(0x40000000 | SYS.getuid)
except OSError as e:
    if e.errno != errno.ENOSYS: raise
";

// A process that leads a group may begin no session anywhere.
const SESSION: &str = "
if (child := os.fork()) == 0:
    try:
        os.setsid()
    except OSError as e:
        os._exit(e.errno)
    os._exit(0)
if (error := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])) != 0:
    raise OSError(error, os.strerror(error))
";

const FORKS: &str = "
started = []
try:
    for _ in range(70):
        started.append(os.fork() or signal.pause())
finally:
    for pid in started:
        os.kill(pid, 9)
";

/// The definitions that scripts may use.
fn prelude() -> String {
    let mut text = "\
import ctypes, errno, mmap, os, resource, signal, socket, struct
NEWUSER, NEWNET, NEWNS = 0x10000000, 0x40000000, 0x20000
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    if (result := libc.syscall(number, *arguments)) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
class SYS: pass
"
    .to_owned();
    for (name, number) in [
        ("add_key", libc::SYS_add_key),
        ("bpf", libc::SYS_bpf),
        ("clone", libc::SYS_clone),
        ("clone3", libc::SYS_clone3),
        ("fsopen", libc::SYS_fsopen),
        ("getuid", libc::SYS_getuid),
        ("io_uring_setup", libc::SYS_io_uring_setup),
        ("keyctl", libc::SYS_keyctl),
        ("memfd_create", libc::SYS_memfd_create),
        ("mount", libc::SYS_mount),
        ("name_to_handle_at", libc::SYS_name_to_handle_at),
        ("open_tree", libc::SYS_open_tree),
        ("perf_event_open", libc::SYS_perf_event_open),
        ("pidfd_getfd", libc::SYS_pidfd_getfd),
        ("ptrace", libc::SYS_ptrace),
        ("setns", libc::SYS_setns),
        ("syslog", libc::SYS_syslog),
        ("unshare", libc::SYS_unshare),
        ("userfaultfd", libc::SYS_userfaultfd),
    ] {
        text += &format!("SYS.{name} = {number}\n");
    }
    text
}

/// Files, sockets and a process of the host, for attacks.
struct Prey {
    /// A process of another user.
    victim: Child,
    elsewhere: PathBuf,
    port: u16,
    id: String,
    _listeners: (TcpListener, UnixListener, UnixListener),
}

impl Prey {
    fn new(scene: &Scene) -> Self {
        let id = std::process::id().to_string();
        let elsewhere = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("readable-{id}"));
        for file in [&scene.path("readable"), &elsewhere] {
            std::fs::write(file, "of the host").unwrap();
            std::fs::set_permissions(file, PermissionsExt::from_mode(0o644)).unwrap();
        }
        // Both kinds of socket are of the scene's host, whose network namespace has the names.
        let listeners = scene.host.inside(|| {
            let name = SocketAddr::from_abstract_name(format!("p4shield-{id}")).unwrap();
            let of_file = UnixListener::bind(scene.path("socket")).unwrap();
            let of_name = UnixListener::bind_addr(&name).unwrap();
            (TcpListener::bind("127.0.0.1:0").unwrap(), of_file, of_name)
        });
        std::fs::set_permissions(scene.path("socket"), PermissionsExt::from_mode(0o666)).unwrap();
        let victim = Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap();
        let port = listeners.0.local_addr().unwrap().port();
        Self { victim, elsewhere, port, id, _listeners: listeners }
    }

    /// Completes a script for inside or outside.
    fn complete(&self, scene: &Scene, script: &str, inside: bool) -> String {
        let victim = self.victim.id().to_string();
        let path = |name: &str| scene.path(name).display().to_string();
        let (target, writable) =
            if inside { ("1".into(), "/run/openvswitch".into()) } else { (victim.clone(), path("")) };
        let values = [
            ("victim", victim),
            ("target", target),
            ("writable", writable),
            ("readable", path("readable")),
            ("elsewhere", self.elsewhere.display().to_string()),
            ("socket", path("socket")),
            ("bob", path("run/switches/bob/ovs/db.sock")),
            ("port", self.port.to_string()),
            ("id", self.id.clone()),
        ];
        values
            .into_iter()
            .fold(script.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), &value))
    }
}

impl Drop for Prey {
    fn drop(&mut self) {
        let _ = self.victim.kill();
        let _ = self.victim.wait();
        let _ = std::fs::remove_file(&self.elsewhere);
    }
}

/// Runs a script by a program inside or outside. What it mounts outside is in a namespace of its own.
fn attempt(scene: &Scene, inside: bool, words: [&str; 2], script: &str) -> Output {
    let mut command = if inside { scene.exec("alice") } else { scene.host.command("unshare") };
    if !inside {
        command.args(["--mount", "--propagation", "private"]);
    }
    command.args(words).arg(script).output().unwrap()
}

/// Returns what is wrong with an attack: it succeeds inside, fails for another reason, or fails outside.
fn problem(scene: &Scene, prey: &Prey, attack: &Attack, is_python: bool) -> Option<String> {
    let (name, script, refusal) = *attack;
    let words = if is_python { [PYTHON, "-c"] } else { ["sh", "-c"] };
    let run = |inside: bool| {
        let script = prey.complete(scene, script, inside);
        let script = if is_python { prelude() + &script } else { script };
        let output = attempt(scene, inside, words, &script);
        (output.status.success(), String::from_utf8_lossy(&output.stderr).trim().to_owned())
    };
    let ((outside, why), (inside, error)) = (run(false), run(true));
    if !outside {
        return Some(format!("{name}: fails on the host, too: {why}"));
    }
    if inside {
        return Some(format!("{name}: SUCCEEDS in the compartment"));
    }
    (!error.contains(refusal)).then(|| format!("{name}: fails for another reason: {error}"))
}

#[test]
fn every_attack_fails_in_a_compartment_and_succeeds_outside() {
    let Some(scene) = two_tenants() else { return };
    attack(&scene);
}

#[test]
fn every_attack_fails_in_a_compartment_with_dpdk() {
    let Some(scene) = with_dpdk() else { return };
    scene.configure("3", &["alice", "bob"]);
    attack(&scene);
}

/// The switch of the baseline has the host's network, and what belongs to that. The tool for mounts looks at
/// the user first.
const NOT_AT_THE_BASELINE: [&str; 6] = [
    "connecting to an abstract socket",
    "seeing an interface of the host",
    "changing an interface of the host",
    "reading another tenant's database",
    "mounting by the tool",
    "sending by UDP",
];

#[test]
fn other_attacks_fail_in_the_sandbox_of_the_baseline() {
    let Some(scene) = two_tenants() else { return };
    scene.configure("baseline", &["alice", "bob"]);
    attack(&scene);
}

fn attack(scene: &Scene) {
    if !Path::new(PYTHON).exists() {
        return p4shield_need::skip("python3", "/usr/bin/python3 is missing (package python3)");
    }
    scene.topology("apply");
    let is_on_host = scene.topology("status")["switches"][0]["name"] == "host";
    let prey = Prey::new(scene);
    let is_due = |attack: &&Attack| !is_on_host || !NOT_AT_THE_BASELINE.contains(&attack.0);
    let shell = SHELL.iter().filter(is_due).map(|attack| problem(scene, &prey, attack, false));
    let python = PYTHONS.iter().filter(is_due).map(|attack| problem(scene, &prey, attack, true));
    let problems: Vec<_> = shell.chain(python).flatten().collect();
    assert_eq!(problems, Vec::<String>::new());
    // The attackers could do what they may, and the compartment works on.
    let bridge = if is_on_host { "p4s1br" } else { "br0" };
    let may =
        "ovs-vsctl show && ip link set BRIDGE up && ip link set BRIDGE down && touch /tmp/a && rm /tmp/a";
    let output = exec::sh(scene, "alice", &may.replace("BRIDGE", bridge));
    assert!(output.status.success(), "{output:?}");
    let packets = "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)";
    let output = attempt(scene, true, [PYTHON, "-c"], &(prelude() + packets));
    assert!(output.status.success(), "{output:?}");
    assert_eq!(scene.topology("status")["switches"][0]["problem"], serde_json::Value::Null);
}
