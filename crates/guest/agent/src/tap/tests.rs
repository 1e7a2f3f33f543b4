//! The kernel's programs against the mediator's rule and the digest in Rust, on generated frames.

use super::maps::{Settings, Tally, address_key};
use super::ring::Ring;
use super::{Direction, OBJECT};
use libbpf_rs::{MapCore, MapFlags, MapHandle, Object, ObjectBuilder, ProgramInput};
use p4shield_mediator::{Kind, classify};
use p4shield_seal::PacketDigest;
use p4shield_testbed::{Frames, frames};
use std::net::IpAddr;

const KEY: [u8; 16] = *b"0123456789abcdef";
/// The key that a rotation brings.
const OTHER_KEY: [u8; 16] = *b"fedcba9876543210";
/// Bytes that digests cover: not a multiple of a word's, nor all that fit.
const COVER: u32 = 99;
/// Frames of each of four runs; each is run whole and cut off.
const FRAMES: usize = 250_000;
/// Frames after which the counts are compared; the kernel remembers the sums of more.
const BATCH: usize = 20_000;

/// The tap's programs, loaded and attached nowhere.
struct Loaded {
    object: Object,
    tallies: MapHandle,
    ring: Ring,
}

impl Loaded {
    fn new(addresses: &[IpAddr]) -> Self {
        let object = ObjectBuilder::default().open_memory(&OBJECT.0).unwrap().load().unwrap();
        let settings = Settings {
            keys: [KEY, OTHER_KEY].map(|k| Some(k.into())),
            cover: COVER,
            every_ip: addresses.is_empty(),
        };
        settings.store(&map(&object, "settings")).unwrap();
        for address in addresses {
            map(&object, "addresses").update(&address_key(*address), &[1], MapFlags::ANY).unwrap();
        }
        let ring = Ring::map(&map(&object, "histories")).unwrap();
        Self { tallies: map(&object, "tallies"), object, ring }
    }
}

fn map(object: &Object, name: &str) -> MapHandle {
    MapHandle::try_from(&object.maps().find(|m| m.name() == name).unwrap()).unwrap()
}

/// Reports whether a mediator judges a frame of a VM with these addresses; without any, the port is the
/// VM's own.
fn is_judged(frame: &[u8], direction: Direction, addresses: &[IpAddr]) -> bool {
    let kind = classify(frame, frame.len());
    let own_port = addresses.is_empty() && !kind.is_exempt(direction);
    own_port || kind.vm_address(direction).is_some_and(|address| addresses.contains(&address))
}

/// Runs frames through a program of the kernel, and compares what it counts and sums up with what Rust does.
fn compare(direction: Direction, addresses: &[IpAddr], seed: u64) {
    let Loaded { object, tallies, ring } = Loaded::new(addresses);
    let name = if direction == Direction::Ingress { "tap_xdp" } else { "tap_egress" };
    let program = object.progs_mut().find(|p| p.name() == name).unwrap();
    let digests = [KEY, OTHER_KEY].map(|key| PacketDigest::new(&key));
    let (mut generator, mut frame) = (Frames::new(seed), Vec::new());
    let (mut judged, mut others, mut sums) = (0, 0, [0_u64; 2]);
    // Of ARP, neighbour discovery, routers' advertisements, and refused frames.
    let mut found = [0; 4];
    // What each packet of a batch is expected to leave in the history.
    let mut expected = Vec::with_capacity(2 * BATCH);
    for n in 1..=FRAMES {
        generator.fill(&mut frame);
        // At tc the kernel runs no frame that ends before the payload or within an untagged IP
        // header; at XDP it does.
        let cut = 15 + generator.below(frame.len() - 14);
        for bytes in [&frame[..], &frame[..cut.min(frame.len())]] {
            let run = program.test_run(ProgramInput { data_in: Some(bytes), ..ProgramInput::default() });
            if let Err(error) = run {
                let cut_off = direction == Direction::Egress && classify(bytes, bytes.len()) == Kind::Other;
                assert!(cut_off, "{error}: {bytes:02x?}");
                continue;
            }
            match classify(bytes, bytes.len()) {
                Kind::Arp(_) => found[0] += 1,
                Kind::Discovery(message) => found[1 + usize::from(message.is_router)] += 1,
                Kind::Refused => found[3] += 1,
                Kind::V4 { .. } | Kind::V6 { .. } | Kind::Other => {}
            }
            if is_judged(bytes, direction, addresses) {
                let covered = bytes.len().min(COVER as usize);
                for (sum, digest) in sums.iter_mut().zip(&digests) {
                    *sum = sum.wrapping_add(digest.digest(&bytes[..covered], bytes.len() as u32));
                }
                expected.push((sums, bytes.to_vec()));
            } else {
                others += 1;
            }
        }
        if n % BATCH == 0 || n == FRAMES {
            for (sums, bytes) in expected.drain(..) {
                judged += 1;
                let kernels = [0, 1].map(|key| ring.load(direction, key, judged));
                assert_eq!(kernels, sums, "packet {judged} that Rust judges, {direction:?}: {bytes:02x?}");
            }
            let counts = Tally::load(&tallies, direction).unwrap().counts;
            let counted = (counts.packets, counts.others, counts.not_whole);
            assert_eq!(counted, (judged as u64, others, 0), "after {n} frames");
        }
    }
    assert!(found.iter().all(|count| *count > FRAMES / 1000), "{found:?}");
    let least = if addresses.is_empty() { FRAMES / 40 } else { FRAMES / 8 };
    assert!(judged > FRAMES / 8 && others > least as u64, "{judged} {others}");
}

/// A million frames, whole and cut off: VLAN tags of every type, IPv4 with options and fragments,
/// IPv6 with extension headers and neighbour discovery, ARP, LLC, MPLS, tunnels, flipped bits; at
/// XDP towards the VM and at tc from it; on a wire, where every packet is the VM's, and on a
/// port that VMs share. Compared are the rule of what is judged (`p4shield_mediator::Kind`) and
/// the digest with the checksum that it leaves out (`p4shield_frame::transport::digest_checksum`).
#[test]
fn the_kernel_judges_and_digests_a_million_frames_as_rust_does() {
    if let Err(why) = p4shield_testbed::usable() {
        p4shield_need::skip("machine", why);
        return;
    }
    let vm = [IpAddr::from(frames::V4[0]), IpAddr::from(frames::V6[0])];
    std::thread::scope(|s| {
        s.spawn(|| {
            compare(Direction::Ingress, &[], 1);
            compare(Direction::Egress, &vm, 2);
        });
        s.spawn(|| {
            compare(Direction::Egress, &[], 3);
            compare(Direction::Ingress, &vm, 4);
        });
    });
}
