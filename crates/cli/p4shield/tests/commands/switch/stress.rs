//! Every packet is accounted for while ports come and go, programs are replaced and tables are written:
//!
//! ```text
//!   left: eth0 ──veth── p0 = port 1 │ router.p4 │ port 2 = p1 ──veth── eth0 :right    (stays)
//!                                               │ port 3 = p3 ──veth── e3   :right    (down, deleted, back)
//!                                               │ port 4 = p4 ──veth── e4   :right    (added, deleted)
//! ```

use super::Scene;
use crate::common::{example, p4shield};
use p4shield_need::extent;
use p4shield_p4switch::api::{self, Status};
use p4shield_testbed::wait_until;
use std::net::UdpSocket;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Packets that are under way at most: what a veth holds, so that the kernel loses none before the switch.
const BURST: usize = 96;
/// Growth that is no leak after the first seconds: on a busy machine, samples differ by up to 3 MB, as
/// programs are verified and replaced. A port that is not closed in each round keeps more.
const GROWTH_KIB: u64 = 6_000;

/// Sends packets of 64 bytes to the subnets of ports 2, 3 and 4 until `stop` is set. Returns their number.
fn send(socket: &Path, stop: &AtomicBool) -> u64 {
    let from = UdpSocket::bind("10.9.1.1:7000").unwrap();
    let mut sent = api::status(socket).unwrap().ports[0].traffic.received;
    while !stop.load(Ordering::Relaxed) {
        for n in 0..BURST {
            // 22 bytes behind the headers of Ethernet, IPv4 and UDP.
            from.send_to(&[0; 22], format!("10.9.{}.1:7000", 2 + n % 3)).unwrap();
        }
        sent += BURST as u64;
        wait_until("the burst's arrival", 20, || {
            let status = api::status(socket).unwrap();
            let all = status.ports[0].traffic.received == sent;
            // While packets arrive, one thread is asked before another.
            assert!(status.threads > 1 && !all || balance(&status), "{status:?}");
            all
        })
        .unwrap();
    }
    sent
}

/// Returns whether every packet is accounted for.
fn balance(status: &Status) -> bool {
    let all = status.ports.iter().map(|p| p.traffic).chain([status.deleted]);
    let (received, sent) = all.fold((0, 0), |(received, sent), t| (received + t.received, sent + t.sent));
    let dropped: u64 = status.dropped.iter().map(|d| d.packets).sum();
    received + status.copies == sent + dropped + status.replicated + status.waiting
}

/// Returns the resident memory of a process in KiB, its mappings and its descriptors.
fn size(process: i32) -> (u64, usize, usize) {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{process}/{name}")).unwrap();
    let status = read("status");
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let resident = resident.trim().trim_end_matches(" kB").parse().unwrap();
    let descriptors = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap().count();
    (resident, read("maps").lines().count(), descriptors)
}

impl Scene {
    fn add_link(&self, port: u8) {
        let name = self.right.name();
        self.host.ip(&format!("link add p{port} type veth peer name e{port} netns {name}")).unwrap();
        self.host.ip(&format!("link set p{port} up")).unwrap();
        self.right.ip(&format!("link set e{port} up")).unwrap();
    }

    /// Changes ports and tables once, and replaces the program: about a second.
    fn change(&self, round: u32) {
        let begun = Instant::now();
        self.asks(&["load", &self.folder.path().join("router.o").display().to_string()]);
        match round % 2 {
            0 => drop(self.host.ip("link set p3 down").unwrap()),
            _ => drop(self.host.ip("link del p3").unwrap()),
        }
        self.asks(&["port", "delete", "4"]);
        for n in 0..5 {
            let to = format!("10.8.{n}.0/24");
            self.asks(&["table", "add", "routes", &to, "--action", "drop"]);
            self.asks(&["table", "delete", "routes", &to]);
        }
        match round % 2 {
            0 => drop(self.host.ip("link set p3 up").unwrap()),
            _ => self.add_link(3),
        }
        self.asks(&["port", "add", "4=p4"]);
        std::thread::sleep(Duration::from_secs(1).saturating_sub(begun.elapsed()));
    }

