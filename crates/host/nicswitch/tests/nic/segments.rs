//! Packets that a sender leaves to its network device to be divided (GSO), in traffic control.

use std::num::NonZero;
use std::time::Instant;

use p4shield_frame::Sum;
use p4shield_links::limit_merging;
use p4shield_nicswitch::{Hook, NicSwitch as _, PortCounters, Reason, Software};
use p4shield_testbed::wait_until;

use crate::bed::*;
use crate::frames::{IPV4, IPV6, ethernet, ipv4, ipv6};
use crate::raw::Raw;

/// The way in which a packet is divided, by `gso_type` of `struct virtio_net_hdr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum By {
    Tcp4 = 1,
    Tcp6 = 4,
    Udp4 = 5,
}

impl By {
    /// The first byte behind the header of IP.
    const fn transport(self) -> usize {
        if matches!(self, Self::Tcp6) { 54 } else { 34 }
    }

    /// The protocol, the bytes of its header, and where in it the checksum is.
    const fn header(self) -> (u8, usize, u16) {
        if matches!(self, Self::Tcp4 | Self::Tcp6) { (6, 20, 16) } else { (17, 8, 6) }
    }

    /// Bytes of the headers of each frame.
    const fn headers(self) -> usize {
        self.transport() + self.header().1
    }

    /// Returns both addresses of IP in a frame.
    fn addresses(self, frame: &[u8]) -> &[u8] {
        if self == Self::Tcp6 { &frame[22..54] } else { &frame[26..34] }
    }

    /// Returns the sum of addresses, protocol and `length` that is part of the checksum of a frame.
    fn pseudo_header(self, frame: &[u8], length: usize) -> Sum {
        let protocol = self.header().0.into();
        Sum::of(self.addresses(frame)) + Sum::word(protocol) + Sum::word(length as u16)
    }
}

fn content(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at / 100) as u8).collect()
}

/// Returns a packet from a1 which is to be divided into segments, behind the header of virtio that says so.
fn undivided(by: By, bytes: usize, segment: u16) -> Vec<u8> {
    let (protocol, header, place) = by.header();
    let length = header + bytes;
    let mut transport = vec![0; header];
    transport[..4].copy_from_slice(&[0x13, 0x88, 0x13, 0x89]);
    if protocol == 6 {
        transport[12..14].copy_from_slice(&[0x50, 0x10]);
    } else {
        transport[4..6].copy_from_slice(&(length as u16).to_be_bytes());
    }
    let payload = [transport, content(bytes)].concat();
    let mut frame = match by {
        By::Tcp6 => ethernet(GA, A1, IPV6, &ipv6(v6(0xa1), v6(1), protocol, &payload)),
        _ => ethernet(GA, A1, IPV4, &ipv4(v4(0xa1), v4(1), protocol, &payload)),
    };
    // The number behind it would be a part of the last segment.
    frame.truncate(frame.len() - 8);
    let sum = by.pseudo_header(&frame, length).folded().to_be_bytes();
    let at = by.transport() + usize::from(place);
    frame[at..at + 2].copy_from_slice(&sum);
    // Flags: the checksum is undone.
    let mut virtio = vec![1, by as u8];
    // Bytes of headers, bytes of a segment; first byte under the checksum, the checksum's place behind it.
    let numbers = [by.headers() as u16, segment, by.transport() as u16, place];
    virtio.extend(numbers.into_iter().flat_map(u16::to_le_bytes));
    [virtio, frame].concat()
}

/// A switch at one of the two ways to compartments, with a sender at the VM a1 that divides nothing.
struct Scene {
    bed: Bed,
    switch: Software,
    sender: Raw,
}

impl Scene {
    fn build(are_direct: bool) -> Option<Self> {
        let bed = Bed::without_switch()?;
        for feature in ["tx", "tso"] {
            offload(&bed.ends, &end("a1"), [feature, "on"]);
        }
        // As in a compartment.
        bed.ends.inside(|| limit_merging(&end("ga"))).unwrap();
        let sender = Raw::open(&bed.ends, &end("a1")).with_offloads();
        let mut switch = Software::open(Hook::TrafficControl { are_direct }, &bed.folder).unwrap();
        bed.host.inside(|| switch.apply(&ports())).unwrap();
        Some(Self { bed, switch, sender })
    }

    /// Returns the counters of a1's port.
    fn counters(&self) -> PortCounters {
        let all = self.bed.host.inside(|| self.switch.counters()).unwrap();
        all.into_iter().find(|port| port.interface == "a1").unwrap()
    }

