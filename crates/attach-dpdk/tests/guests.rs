//! Guests with several queues, and guests that leave the cutting of long packets to others, at the distribution's Open
//! vSwitch over DPDK.

mod common;

use common::daemon::{Cloud, Daemon, Does, text, usable};
use common::frames::{self, flow_of, frame};
use common::switch::{PATIENCE, wait_sent};
use p4shield_testbed::dpdk::{OvsDpdk, OvsSetup, Testpmd, TestpmdSetup};
use p4shield_testbed::{NetNs, wait_until};
use std::path::{Path, PathBuf};

fn ovs(cloud: &Cloud) -> OvsSetup {
    let environment = cloud.environment().into_iter();
    environment.fold(OvsDpdk::setup(), |setup, (name, value)| setup.env(name, value))
}

/// A guest made of testpmd, whose virtio device's other end is a port of the switch.
fn guest(socket: &Path, queues: usize, extra: &str) -> TestpmdSetup {
    Testpmd::setup()
        .vdev(&format!("net_virtio_user0,path={},server=1,queues={queues}", text(socket)))
        .vdev(extra)
        .argument("--no-flush-rx")
        .argument("--disable-link-check")
        .argument(&format!("--rxq={queues}"))
        .argument(&format!("--txq={queues}"))
}

fn up(guest: &mut Testpmd) -> bool {
    guest.command("show port info 0").unwrap().contains("Link status: up")
}

/// The switch between alice's guest, with a queue for each input, and bob's with one. They do not send yet.
struct Way {
    switch: OvsDpdk,
    sender: Testpmd,
    receiver: Testpmd,
    output: PathBuf,
    _host: NetNs,
}

impl Way {
    /// `commands`: what alice's guest is told before its ports start.
    fn new(
        (cloud, daemon, setup): (&Cloud, &Daemon, OvsSetup),
        inputs: &[Vec<Vec<u8>>],
        commands: &[&str],
    ) -> Self {
        let host = NetNs::create("host").unwrap();
        let switch = setup.start(&host).unwrap();
        let sockets = ["alice", "bob"].map(|name| cloud.file(&format!("{name}.sock")));
        for (name, socket) in ["alice", "bob"].iter().zip(&sockets) {
            switch.add_vhost_client(name, socket).unwrap();
        }
        let output = cloud.file("out.pcap");
        let mut source = String::from("net_pcap1");
        for (n, input) in inputs.iter().enumerate() {
            let file = cloud.file(&format!("in{n}.pcap"));
            frames::write(&file, input);
            source += &format!(",rx_pcap={}", text(&file));
        }
        let sink = format!("net_pcap1,tx_pcap={}", text(&output));
        let mut receiver = guest(&sockets[1], 1, &sink).start(&host).unwrap();
        let sender = guest(&sockets[0], inputs.len(), &source).argument("--disable-device-start");
        let mut sender = sender.start(&host).unwrap();
        for command in commands.iter().chain(&["port start all"]) {
            sender.command(command).unwrap();
        }
        daemon.wait_lanes(inputs.len() + 1);
        wait_until("the guests' links", PATIENCE, || up(&mut sender) && up(&mut receiver))
            .unwrap_or_else(|e| panic!("{e}\n{}\n{}", sender.transcript(), receiver.transcript()));
        Self { switch, sender, receiver, output, _host: host }
    }

    /// Sends, and waits until so many have arrived.
    fn run(&mut self, packets: u64) {
        self.receiver.command("start").unwrap();
        self.sender.command("start").unwrap();
        wait_sent(&mut self.receiver, 1, packets);
    }

    /// Ends everything. What arrived.
    fn end(mut self) -> Vec<Vec<u8>> {
        for guest in [&mut self.sender, &mut self.receiver] {
            guest.quit().unwrap();
        }
        let status = self.switch.stop().unwrap();
        assert!(status.success(), "{status}\n{}", self.switch.log());
        frames::read(&self.output)
    }
}

#[test]
fn every_queue_of_a_guest_has_a_lane() {
    if !usable(OvsDpdk::usable().and(Testpmd::usable())) {
        return;
    }
    const EACH: u32 = 100;
    let cloud = Cloud::new("10s", "");
    let daemon = cloud.daemon(|_| Does::Pass);
    // Each queue has flows of its own.
    let inputs: Vec<Vec<_>> = (0..2_u32)
        .map(|queue| {
            (0..EACH).map(|n| frame(queue * EACH + n, 1, 2, (queue * 4 + n % 4) as u16, 200)).collect()
        })
        .collect();
    let mut way = Way::new((&cloud, &daemon, ovs(&cloud)), &inputs, &[]);
    way.run(u64::from(2 * EACH));
    assert_eq!(daemon.p4vm(0).judged(), u64::from(2 * EACH), "every packet of both queues, once");
    let got = way.end();
    for flow in 0..8 {
        let of_flow = |frames: &[Vec<u8>]| -> Vec<_> {
            frames.iter().filter(|f| flow_of(f) == flow).cloned().collect()
        };
        assert!(of_flow(&got) == of_flow(&inputs.concat()), "flow {flow} is whole and in order");
    }
}

/// A TCP packet that is longer than a frame on a wire, from alice to bob.
fn long_tcp(serial: u32) -> Vec<u8> {
    let mut b = frame(serial, 1, 2, (serial % 4) as u16, 8000);
    b[23] = 6;
    b[46..54].copy_from_slice(&[0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0]);
    b
}

/// What stays of it whoever completes headers: all behind TCP's.
fn payload(frame: &[u8]) -> &[u8] {
    &frame[54..]
}

/// With `userspace-tso-enable` guests hand over packets that are longer than a frame, in foreign buffers, with their
/// checksums undone and to be cut later.
#[test]
fn packets_that_a_guest_leaves_to_be_cut_are_judged_whole() {
    if !usable(OvsDpdk::usable().and(Testpmd::usable())) {
        return;
    }
    const PACKETS: u32 = 50;
    let cloud = Cloud::new("10s", "");
    let daemon = cloud.daemon(|_| Does::Pass);
    let input: Vec<_> = (0..PACKETS).map(long_tcp).collect();
    let setup = ovs(&cloud).other_config("userspace-tso-enable", "true");
    let commands = ["csum set ip hw 0", "csum set tcp hw 0", "tso set 1400 0", "set fwd csum"];
    let mut way = Way::new((&cloud, &daemon, setup), std::slice::from_ref(&input), &commands);
    let log = way.switch.log();
    assert!(log.contains("Segmentation Offloading support enabled"), "the switch was asked for it: {log}");
    way.run(PACKETS.into());
    assert_eq!(daemon.p4vm(0).judged(), u64::from(PACKETS));
    let got = way.end();
    assert!(got.iter().map(|f| payload(f)).eq(input.iter().map(|f| payload(f))), "whole and in order");
}
