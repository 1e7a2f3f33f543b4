//! Applications with the library in them that are no Open vSwitch: dpdk-testpmd over `net_af_xdp`, a minimal forwarder
//! with libxdp's inline rings (`forward.c`) in every way that an application may set up and wait for its sockets, and
//! QEMU's AF_XDP netdev where the package has it.
//!
//! Each carries connections between two machines while a program drops one packet in 256. Afterwards every frame is
//! accounted for, by the library and by the application.

#![allow(clippy::print_stdout, reason = "skipped tests say so")]

#[path = "../common/mod.rs"]
mod common;
mod forwarder;

use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use common::daemon::Cloud;
use common::library;
use common::scene::Scene;
use forwarder::Forwarder;
use p4shield_testbed::{Closed, Testpmd, wait_until};

/// Connections of one message each.
const SIZES: [usize; 4] = [1, 1_448, 65_536, 300_000];

/// One application at a time: some of them, and testpmd, fill a core.
static ONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Passes all but one packet in 256, at places that no flow is in step with.
fn most(_: &[u8], n: u64) -> bool {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56 != 0
}

/// Has a forwarder carry connections, and looks at its account and at the library's.
fn carries(arguments: &[&str]) -> Option<Forwarder> {
    carries_with(arguments, "", 0)
}

/// The tables of the two ports, with this `zero_copy` each.
fn ports(zero_copy: [&str; 2]) -> String {
    let port = |(n, word)| {
        let (port, vm) = [("s0", "one"), ("s1", "two")][n];
        format!("[[port]]\nname = \"{port}\"\ntenant = \"alice\"\nvm = \"{vm}\"\nzero_copy = \"{word}\"\n")
    };
    zero_copy.into_iter().enumerate().map(port).collect()
}

