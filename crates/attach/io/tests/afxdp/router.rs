//! A P4 program for v1model as the data plane between two namespaces:
//!
//! ```text
//!   left 10.8.1.1: eth0 ──veth── p0 = port 1 │ router.p4 │ port 2 = p1 ──veth── eth0 :right 10.8.2.1
//! ```

use crate::common::{Scene, usable};
use p4shield_bpf::maps::UpdateFlag;
use p4shield_bpf::verify::{Limits, verify};
use p4shield_bpf::{EngineOptions, Object, Program, link};
use p4shield_io::afxdp::{AfxdpConfig, AfxdpPorts};
use p4shield_p4::{Compiled, NoIncludes, Options, compile};
use p4shield_switch::{Counts, PacketIo, Switch, Traits};
use p4shield_tables::model::Match;
use p4shield_testbed::process::run;
use p4shield_testbed::{Guarded, NetNs, wait_until};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Address of the router at both ends.
const ROUTER: &str = "02:00:00:00:00:fe";

/// Gives a host its address, its own subnet's router, and the route to the other subnet.
fn configure(ns: &NetNs, own: u8, other: u8) {
    for words in [
        format!("link set eth0 address 02:00:00:00:00:0{own}"),
        format!("addr add 10.8.{own}.1/24 dev eth0"),
        format!("neigh replace 10.8.{own}.254 lladdr {ROUTER} dev eth0"),
        format!("route add 10.8.{other}.0/24 via 10.8.{own}.254"),
    ] {
        ns.ip(&words).unwrap();
    }
}

fn load(compiled: &Compiled) -> Program {
    let linked = link(&[Object::parse(&compiled.object).unwrap()]).unwrap();
    let (verified, _) = verify(linked, &Limits::default()).unwrap();
    Program::load(&verified, &EngineOptions::default()).unwrap()
}

/// Adds a route to 10.8.N.0/24 by port N.
fn add_route(switch: &mut Switch<AfxdpPorts>, compiled: &Compiled, n: u32) {
    let table = &compiled.facts.tables[0];
    let key = table.entry_key(&[Match::Prefix((0x0a08_0000 | n << 8).into(), 24)], 0).unwrap();
    let value = table.action_value(0, &[(0x0200_0000_0000_u64 | u64::from(n)).into(), n.into()]).unwrap();
    let mut pipeline = switch.pipeline();
    let map = pipeline.program().maps_mut().and_then(|maps| maps.get_mut(table.map.as_deref()?)).unwrap();
    map.update(&key, &value, UpdateFlag::Any).unwrap();
}

/// Routes until `stop` is set. Returns the packets.
fn route(stop: &AtomicBool) -> Counts {
    let text = include_str!("../../../../../examples/programs/router.p4");
    let compiled = compile("router.p4", text, &NoIncludes, &Options::default());
    let compiled = compiled.unwrap_or_else(|e| panic!("{e}"));
    let ports = AfxdpPorts::open(&AfxdpConfig::new(["p0", "p1"])).unwrap();
    let traits = Traits { architecture: compiled.facts.architecture, ..Traits::default() };
    let mut switch = Switch::new(ports, vec![1, 2], load(&compiled), traits).unwrap();
    (1..=2).for_each(|n| add_route(&mut switch, &compiled, n));
    while !stop.load(Ordering::Relaxed) {
        if switch.round().unwrap() == 0 {
            switch.io().wait(Duration::from_millis(50), None).unwrap();
        }
    }
    switch.counts().clone()
}

#[test]
fn a_p4_router_carries_ping_and_tcp_between_subnets() {
    if !usable() {
        return;
    }
    let scene = Scene::new();
    configure(&scene.left, 1, 2);
    configure(&scene.right, 2, 1);
    let stop = AtomicBool::new(false);
    let ping = |words: &[&str]| run(scene.left.command("ping").args(["-c1", "-W1"]).args(words));
    let counts = std::thread::scope(|threads| {
        let switch = threads.spawn(|| scene.host.inside(|| route(&stop)));
        // Ends the thread also if an assertion fails.
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut answer = None;
            wait_until("a ping through the router", 20, || {
                answer = ping(&["10.8.2.1"]).ok();
                answer.is_some()
            })
            .unwrap();
            let answer = answer.unwrap();
            assert!(answer.contains("ttl=63"), "{answer}");
            assert!(ping(&["-t1", "10.8.2.1"]).is_err(), "its time to live ends at the router");
            transfer(&scene);
        }));
        stop.store(true, Ordering::Relaxed);
        let counts = switch.join().unwrap();
        result.map(|()| counts).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    assert!(counts.balance(), "{counts:?}");
    assert!(counts.ports.iter().all(|port| port.sent > 10), "{counts:?}");
}

/// Sends 20 MB from left to right, and back.
fn transfer(scene: &Scene) {
    for options in [&[][..], &["--reverse"]] {
        let mut server = scene.right.command("iperf3");
        let mut server = Guarded::spawn(server.args(["--server", "--one-off"])).unwrap();
        wait_until("a transfer with iperf3", 30, || {
            let mut client = scene.left.command("iperf3");
            client
                .args(["--client", "10.8.2.1", "--bytes", "20M", "--connect-timeout", "1000"])
                .args(options);
            run(&mut client).is_ok()
        })
        .unwrap();
        wait_until("the server's end", 10, || server.ended().is_some()).unwrap();
    }
}
