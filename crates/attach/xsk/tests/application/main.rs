//! Applications other than Open vSwitch: dpdk-testpmd over `net_af_xdp`; a minimal forwarder with
//! libxdp's inline rings (`forward.c`), which sets up its sockets and waits for them in every way; and
//! QEMU's AF_XDP netdev where the package has it.
//!
//! Each carries connections between two VMs while a program drops one packet in 256. Afterwards the
//! library and the application account for every frame.

#[path = "../common/mod.rs"]
mod common;
mod forwarder;
mod threads;

use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use common::daemon::Cloud;
use common::library;
use common::scene::Scene;
use forwarder::Forwarder;
use p4shield_testbed::{Closed, Testpmd, wait_until};

/// Bytes of each connection's message.
const SIZES: [usize; 4] = [1, 1_448, 65_536, 300_000];

/// Runs one application at a time: testpmd and some others occupy a core.
static ONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Drops one packet in 256, in no pattern.
fn most(_: &[u8], n: u64) -> bool {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56 != 0
}

/// Runs a forwarder with connections through it, and checks its own account and the library's.
fn carries(arguments: &[&str]) -> Option<Forwarder> {
    carries_with(arguments, "", 0)
}

/// Returns the tables of the two ports with these values of `zero_copy`.
fn ports(zero_copy: [&str; 2]) -> String {
    let port = |(n, word)| {
        let (port, vm) = [("s0", "one"), ("s1", "two")][n];
        format!("[[port]]\nname = \"{port}\"\ntenant = \"alice\"\nvm = \"{vm}\"\nzero_copy = \"{word}\"\n")
    };
    zero_copy.into_iter().enumerate().map(port).collect()
}

/// The same with these tables in the configuration; the P4 VM reads the packets of `zero_copy` lanes in
/// place.
fn carries_with(arguments: &[&str], tables: &str, zero_copy: u32) -> Option<Forwarder> {
    if let Err(why) = Forwarder::usable() {
        p4shield_need::skip("machine", why);
        return None;
    }
    let _alone = alone();
    let (scene, cloud) = (Scene::new(), Cloud::new("drop", "50ms").with(tables));
    let jumbo = arguments.contains(&"--jumbo");
    if jumbo {
        scene.lengthen(9000);
    }
    let daemon = cloud.daemon(most);
    let mut forwarder = Forwarder::start(&scene.host, arguments, &cloud.config());
    // A port of a VM has a lane for each side.
    daemon.wait_lanes(if tables.is_empty() { 2 } else { 4 });
    assert_eq!(daemon.zero_copy(), zero_copy, "{}", forwarder.log());
    scene.wait_ping();
    scene.echo(&SIZES);
    if jumbo {
        // Jumbo frames need more bytes for as many packets.
        scene.echo(&[300_000; 8]);
    }
    assert!(daemon.judged() > 500, "{} packets were judged", daemon.judged());
    let shared = arguments.contains(&"--shared");
    // Packets are judged in their order, and an echo ends before its last acknowledgement.
    scene.wait_ping();
    let account = forwarder.end();
    let number = |name: &str| account[name].parse::<u64>().unwrap();
    assert_eq!(number("sending"), 0, "{account:?}\n{}", forwarder.log());
    assert_eq!(number("free") + number("filled"), number("frames"), "{account:?}\n{}", forwarder.log());
    let closed = Closed::all(&forwarder.log());
    assert_eq!(closed.len(), 2, "{}", forwarder.log());
    for socket in &closed {
        let all = number("frames") / if shared { 1 } else { 2 };
        assert_eq!((socket.total(), socket.refused()), (all, Some(0)), "{closed:?}");
        assert!(!socket.frames.contains_key("P4 VM"), "a packet still waits for a verdict: {closed:?}");
    }
    assert_eq!(daemon.faults(), Vec::<String>::new());
    Some(forwarder)
}

#[test]
fn a_busy_polling_application_is_mediated() {
    carries(&["--wait=busy"]);
}

#[test]
fn a_shared_umem_in_poll_is_mediated() {
    carries(&["--wait=poll", "--shared"]);
}

#[test]
fn unaligned_chunks_in_ppoll_are_mediated() {
    carries(&["--wait=ppoll", "--unaligned"]);
}

#[test]
fn duplicated_sockets_in_epoll_are_mediated() {
    carries(&["--wait=epoll", "--dup"]);
}

#[test]
fn unaligned_in_place_forwarding_is_mediated() {
    carries(&["--wait=epoll", "--shared", "--unaligned"]);
}

#[test]
fn an_application_without_need_wakeup_is_mediated() {
    if let Some(mut forwarder) = carries(&["--no-wakeup", "--fork"]) {
        assert_eq!(forwarder.end()["child"], "refused", "a forked child gets no socket");
    }
}

#[test]
fn filling_foreign_frames_is_refused_and_reported() {
    if let Err(why) = Forwarder::usable() {
        p4shield_need::skip("machine", why);
        return;
    }
    let _alone = alone();
    let (scene, cloud) = (Scene::new(), Cloud::new("drop", "50ms"));
    let daemon = cloud.daemon(most);
    let mut forwarder = Forwarder::start(&scene.host, &["--refill-foreign"], &cloud.config());
    scene.wait_ping();
    scene.echo(&SIZES);
    wait_until("the daemon's count", 30, || daemon.refused() == 64)
        .unwrap_or_else(|e| panic!("{e}: {}\n{}", daemon.refused(), forwarder.log()));
    let account = forwarder.end();
    let number = |name: &str| account[name].parse::<u64>().unwrap();
    assert_eq!((number("sending"), number("free") + number("filled")), (0, number("frames")), "{account:?}");
    let closed: Vec<_> = Closed::all(&forwarder.log()).iter().map(|c| (c.total(), c.refused())).collect();
    let all = number("frames") / 2;
    assert_eq!(closed, [(all, Some(64)), (all, Some(0))], "{}", forwarder.log());
}

