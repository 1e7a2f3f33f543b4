//! A tenant's P4 VM does its worst; the other tenant's packets, and every buffer, are none the worse for it.

mod common;

use common::daemon::{Cloud, Daemon, Does, Mood, text, usable};
use common::frames::{self, frame};
use common::switch::{free_buffers, last_tally, nowhere, testpmd, wait_sent};
use p4shield_need::extent;
use p4shield_testbed::dpdk::Testpmd;
use std::time::Duration;

const MOODS: [Mood; 5] = [Mood::Stops, Mood::Spins, Mood::Garbage, Mood::Twice, Mood::NeverAsked];

fn pass(_: &[u8]) -> Does {
    Does::Pass
}

/// A switch between an endless source and a sink.
struct Switch {
    testpmd: Testpmd,
    free: u64,
    name: &'static str,
}

impl Switch {
    /// Half of the packets are alice's, half bob's.
    fn start(cloud: &Cloud, ns: &p4shield_testbed::NetNs) -> Self {
        let input = cloud.file("in.pcap");
        let packets: Vec<_> = (0..256).map(|n| frame(n, 7, 1 + (n % 2) as u8, n as u16 / 2, 64)).collect();
        frames::write(&input, &packets);
        let source = format!("net_pcap0,rx_pcap={},infinite_rx=1", text(&input));
        let mut testpmd = testpmd(cloud).vdev(&source).vdev("net_null1,no-rx=1").start(ns).unwrap();
        let free = free_buffers(&mut testpmd);
        Self { testpmd, free, name: "net_pcap0" }
    }

    /// Forwards `packets` more.
    fn forward(&mut self, packets: u64) {
        let sent = self.testpmd.stats(1).unwrap().tx_packets;
        wait_sent(&mut self.testpmd, 1, sent + packets);
    }

    /// Packets of bob's, half of all, for each second that the polling thread works, over so long.
    /// Its own time and not the clock's: what else runs on the machine is not the P4 VM's doing.
    fn rate(&mut self, time: Duration) -> f64 {
        let (worked, before) = (self.polled(), self.testpmd.stats(0).unwrap().rx_packets);
        std::thread::sleep(time);
        let received = self.testpmd.stats(0).unwrap().rx_packets - before;
        received as f64 / 2.0 / (self.polled() - worked).as_secs_f64()
    }

    /// What the polling thread has worked so far.
    fn polled(&self) -> Duration {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.testpmd.pid().as_raw_nonzero())).unwrap();
        let file = |task: &std::fs::DirEntry, name| std::fs::read_to_string(task.path().join(name)).unwrap();
        let mut tasks = tasks.map(Result::unwrap);
        let worker = tasks.find(|task| file(task, "comm").contains("worker")).expect("a thread that polls");
        // Nanoseconds on a processor come first (proc(5), schedstat).
        let worked = file(&worker, "schedstat");
        Duration::from_nanos(worked.split(' ').next().and_then(|n| n.parse().ok()).expect("a number"))
    }

    /// Stops, and shows that nothing is lost.
    fn end(mut self) -> u64 {
        self.testpmd.command("stop").unwrap();
        self.testpmd.command("port stop 0").unwrap();
        assert_eq!(free_buffers(&mut self.testpmd), self.free, "every buffer is back");
        assert!(self.testpmd.quit().unwrap().success(), "{}", self.testpmd.transcript());
        let [received, returned, freed, refused, held] = last_tally(&self.testpmd.transcript(), self.name, 0);
        assert_eq!((received, refused, held), (returned + freed, 0, 0));
        received
    }
}

fn offend(daemon: &Daemon, mood: Mood) {
    daemon.p4vm(0).becomes(mood);
}

#[test]
fn a_hostile_p4_vm_costs_no_buffer_and_no_neighbours_packet() {
    if !usable(Testpmd::usable()) {
        return;
    }
    let ns = nowhere();
    for mood in MOODS {
        let cloud = Cloud::new("1ms", "");
        let daemon = cloud.daemon(pass);
        let mut switch = Switch::start(&cloud, &ns);
        daemon.wait_lanes(2);
        switch.testpmd.command("start").unwrap();
        switch.forward(20_000);
        offend(&daemon, mood);
        // alice drops what is not judged, so what comes out from now on is bob's.
        switch.forward(40_000);
        let before = daemon.p4vm(1).judged();
        switch.forward(20_000);
        assert!(daemon.p4vm(1).judged() > before, "{mood:?}: bob's P4 VM is still asked");
        switch.end();
    }
}

/// The rate of the other tenant's packets against that before; ten million with `P4SHIELD_EFFORT=full`.
#[test]
fn many_packets_beside_a_hostile_p4_vm_lose_no_buffer() {
    if !usable(Testpmd::usable()) {
        return;
    }
    let (ns, mut total) = (nowhere(), 0);
    let (measured, packets) =
        extent((Duration::from_millis(500), 80_000), (Duration::from_secs(3), 2_200_000));
    for mood in MOODS {
        let cloud = Cloud::new("1ms", "");
        let daemon = cloud.daemon(pass);
        let mut switch = Switch::start(&cloud, &ns);
        daemon.wait_lanes(2);
        switch.testpmd.command("start").unwrap();
        switch.forward(10_000);
        let before = switch.rate(measured);
        offend(&daemon, mood);
        let during = switch.rate(measured);
        switch.forward(packets);
        let received = switch.end();
        total += received;
        println!(
            "{mood:?}: bob's packets for each second of polling {before:.0} -> {during:.0} ({:.0} %)",
            100.0 * during / before
        );
    }
    println!("{total} packets in all");
    assert!(total >= MOODS.len() as u64 * packets, "{total}");
}