/// The same with these tables in its configuration: so many lanes' packets are read where they are.
fn carries_with(arguments: &[&str], tables: &str, zero_copy: u32) -> Option<Forwarder> {
    if let Err(why) = Forwarder::usable() {
        println!("skipped: {why}");
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
    // A port that is known to be a VM's has lanes of both sides.
    daemon.wait_lanes(if tables.is_empty() { 2 } else { 4 });
    assert_eq!(daemon.zero_copy(), zero_copy, "{}", forwarder.said());
    scene.wait_ping();
    scene.echo(&SIZES);
    if jumbo {
        // In long packets it takes more bytes to be many.
        scene.echo(&[300_000; 8]);
    }
    assert!(daemon.judged() > 500, "{} packets were judged", daemon.judged());
    let shared = arguments.contains(&"--shared");
    let account = forwarder.end();
    let number = |name: &str| account[name].parse::<u64>().unwrap();
    assert_eq!(number("sending"), 0, "{account:?}\n{}", forwarder.said());
    assert_eq!(number("free") + number("filled"), number("frames"), "{account:?}\n{}", forwarder.said());
    let closed = Closed::all(&forwarder.said());
    assert_eq!(closed.len(), 2, "{}", forwarder.said());
    for socket in &closed {
        let all = number("frames") / if shared { 1 } else { 2 };
        assert_eq!((socket.total(), socket.refused()), (all, Some(0)), "{closed:?}");
        assert_eq!(socket.frames["p4vm"], 0, "nothing is left with a judge: {closed:?}");
    }
    assert_eq!(daemon.faults(), Vec::<String>::new());
    Some(forwarder)
}

#[test]
fn a_program_that_calls_all_the_time() {
    carries(&["--wait=busy"]);
}

#[test]
fn a_program_that_sleeps_in_poll_with_memory_for_two_sockets() {
    carries(&["--wait=poll", "--shared"]);
}

#[test]
fn a_program_that_sleeps_in_ppoll_with_unaligned_chunks() {
    carries(&["--wait=ppoll", "--unaligned"]);
}

#[test]
fn a_program_that_sleeps_in_epoll_on_duplicates_of_its_sockets() {
    carries(&["--wait=epoll", "--dup"]);
}

#[test]
fn a_program_that_forwards_unaligned_chunks_in_place_in_epoll() {
    carries(&["--wait=epoll", "--shared", "--unaligned"]);
}

#[test]
fn a_program_that_did_not_ask_for_wakeups_and_forks() {
    if let Some(mut forwarder) = carries(&["--no-wakeup", "--fork"]) {
        assert_eq!(forwarder.end()["child"], "refused", "a child's sockets could not be mediated");
    }
}

#[test]
fn a_program_that_fills_frames_that_it_does_not_have_harms_nobody_and_is_found_out() {
    if let Err(why) = Forwarder::usable() {
        println!("skipped: {why}");
        return;
    }
    let _alone = alone();
    let (scene, cloud) = (Scene::new(), Cloud::new("drop", "50ms"));
    let daemon = cloud.daemon(most);
    let mut forwarder = Forwarder::start(&scene.host, &["--rude"], &cloud.config());
    scene.wait_ping();
    scene.echo(&SIZES);
    wait_until("the daemon to hear of it", 30, || daemon.refused() == 64)
        .unwrap_or_else(|e| panic!("{e}: {}\n{}", daemon.refused(), forwarder.said()));
    let account = forwarder.end();
    let number = |name: &str| account[name].parse::<u64>().unwrap();
    assert_eq!((number("sending"), number("free") + number("filled")), (0, number("frames")), "{account:?}");
    let closed: Vec<_> = Closed::all(&forwarder.said()).iter().map(|c| (c.total(), c.refused())).collect();
    let all = number("frames") / 2;
    assert_eq!(closed, [(all, Some(64)), (all, Some(0))], "{}", forwarder.said());
}

/// Whether the kernel has packets in several frames.
fn has_multi_buffer() -> bool {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy();
    let mut numbers = release.split(['.', '-']).map(|n| n.parse::<u32>().unwrap_or_default());
    (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default()) >= (6, 6)
}

#[test]
fn a_program_that_takes_packets_in_several_frames() {
    if !has_multi_buffer() {
        println!("skipped: AF_XDP takes packets in several frames since Linux 6.6");
        return;
    }
    if let Some(mut forwarder) = carries(&["--wait=poll", "--jumbo"]) {
        let chained: u32 = forwarder.end()["chained"].parse().unwrap();
        assert!(chained > 50, "{chained} packets were longer than a frame\n{}", forwarder.said());
    }
}

#[test]
fn a_program_whose_packets_are_read_where_they_are() {
    if let Some(forwarder) = carries_with(&["--wait=poll"], &ports(["auto", "auto"]), 4) {
        assert!(!forwarder.said().contains("header copies"), "{}", forwarder.said());
    }
}

#[test]
fn a_program_that_forwards_in_place_in_memory_that_is_one_tenants_and_forks() {
    if let Some(mut forwarder) =
        carries_with(&["--wait=epoll", "--shared", "--fork"], &ports(["auto", "auto"]), 4)
    {
        assert_eq!(forwarder.end()["child"], "refused");
    }
}

#[test]
fn memory_whose_first_port_is_anybodys_or_whose_chunks_begin_anywhere_is_copied() {
    if let Some(forwarder) = carries_with(&["--wait=poll", "--shared"], &ports(["off", "auto"]), 0) {
        assert!(forwarder.said().contains("a socket of it is bound to s0"), "{}", forwarder.said());
    }
    if let Some(forwarder) = carries_with(&["--wait=poll", "--unaligned"], &ports(["auto", "auto"]), 0) {
        assert!(forwarder.said().contains("chunks begin anywhere"), "{}", forwarder.said());
    }
}

#[test]
fn a_port_that_is_anybodys_cannot_come_into_memory_that_a_tenant_reads() {
    if let Err(why) = Forwarder::usable() {
        println!("skipped: {why}");
        return;
    }
    let _alone = alone();
    let scene = Scene::new();
    let cloud = Cloud::new("drop", "50ms").with(&ports(["auto", "off"]));
    let _daemon = cloud.daemon(most);
    let (status, said) = Forwarder::fails(&scene.host, &["--shared"], &cloud.config());
    assert!(!status.success() && said.contains("s1: Permission denied"), "{said}");
    assert!(said.contains("must be a [[port]] of the same tenant"), "{said}");
}

#[test]
fn testpmd_over_net_af_xdp() {
    if let Err(why) = Testpmd::usable() {
        println!("skipped: {why}");
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
    let status = testpmd.quit().unwrap();
    assert!(status.success(), "{status}\n{}", testpmd.transcript());
    let said = || testpmd.transcript();
    wait_until("the end of both sockets", 30, || Closed::all(&said()).len() >= 2)
        .unwrap_or_else(|e| panic!("{e}\n{}", said()));
    for socket in Closed::all(&said()) {
        assert_eq!(socket.refused(), Some(0), "{}", said());
        assert!(socket.total() > 0 && socket.frames["p4vm"] == 0, "{socket:?}");
    }
    assert_eq!(daemon.faults(), Vec::<String>::new());
}

#[test]
fn qemus_af_xdp_netdev() {
    let help = Command::new("qemu-system-x86_64").args(["-netdev", "help"]).output();
    let Ok(help) = help else {
        println!("skipped: QEMU is not installed");
        return;
    };
    if !String::from_utf8_lossy(&help.stdout).lines().any(|l| l.trim() == "af-xdp") {
        println!("skipped: this QEMU has no netdev af-xdp (it came with 8.2, and Debian 12 has 7.2)");
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
