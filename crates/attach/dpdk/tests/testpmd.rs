//! Packets through an unmodified testpmd with the library in it, each accounted for.

mod common;

use common::daemon::{Cloud, Does, Mood, text, usable};
use common::frames::{self, flow_of, frame, grown, serial_of, shrunk};
use common::switch::{free_buffers, last_tally, nowhere, testpmd, wait_sent};
use p4shield_testbed::dpdk::Testpmd;
use p4shield_testbed::{NetNs, wait_until};
use std::collections::BTreeMap;

const PACKETS: u32 = 10_000;

/// Lengths of which some take several segments.
const LENGTHS: [usize; 4] = [64, 200, 1500, 5000];

fn program(front: &[u8]) -> Does {
    match serial_of(front) % 8 {
        1 => Does::Drop,
        3 => Does::Rewrite(grown(front)),
        5 => Does::Rewrite(shrunk(front)),
        _ => Does::Pass,
    }
}

/// What comes of a packet of `program`, if anything does.
fn judged(frame: &[u8]) -> Option<Vec<u8>> {
    match serial_of(frame) % 8 {
        1 => None,
        3 => Some(grown(frame)),
        5 => Some(shrunk(frame)),
        _ => Some(frame.to_vec()),
    }
}

/// Packets of both tenants and unowned packets, of 16 flows each.
fn mixed() -> Vec<Vec<u8>> {
    let one = |n: u32| {
        let to = [1, 2, 9][n as usize % 3];
        frame(n, 7, to, (n / 3 % 16) as u16, LENGTHS[n as usize / 7 % 4])
    };
    (0..PACKETS).map(one).collect()
}

/// What has to come out: by flow, in order.
fn expected(frames: &[Vec<u8>], unjudged: u8) -> BTreeMap<(u8, u16), Vec<Vec<u8>>> {
    let mut flows = BTreeMap::<_, Vec<_>>::new();
    for frame in frames {
        let to = frame[32];
        let out = if to == unjudged { Some(frame.clone()) } else { judged(frame) };
        flows.entry((to, flow_of(frame))).or_default().extend(out);
    }
    flows
}

/// By flow, in order.
fn by_flow(frames: Vec<Vec<u8>>) -> BTreeMap<(u8, u16), Vec<Vec<u8>>> {
    let mut flows = BTreeMap::<_, Vec<_>>::new();
    for frame in frames {
        flows.entry((frame[5], flow_of(&frame))).or_default().push(frame);
    }
    flows
}

#[test]
fn every_packet_is_judged_once_and_in_order() {
    if !usable(Testpmd::usable()) {
        return;
    }
    let cloud = Cloud::new("10s", "");
    let daemon = cloud.daemon(program);
    let (input, output) = (cloud.file("in.pcap"), cloud.file("out.pcap"));
    let sent = mixed();
    frames::write(&input, &sent);
    let want = expected(&sent, 9);
    let count = want.values().map(|f| f.len() as u64).sum();

    let ns = nowhere();
    let setup = testpmd(&cloud)
        .vdev(&format!("net_pcap0,rx_pcap={}", text(&input)))
        .vdev(&format!("net_pcap1,tx_pcap={}", text(&output)));
    let mut testpmd = setup.start(&ns).unwrap();
    daemon.wait_lanes(2);
    assert!(daemon.ports().contains("net_pcap0"));
    let free = free_buffers(&mut testpmd);
    testpmd.command("start").unwrap();
    wait_sent(&mut testpmd, 1, count);
    testpmd.command("stop").unwrap();
    assert_eq!(free_buffers(&mut testpmd), free, "every buffer is back");
    assert!(testpmd.quit().unwrap().success());

    let [received, returned, freed, refused, held] = last_tally(&testpmd.transcript(), "net_pcap0", 0);
    assert_eq!((received, returned, freed), (PACKETS.into(), count, u64::from(PACKETS) - count));
    assert_eq!((refused, held), (0, 0));
    let unowned = sent.iter().filter(|f| f[32] == 9).count() as u64;
    assert_eq!(daemon.p4vm(0).judged() + daemon.p4vm(1).judged(), u64::from(PACKETS) - unowned);
    let got = by_flow(frames::read(&output));
    for (flow, want) in &want {
        let got = got.get(flow).map(Vec::as_slice).unwrap_or_default();
        let numbers = |frames: &[Vec<u8>]| frames.iter().map(|f| serial_of(f)).collect::<Vec<_>>();
        assert_eq!(numbers(got), numbers(want), "flow {flow:?}");
        assert!(got == want, "flow {flow:?}: what came out is not what the program made");
    }
}

