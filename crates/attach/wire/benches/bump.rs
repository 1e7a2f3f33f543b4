//! Measures the wire itself: the same traffic over a plain veth pair, and through a wire without and
//! with a P4 VM.
//!
//! `cargo bench -p p4shield-attach-wire --bench bump` (as root; makes network namespaces of
//! its own). Options: `--seconds N` for each figure, `--tcp-streams N`.

#![allow(clippy::print_stdout, reason = "a program that prints figures")]

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use p4shield_abi::channel::Geometry;
use p4shield_attach_wire::{LoopConfig, WireConfig, WireLoop, WireSide};
use p4shield_channel::{Doorbell, RequestBatch, Requester, Responder, Response, Waiter, create_channel};
use p4shield_mediator::{Config, FailPolicy, P4VmChannel, TenantConfig, VmConfig, VmRef};
use p4shield_testbed::process::{Guarded, run};
use p4shield_testbed::{NetNs, wait_until};
use rustix::event::{PollFd, PollFlags};

const VM: &str = "10.7.0.2";

/// Two endpoints and the path between them.
struct BumpScene {
    vm: NetNs,
    client: NetNs,
    _server: Guarded,
    wire: Option<WireLoop>,
    _host: NetNs,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Path {
    /// The host's kernel forwards from one veth to the other over a bridge.
    Bridge,
    /// The same with endpoints that neither send nor receive merged packets, which a wire enforces and
    /// which any switch that moves single packets sees.
    Unmerged,
    /// The wire, whose tenant's fail policy passes every packet unjudged.
    Wire,
    /// The wire and a P4 VM that passes every packet.
    Judged,
}

fn scene(between: Path) -> Result<BumpScene> {
    let (host, vm, client) = (NetNs::create("bump")?, NetNs::create("bumpvm")?, NetNs::create("bumpcl")?);
    host.veth("vm0", &vm, "eth0")?;
    host.veth("sw0", &client, "eth0")?;
    vm.ip(&format!("addr add {VM}/24 dev eth0"))?;
    client.ip("addr add 10.7.0.1/24 dev eth0")?;
    let wire = if matches!(between, Path::Bridge | Path::Unmerged) {
        host.ip("link add br0 type bridge stp_state 0")?;
        for name in ["vm0", "sw0"] {
            host.ip(&format!("link set {name} master br0"))?;
        }
        host.ip("link set br0 up")?;
        None
    } else {
        Some(wire(&host, between == Path::Judged)?)
    };
    if between == Path::Unmerged {
        for ns in [&vm, &client] {
            run(ns.command("ethtool").args(["-K", "eth0", "tso", "off", "gso", "off", "gro", "off"]))?;
        }
    }
    let mut server = vm.command("iperf3");
    server.args(["-s"]).stdout(Stdio::null()).stderr(Stdio::null());
    let server = Guarded::spawn(&mut server)?;
    let ping = || run(client.command("ping").args(["-c1", "-W1", VM])).is_ok();
    wait_until("forwarding", 20, ping)?;
    Ok(BumpScene { vm, client, _server: server, wire, _host: host })
}

fn wire(host: &NetNs, judged: bool) -> Result<WireLoop> {
    let vm = VmConfig::new("vm", vec![VM.parse()?]);
    let mut tenant = TenantConfig::new("bench", vec![vm]);
    tenant.fail = FailPolicy::Pass;
    tenant.deadline = Duration::from_millis(20);
    let mut config = LoopConfig::new("bump", Config { tenants: vec![tenant] });
    config.netns = Some(format!("/run/netns/{}", host.name()).into());
    config.ring = 2048;
    let wire = WireLoop::spawn(config)?;
    wire.add_wire(WireConfig::new("vm0", "sw0", VmRef { tenant: 0, vm: 0 }))?;
    wait_until("attaching", 10, || wire.status().is_ok_and(|s| s.iter().all(|w| w.is_whole())))?;
    if judged {
        let geometry = Geometry::default();
        let memory = create_channel("bump", geometry)?;
        let responder = Responder::new(memory.map_again()?, geometry)?;
        let requester = Requester::new(memory, geometry)?;
        let (ours, theirs) = Doorbell::pair()?;
        wire.replace_channel(0, Some(P4VmChannel { requester, doorbell: ours }))?;
        std::thread::spawn(move || pass_everything(responder, &theirs));
    }
    Ok(wire)
}

/// Runs a P4 VM with an empty program, to measure the cost of requests alone. Ends when the loop closes
/// its doorbell.
fn pass_everything(mut responder: Responder, bell: &Doorbell) {
    let (mut waiter, mut batch) = (Waiter::default(), RequestBatch::new(&Geometry::default()));
    loop {
        match responder.fetch(&mut batch) {
            Ok(0) => {
                let fds = &mut [PollFd::new(bell, PollFlags::IN)];
                let slept = waiter.idle(&mut responder, fds, None);
                if slept.is_err() || (slept != Ok(p4shield_channel::IdleResult::Awake) && !bell.drain()) {
                    return;
                }
            }
            Ok(n) => {
                waiter.found_work();
                (0..n).for_each(|_| responder.respond(Response::Pass).unwrap_or_default());
                if responder.publish() {
                    bell.ring();
                }
            }
            Err(_) => return,
        }
    }
}

fn iperf(s: &BumpScene, seconds: u64, options: &[&str]) -> Result<serde_json::Value> {
    let mut c = s.client.command("iperf3");
    let text = run(c.args(["-c", VM, "-J", "-t", &seconds.to_string()]).args(options))?;
    Ok(serde_json::from_str(&text)?)
}

fn gigabits(json: &serde_json::Value, which: &str) -> Result<f64> {
    let v = json.pointer(&format!("/end/{which}/bits_per_second")).and_then(serde_json::Value::as_f64);
    v.map(|b| b / 1e9).context("iperf3 reported no throughput")
}

/// Returns the rate of minimal packets that arrive, and the share lost.
fn small_packets(s: &BumpScene, seconds: u64) -> Result<(f64, f64)> {
    let json = iperf(s, seconds, &["-u", "-b", "0", "-l", "18"])?;
    let of = |k: &str| json.pointer(&format!("/end/sum/{k}")).and_then(serde_json::Value::as_f64);
    let (packets, lost) = (of("packets").context("no packets")?, of("lost_packets").context("no loss")?);
    Ok(((packets - lost) / seconds as f64, lost / packets))
}

/// Returns the round-trip times of one byte over UDP, sorted, in microseconds.
fn round_trips(s: &BumpScene, seconds: u64) -> Result<Vec<f64>> {
    let echo = s.vm.inside(|| std::net::UdpSocket::bind((VM, 7777)))?;
    echo.set_read_timeout(Some(Duration::from_millis(50)))?;
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let answering = std::thread::spawn(move || {
        let mut b = [0; 64];
        while !stopped.load(Ordering::Relaxed) {
            if let Ok((n, peer)) = echo.recv_from(&mut b) {
                let _ = echo.send_to(&b[..n], peer);
            }
        }
    });
    let socket = s.client.inside(|| std::net::UdpSocket::bind("10.7.0.1:0"))?;
    socket.connect((VM, 7777))?;
    socket.set_read_timeout(Some(Duration::from_millis(200)))?;
    let (end, mut times, mut b) = (Instant::now() + Duration::from_secs(seconds), Vec::new(), [0; 64]);
    while Instant::now() < end {
        let start = Instant::now();
        socket.send(&[1])?;
        if socket.recv(&mut b).is_ok() {
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
    }
    stop.store(true, Ordering::Relaxed);
    let _ = answering.join();
    times.sort_by(f64::total_cmp);
    if times.is_empty() {
        bail!("no reply arrived");
    }
    Ok(times)
}

/// Returns the share of a core that this process uses while there is no traffic.
fn idle_share(seconds: u64) -> f64 {
    let used = || {
        let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
    };
    std::thread::sleep(Duration::from_secs(1));
    let before = used();
    std::thread::sleep(Duration::from_secs(seconds));
    (used() - before) / seconds as f64
}

fn option(name: &str, default: u64) -> u64 {
    let mut args = std::env::args().skip_while(|a| a != name).skip(1);
    args.next().and_then(|v| v.parse().ok()).unwrap_or(default)
}

fn main() -> Result<()> {
    let (seconds, streams) = (option("--seconds", 5), option("--tcp-streams", 1).to_string());
    let cores = std::thread::available_parallelism()?;
    let kernel = run(Command::new("uname").arg("-r"))?;
    println!("{cores} cores, Linux {}, {seconds} s a figure, {streams} TCP stream(s)", kernel.trim());
    println!(
        "{:<22}{:>10}{:>12}{:>12}{:>9}{:>11}{:>11}{:>8}",
        "", "TCP Gb/s", "UDP1450 Gb", "small kpps", "lost", "p50 us", "p99 us", "idle"
    );
    for (name, between) in [
        ("bridge", Path::Bridge),
        ("bridge, no GSO", Path::Unmerged),
        ("wire, no P4 VM", Path::Wire),
        ("wire and P4 VM", Path::Judged),
    ] {
        let s = scene(between)?;
        let idle = idle_share(2);
        let times = round_trips(&s, seconds)?;
        let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
        let tcp = gigabits(&iperf(&s, seconds, &["-P", &streams])?, "sum_received")?;
        let json = iperf(&s, seconds, &["-u", "-b", "0", "-l", "1450"])?;
        let lost = json.pointer("/end/sum/lost_percent").and_then(serde_json::Value::as_f64).unwrap_or(100.0);
        let udp = gigabits(&json, "sum")? * (1.0 - lost / 100.0);
        let (rate, small_lost) = small_packets(&s, seconds)?;
        println!(
            "{name:<22}{tcp:>10.2}{udp:>12.2}{:>12.0}{:>8.1}%{:>11.1}{:>11.1}{:>7.2}%",
            rate / 1e3,
            small_lost * 100.0,
            at(0.5),
            at(0.99),
            idle * 100.0
        );
        if let Some(wire) = &s.wire {
            report(wire)?;
        }
    }
    Ok(())
}

fn report(wire: &WireLoop) -> Result<()> {
    let snapshot = wire.snapshot()?;
    for w in &snapshot.wires {
        for side in WireSide::ALL {
            println!("    {} side: {:?}", side.name(), w.sides[side as usize]);
        }
    }
    for w in wire.status()? {
        for side in w.sides.iter().filter_map(|s| s.attached) {
            println!("    kernel: {:?}", side.kernel);
        }
    }
    println!("    frames: {:?}, refused {}", snapshot.frames, snapshot.refused);
    Ok(())
}