    /// Returns the status once all ports are up.
    fn settled(&self) -> Status {
        let status = || api::status(&self.socket()).unwrap();
        wait_until("all ports to be up", 20, || status().problems.is_empty()).unwrap();
        status()
    }

    /// Returns the packets that arrived at the right host's end of port 2.
    fn arrived(&self) -> u64 {
        let links = self.right.ip("-s -j link show eth0").unwrap();
        let links: serde_json::Value = serde_json::from_str(&links).unwrap();
        links[0]["stats64"]["rx"]["packets"].as_u64().unwrap()
    }
}

#[test]
fn every_packet_is_accounted_for_while_all_changes() {
    account(1, extent(20, 600));
}

#[test]
fn two_threads_account_for_every_packet_while_all_changes() {
    account(2, extent(10, 60));
}

#[allow(clippy::print_stdout, reason = "the figures are of interest")]
fn account(threads: u32, rounds: u32) {
    let Some(scene) = Scene::new() else { return };
    let object = scene.folder.path().join("router.o").display().to_string();
    let compiled = p4shield(&["compile", &example("programs/router.p4"), "-o", &object]);
    assert!(compiled.status.success(), "{}", crate::common::stderr(&compiled));
    // Else the host's own stack sends, too.
    scene.host.disable_ipv6().unwrap();
    (3..=4).for_each(|port| scene.add_link(port));
    let mut command = scene.program_command(&example("programs/router.p4"));
    let mut switch = scene.start_command(command.args(["--threads", &threads.to_string()]));
    scene.add_routes();
    for port in ["3", "4"] {
        scene.asks(&["port", "add", &format!("{port}=p{port}")]);
        let (to, port) = (format!("10.9.{port}.0/24"), format!("port={port}"));
        let forward = ["--action", "forward", "next_hop=02:00:00:00:00:03", &port];
        scene.asks(&[&["table", "add", "routes", &to], &forward[..]].concat());
        scene.left.ip(&format!("route add {to} via 10.9.1.254")).unwrap();
    }
    // Else the right host answers that nobody listens.
    let _listener = scene.right.inside(|| UdpSocket::bind("10.9.2.1:7000").unwrap());
    let before = (scene.settled(), scene.arrived());
    let (stop, socket, process) = (AtomicBool::new(false), scene.socket(), switch.pid().as_raw_nonzero());
    let (sent, sizes) = std::thread::scope(|threads| {
        let sender = threads.spawn(|| scene.left.inside(|| send(&socket, &stop)));
        // Ends the sender also if a change fails.
        let sizes = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let measured = |round: u32| {
                scene.change(round);
                scene.settled();
                (round == 5 || round + 1 == rounds).then(|| size(process.get()))
            };
            (0..rounds).filter_map(measured).collect::<Vec<_>>()
        }));
        stop.store(true, Ordering::Relaxed);
        let sent = sender.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (sent, sizes.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let after = scene.settled();
    println!("{sent} packets; memory in KiB, mappings, descriptors: {sizes:?}; {after:?}");
    assert_eq!(after.ports[0].traffic.received, sent);
    let forwarded = after.ports[1].traffic.sent - before.0.ports[1].traffic.sent;
    assert_eq!(scene.arrived() - before.1, forwarded, "what port 2 sent, the right host received");
    let dropped = |reason: &str| after.dropped.iter().find(|d| d.reason == reason).map(|d| d.packets);
    assert!(dropped("port_down") > Some(0) && dropped("no_port") > Some(0), "{after:?}");
    assert!(balance(&after) && switch.ended().is_none(), "{after:?}");
    let [early, late] = sizes[..] else { panic!("{sizes:?}") };
    assert!(late.0 < early.0 + GROWTH_KIB, "memory grows: {sizes:?}");
    // Fewer than rounds: a client is connected, or a port or program about to be freed.
    assert!(late.1 < early.1 + 12 && late.2 < early.2 + 8, "mappings or descriptors grow: {sizes:?}");
}