const VLAN: [u8; 2] = [0x81, 0];

fn tagged(frame: &[u8], vlan: u16) -> Vec<u8> {
    [&frame[..12], &VLAN, &vlan.to_be_bytes(), &frame[12..]].concat()
}

/// Drops VLAN 100, and changes the last byte of packets of VLAN 300.
fn by_vlan(front: &[u8]) -> Does {
    match (&front[12..14], u16::from_be_bytes([front[14], front[15]])) {
        (tag, 100) if tag == VLAN => Does::Drop,
        (tag, 300) if tag == VLAN => {
            let mut new = front.to_vec();
            *new.last_mut().unwrap() = 0xee;
            Does::Rewrite(new)
        }
        _ => Does::Pass,
    }
}

/// A device that moves tags out of packets hides them from no program.
#[test]
fn rules_about_vlans_hold_where_the_device_strips_tags() {
    if !usable(Testpmd::usable()) {
        return;
    }
    let cloud = Cloud::new("10s", "");
    let daemon = cloud.daemon(by_vlan);
    let output = cloud.file("out.pcap");
    let (ns, peer) = (nowhere(), NetNs::create("wire").unwrap());
    // testpmd describes each packet from its forwarding thread, even into the middle of a prompt. So no
    // packet arrives while a command runs.
    ns.disable_ipv6().unwrap();
    peer.disable_ipv6().unwrap();
    ns.veth("d0", &peer, "eth0").unwrap();
    let setup =
        testpmd(&cloud).vdev("net_af_packet0,iface=d0").vdev(&format!("net_pcap1,tx_pcap={}", text(&output)));
    let mut testpmd = setup.start(&ns).unwrap();
    daemon.wait_lanes(2);
    for command in ["port stop 0", "port config 0 rx_offload vlan_strip on", "port start 0", "set verbose 1"]
    {
        testpmd.command(command).unwrap();
    }
    daemon.wait_lanes(2);
    testpmd.command("start").unwrap();
    let frames: Vec<_> = (0..4).map(|n| frame(n, 7, 1, 1, 100)).collect();
    let vlans = [Some(100), Some(200), Some(300), None];
    let sent: Vec<_> = frames.iter().zip(vlans).map(|(f, v)| v.map_or(f.clone(), |v| tagged(f, v))).collect();
    // The restarted port's lane gets its channel in its own time. The program drops VLAN 100.
    wait_until("the first verdict", 60, || {
        frames::send(&peer, "eth0", &sent[..1]);
        daemon.p4vm(0).judged() > 0
    })
    .unwrap_or_else(|e| panic!("{e}\n{}", testpmd.transcript()));
    frames::send(&peer, "eth0", &sent);
    wait_until("packets on their way out", 60, || {
        testpmd.transcript().matches("src=02:00:00:00:00:07").count() >= 3
    })
    .unwrap_or_else(|e| panic!("{e}\n{}", testpmd.transcript()));
    testpmd.command("stop").unwrap();
    assert!(testpmd.quit().unwrap().success());
    let got = frames::read(&output);
    let mut want = frames[1..].to_vec();
    *want[1].last_mut().unwrap() = 0xee;
    assert_eq!(got, want, "what the application asked for: packets without tags");
    let said = testpmd.transcript();
    let tags: Vec<_> = said.lines().filter_map(|l| l.split("VLAN tci=").nth(1)).collect();
    let tags: Vec<_> = tags.iter().filter_map(|t| t.split_whitespace().next()).collect();
    assert_eq!(tags, ["0xc8", "0x12c"], "{said}");
}