/// Returns whether the kernel has multi-buffer packets.
fn has_multi_buffer() -> bool {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy();
    let mut numbers = release.split(['.', '-']).map(|n| n.parse::<u32>().unwrap_or_default());
    (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default()) >= (6, 6)
}

#[test]
fn multi_buffer_packets_are_mediated() {
    if !has_multi_buffer() {
        p4shield_need::skip("multi-buffer", "AF_XDP has multi-buffer packets since Linux 6.6");
        return;
    }
    if let Some(mut forwarder) = carries(&["--wait=poll", "--jumbo"]) {
        let chained: u32 = forwarder.end()["chained"].parse().unwrap();
        assert!(chained > 50, "{chained} packets were longer than a frame\n{}", forwarder.log());
    }
}

#[test]
fn p4_vms_read_packets_in_place() {
    if let Some(forwarder) = carries_with(&["--wait=poll"], &ports(["auto", "auto"]), 4) {
        assert!(!forwarder.log().contains("header copies"), "{}", forwarder.log());
    }
}

#[test]
fn a_fork_keeps_a_tenants_shared_umem_private() {
    if let Some(mut forwarder) =
        carries_with(&["--wait=epoll", "--shared", "--fork"], &ports(["auto", "auto"]), 4)
    {
        assert_eq!(forwarder.end()["child"], "refused");
    }
}

#[test]
fn unsuitable_umems_get_header_copies() {
    if let Some(forwarder) = carries_with(&["--wait=poll", "--shared"], &ports(["off", "auto"]), 0) {
        assert!(forwarder.log().contains("one of its sockets is bound to s0"), "{}", forwarder.log());
    }
    if let Some(forwarder) = carries_with(&["--wait=poll", "--unaligned"], &ports(["auto", "auto"]), 0) {
        assert!(forwarder.log().contains("chunks may start at any address"), "{}", forwarder.log());
    }
}

#[test]
fn other_ports_cannot_join_a_umem_that_a_p4_vm_reads() {
    if let Err(why) = Forwarder::usable() {
        p4shield_need::skip("machine", why);
        return;
    }
    let _alone = alone();
    let scene = Scene::new();
    let cloud = Cloud::new("drop", "50ms").with(&ports(["auto", "off"]));
    let _daemon = cloud.daemon(most);
    let (status, log) = Forwarder::fails(&scene.host, &["--shared"], &cloud.config());
    assert!(!status.success() && log.contains("s1: Permission denied"), "{log}");
    assert!(log.contains("must be a [[port]] of the same tenant"), "{log}");
}

#[test]
fn testpmd_over_net_af_xdp_is_mediated() {
    if let Err(why) = Testpmd::usable() {
        p4shield_need::skip("dpdk", why);
        return;
    }
    let _alone = alone();
    let (scene, cloud) = (Scene::new(), Cloud::new("drop", "50ms"));
    let daemon = cloud.daemon(most);
    let setup = Testpmd::setup()
        .env("LD_PRELOAD", library())
        .env("P4SHIELD_CONFIG", cloud.config())
        .vdev("net_af_xdp0,iface=s0")
        .vdev("net_af_xdp1,iface=s1");
    let mut testpmd = setup.start(&scene.host).unwrap();
    testpmd.command("start").unwrap();
    daemon.wait_lanes(2);
    scene.wait_ping();
    scene.echo(&SIZES);
    assert!(daemon.judged() > 500, "{} packets were judged", daemon.judged());
    scene.wait_ping();
    let status = testpmd.quit().unwrap();
    assert!(status.success(), "{status}\n{}", testpmd.transcript());
    let log = || testpmd.transcript();
    wait_until("the end of both sockets", 30, || Closed::all(&log()).len() >= 2)
        .unwrap_or_else(|e| panic!("{e}\n{}", log()));
    for socket in Closed::all(&log()) {
        assert_eq!(socket.refused(), Some(0), "{}", log());
        assert!(socket.total() > 0 && !socket.frames.contains_key("P4 VM"), "{socket:?}");
    }
    assert_eq!(daemon.faults(), Vec::<String>::new());
}

#[test]
fn qemus_af_xdp_netdev_is_mediated() {
    let help = Command::new("qemu-system-x86_64").args(["-netdev", "help"]).output();
    let Ok(help) = help else {
        p4shield_need::skip("qemu", "QEMU is not installed");
        return;
    };
    if !String::from_utf8_lossy(&help.stdout).lines().any(|l| l.trim() == "af-xdp") {
        p4shield_need::skip(
            "qemu-af-xdp",
            "this QEMU has no netdev af-xdp (QEMU 8.2 has; Debian 12 has 7.2)",
        );
        return;
    }
    let (scene, cloud) = (Scene::new(), Cloud::new("drop", "50ms"));
    let daemon = cloud.daemon(most);
    let mut command = scene.host.command("qemu-system-x86_64");
    command.args(["-accel", "tcg", "-M", "microvm", "-nodefaults", "-nographic", "-S"]);
    command.args([
        "-netdev",
        "af-xdp,id=n,ifname=s0,mode=skb,queues=1",
        "-device",
        "virtio-net-device,netdev=n",
    ]);
    command.env("LD_PRELOAD", library()).env("P4SHIELD_CONFIG", cloud.config());
    let _qemu = p4shield_testbed::Guarded::spawn(&mut command).unwrap();
    daemon.wait_lanes(1);
}