    /// Sends a packet, waits until the switch has it, and returns the counters of a1's port.
    fn send(&self, packet: &[u8]) -> PortCounters {
        let before = self.counters();
        self.sender.send(packet);
        wait_until("reception", 10, || self.counters().received_packets > before.received_packets).unwrap();
        self.counters()
    }

    /// Returns the frames of a1 that have arrived at the gateway.
    fn arrived(&self) -> Vec<Vec<u8>> {
        let socket = &self.bed.sockets["ga"];
        std::iter::from_fn(|| socket.receive()).filter(|frame| frame[6..12] == *A1.as_bytes()).collect()
    }

    /// Waits until so many frames of a1 have arrived, and no more.
    fn arrive(&self, count: usize) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        let all = wait_until("segments", 10, || {
            frames.extend(self.arrived());
            frames.len() >= count
        });
        all.unwrap_or_else(|e| panic!("{e}: {} of {count}; {:?}", frames.len(), self.counters()));
        assert_eq!(frames.len(), count);
        frames
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = self.bed.host.inside(|| self.switch.delete());
    }
}

#[test]
fn packets_of_vms_are_divided_for_compartments() {
    for are_direct in [false, true] {
        let Some(scene) = Scene::build(are_direct) else { return };
        for (by, bytes, segment) in [
            (By::Tcp4, 1000, 500),
            (By::Tcp4, 4000, 1400),
            (By::Tcp4, 60_000, 1460),
            (By::Tcp6, 9000, 1440),
            (By::Udp4, 5000, 1300),
        ] {
            let before = scene.counters();
            let packet = undivided(by, bytes, segment);
            let after = scene.send(&packet);
            let count = bytes.div_ceil(usize::from(segment));
            let frames = scene.arrive(count);
            let lengths = frames.iter().map(Vec::len);
            assert_eq!(after.received_packets - before.received_packets, count as u64, "{by:?}");
            assert_eq!(after.received_bytes - before.received_bytes, lengths.sum::<usize>() as u64);
            let parts: Vec<u8> = frames.iter().flat_map(|frame| &frame[by.headers()..]).copied().collect();
            assert_eq!(parts, content(bytes), "{by:?}");
            for frame in frames {
                let whole = &packet[10..];
                assert_eq!((&frame[..14], by.addresses(&frame)), (&whole[..14], by.addresses(whole)));
                assert!(frame.len() <= by.headers() + usize::from(segment));
                let transport = &frame[by.transport()..];
                let sum = by.pseudo_header(&frame, transport.len()) + Sum::of(transport);
                assert_eq!(sum.checksum(), 0, "the checksum of {frame:x?}");
            }
        }
    }
}

#[test]
fn packets_are_divided_whatever_the_port_can_do() {
    let Some(scene) = Scene::build(true) else { return };
    for feature in ["tx", "tso"] {
        offload(&scene.bed.host, "ga", [feature, "on"]);
    }
    scene.send(&undivided(By::Tcp4, 4000, 1400));
    assert!(scene.arrive(3).iter().all(|frame| frame.len() <= 1514));
}

#[test]
fn segments_must_fit_and_be_large() {
    let Some(scene) = Scene::build(true) else { return };
    // Two that are longer than the MTU; so many that they would fill queues, which count as one.
    for (count, segment) in [(2, 2000), (3, 499), (4, 1)] {
        let counters = scene.send(&undivided(By::Tcp4, 4000, segment));
        assert_eq!(counters.dropped(Reason::TooLong), count, "{segment}: {counters:?}");
    }
    assert_eq!(scene.arrived().len(), 0);
    scene.send(&undivided(By::Tcp4, 4000, 500));
    scene.arrive(8);
}

#[test]
fn a_rate_counts_the_frames_of_a_packet() {
    let Some(mut scene) = Scene::build(true) else { return };
    const RATE: u64 = 100;
    const FRAMES: usize = 40;
    let mut limited = ports();
    let a1 = limited.iter().position(|port| port.interface == "a1").unwrap();
    limited[a1].packet_rate = NonZero::new(RATE as u32);
    scene.bed.host.inside(|| scene.switch.apply(&limited)).unwrap();
    let (start, mut dropped) = (Instant::now(), 0);
    for _ in 0..20 {
        dropped = scene.send(&undivided(By::Tcp4, FRAMES * 1400, 1400)).dropped(Reason::Rate);
    }
    // It may send 64 at once, and passes as a whole if one frame does.
    let most = 64 + RATE * start.elapsed().as_secs() + RATE + FRAMES as u64;
    let passed = 20 * FRAMES as u64 - dropped;
    assert!((64..=most).contains(&passed), "{passed} of at most {most}");
}