/// Has testpmd send packets to itself until many are held, of `free` buffers, and take the last
/// ones out of the ring.
fn fill(testpmd: &mut Testpmd, free: u64) {
    testpmd.command("set fwd flowgen").unwrap();
    testpmd.command("start").unwrap();
    wait_until("packets that are held", 30, || free_buffers(testpmd) + 1000 < free)
        .unwrap_or_else(|e| panic!("{e}\n{}", testpmd.transcript()));
    testpmd.command("stop").unwrap();
    testpmd.command("set fwd rxonly").unwrap();
    testpmd.command("start").unwrap();
    let mut stats = || testpmd.stats(0).unwrap();
    wait_until("an empty ring", 30, || stats() == stats()).unwrap();
    testpmd.command("stop").unwrap();
}

/// Stopping, changing queues, unplugging: whatever a port goes through while packets are held, the
/// pool gets all back.
#[test]
fn a_removed_port_leaves_no_packet_behind() {
    if !usable(Testpmd::usable()) {
        return;
    }
    let cloud = Cloud::new("10s", "");
    let daemon = cloud.daemon(program);
    daemon.p4vm(0).becomes(Mood::Stops);
    let ns = nowhere();
    let setup = testpmd(&cloud).vdev("net_ring0").argument("--flowgen-flows=1");
    let mut testpmd = setup.start(&ns).unwrap();
    let free = free_buffers(&mut testpmd);
    let check = |testpmd: &mut Testpmd, when: &str| {
        assert_eq!(free_buffers(testpmd), free, "{when}\n{}", testpmd.transcript());
    };
    for queues in [1, 2, 1] {
        testpmd.command("port stop all").unwrap();
        daemon.wait_lanes(0);
        testpmd.command(&format!("port config all rxq {queues}")).unwrap();
        testpmd.command(&format!("port config all txq {queues}")).unwrap();
        testpmd.command("port start all").unwrap();
        daemon.wait_lanes(queues);
        fill(&mut testpmd, free);
        testpmd.command("port stop all").unwrap();
        check(&mut testpmd, "after a stop");
        testpmd.command("port start all").unwrap();
    }
    fill(&mut testpmd, free);
    testpmd.command("port stop 0").unwrap();
    testpmd.command("port detach 0").unwrap();
    daemon.wait_lanes(0);
    check(&mut testpmd, "after a device was unplugged");
    testpmd.command("port attach net_ring1").unwrap();
    testpmd.command("port start all").unwrap();
    daemon.wait_lanes(1);
    fill(&mut testpmd, free);
    assert!(testpmd.quit().unwrap().success(), "{}", testpmd.transcript());
    let [received, returned, freed, refused, held] = last_tally(&testpmd.transcript(), "net_ring1", 0);
    assert_eq!((received, returned, refused, held), (freed, 0, 0, 0));
}

/// The library goes on by the tenants' policies without a daemon, and heals when one comes.
#[test]
fn daemons_come_and_go() {
    if !usable(Testpmd::usable()) {
        return;
    }
    let cloud = Cloud::new("10s", "");
    let input = cloud.file("in.pcap");
    frames::write(&input, &(0..64).map(|n| frame(8 * n, 7, 1, 1, 64)).collect::<Vec<_>>());
    let ns = nowhere();
    let source = format!("net_pcap0,rx_pcap={},infinite_rx=1", text(&input));
    let mut testpmd = testpmd(&cloud).vdev(&source).vdev("net_null1,no-rx=1").start(&ns).unwrap();
    testpmd.command("start").unwrap();
    for _ in 0..2 {
        let daemon = cloud.daemon(program);
        wait_until("packets that are judged", 60, || daemon.p4vm(0).judged() > 10_000).unwrap();
        let sent = testpmd.stats(1).unwrap().tx_packets;
        wait_sent(&mut testpmd, 1, sent + 10_000);
        drop(daemon);
        // alice drops: soon nothing more comes out.
        let mut before = testpmd.stats(1).unwrap();
        wait_until("the policy", 60, || {
            let now = testpmd.stats(1).unwrap();
            let stands = now.tx_packets == before.tx_packets;
            before = now;
            stands
        })
        .unwrap();
    }
    testpmd.command("stop").unwrap();
    assert!(testpmd.quit().unwrap().success());
    let [received, returned, freed, _, held] = last_tally(&testpmd.transcript(), "net_pcap0", 0);
    assert_eq!((received, held), (returned + freed, 0));
}
