//! Packets that a sender leaves to its network device to be divided (GSO), in traffic control.

use std::num::NonZero;
use std::time::Instant;

use p4shield_frame::Sum;
use p4shield_links::limit_merging;
use p4shield_nicswitch::{Hook, NicSwitch as _, PortCounters, Reason, Software};
use p4shield_testbed::wait_until;

use crate::bed::*;
use crate::frames::{IPV4, ethernet, ipv4};
use crate::raw::Raw;

/// Bytes of the headers of TCP over IPv4 in a frame.
const HEADERS: usize = 14 + 20 + 20;

/// Returns a packet of TCP from a1 which is to be divided into segments, behind the header of virtio that
/// says so.
fn undivided(bytes: usize, segment: u16) -> Vec<u8> {
    let (from, to) = (v4(0xa1), v4(1));
    let length = (20 + bytes) as u16;
    let addresses = Sum::of(&from.octets()) + Sum::of(&to.octets());
    let [high, low] = (addresses + Sum::word(6) + Sum::word(length)).folded().to_be_bytes();
    let header = [0x13, 0x88, 0x13, 0x89, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, high, low, 0, 0];
    let content: Vec<u8> = (0..bytes).map(|at| (at / 100) as u8).collect();
    let packet = ipv4(from, to, 6, &[&header[..], &content].concat());
    // Flags: the checksum is undone; type: TCP over IPv4.
    let mut virtio = vec![1, 1];
    // Bytes of headers, bytes of a segment; first byte under the checksum, the checksum's place behind it.
    virtio.extend([HEADERS as u16, segment, 34, 16].into_iter().flat_map(u16::to_le_bytes));
    // Without a number behind it, which would be a part of the last segment.
    let frame = ethernet(GA, A1, IPV4, &packet);
    [&virtio, &frame[..frame.len() - 8]].concat()
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
        let after = self.counters();
        let received = after.received_bytes - before.received_bytes;
        assert_eq!(received, packet.len() as u64 - 10, "it came as one: {after:?}");
        after
    }

    /// Returns the frames of TCP that have arrived at the gateway.
    fn arrived(&self) -> Vec<Vec<u8>> {
        let socket = &self.bed.sockets["ga"];
        std::iter::from_fn(|| socket.receive()).filter(|frame| frame.get(23) == Some(&6)).collect()
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
        for (bytes, segment) in [(1000, 500), (4000, 1400), (60_000, 1460)] {
            scene.send(&undivided(bytes, segment));
            let (mut frames, count) = (Vec::new(), bytes.div_ceil(usize::from(segment)));
            wait_until("segments", 10, || {
                frames.extend(scene.arrived());
                frames.len() >= count
            })
            .unwrap_or_else(|e| panic!("{e}: {} of {count}; {:?}", frames.len(), scene.counters()));
            assert_eq!(frames.len(), count);
            let content: Vec<u8> = frames.iter().flat_map(|frame| &frame[HEADERS..]).copied().collect();
            assert_eq!(content, (0..bytes).map(|at| (at / 100) as u8).collect::<Vec<_>>());
            for frame in frames {
                assert!(frame.len() <= HEADERS + usize::from(segment));
                let length = (frame.len() - 34) as u16;
                let pseudo = Sum::of(&frame[26..34]) + Sum::word(6) + Sum::word(length);
                assert_eq!((pseudo + Sum::of(&frame[34..])).checksum(), 0, "checksum of {frame:x?}");
            }
        }
    }
}

#[test]
fn segments_must_fit_and_be_large() {
    let Some(scene) = Scene::build(true) else { return };
    // Longer than the MTU; so many that a pair's ring cannot hold them.
    for (count, segment) in [(1, 2000), (2, 255), (3, 1)] {
        let counters = scene.send(&undivided(4000, segment));
        assert_eq!(counters.dropped(Reason::TooLong), count, "{segment}: {counters:?}");
    }
    assert_eq!(scene.arrived().len(), 0);
}

#[test]
fn no_checksum_of_a_segment_is_over_what_was_judged() {
    let Some(scene) = Scene::build(true) else { return };
    // Both are the source address.
    for [start, offset] in [[26, 0], [10, 16]] {
        let mut packet = undivided(4000, 500);
        packet[6..10].copy_from_slice(&[start, 0, offset, 0]);
        // Linux 6.11 and later sends no such packet.
        if scene.sender.try_send(&packet).is_ok() {
            wait_until("the drop", 10, || scene.counters().dropped(Reason::Checksum) > 0).unwrap();
        }
    }
    assert_eq!((scene.counters().delivered_packets, scene.arrived().len()), (0, 0));
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
        dropped = scene.send(&undivided(FRAMES * 1400, 1400)).dropped(Reason::Rate);
    }
    // It may send 64 at once, and passes as a whole if one frame does.
    let most = 64 + RATE * start.elapsed().as_secs() + RATE + FRAMES as u64;
    let passed = (20 - dropped) * FRAMES as u64;
    assert!((64..=most).contains(&passed), "{passed} of at most {most}");
}
