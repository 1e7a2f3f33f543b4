//! Rewrites of real mbufs, from a pool that DPDK's own memory manager made.

#[path = "common/pool.rs"]
mod pool;

use p4shield_dpdk::mbuf::Mbuf;
use p4shield_frame::{Sum, ipv4, protocol, transport};
use p4shield_mediator::Packet;
use pool::{Pool, Whole};
use proptest::prelude::*;

/// `RTE_MBUF_F_*` that the tests use.
mod flag {
    pub(super) const RX_VLAN: u64 = 1;
    pub(super) const RX_RSS_HASH: u64 = 1 << 1;
    pub(super) const RX_L4_CKSUM_GOOD: u64 = 1 << 8;
    pub(super) const RX_L4_CKSUM_NONE: u64 = 1 << 8 | 1 << 3;
    pub(super) const RX_IP_CKSUM_GOOD: u64 = 1 << 7;
    pub(super) const RX_VLAN_STRIPPED: u64 = 1 << 6;
    pub(super) const RX_QINQ_STRIPPED: u64 = 1 << 15;
    pub(super) const RX_QINQ: u64 = 1 << 20;
    pub(super) const TX_TUNNEL_VXLAN: u64 = 1 << 45;
    pub(super) const TX_TCP_CKSUM: u64 = 1 << 52;
    pub(super) const TX_UDP_CKSUM: u64 = 3 << 52;
    pub(super) const TX_IPV4: u64 = 1 << 55;
}

fn udp(payload: usize) -> Vec<u8> {
    let mut b = vec![2; 12];
    b.extend([8, 0]);
    let total = u16::try_from(28 + payload).expect("short").to_be_bytes();
    b.extend([0x45, 0, total[0], total[1], 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    let len = u16::try_from(8 + payload).expect("short").to_be_bytes();
    b.extend([0, 1, 0, 2, len[0], len[1], 0xab, 0xcd]);
    b.extend((0..payload).map(|i| i as u8));
    b
}

/// What a rewrite should leave, on plain bytes.
fn expected(old: &[u8], old_len: usize, new: &[u8], total: usize) -> Vec<u8> {
    let mut bytes = new.to_vec();
    bytes.extend(&old[old_len..]);
    bytes.truncate(total);
    bytes
}

#[test]
fn a_head_grows_and_shrinks_in_place() {
    let pool = Pool::new(64, 2176);
    for (old_len, new_len) in [(34, 34), (34, 14), (34, 66), (34, 34 + 120), (34, 34 + 300), (0, 4), (60, 0)]
    {
        let bytes = udp(400);
        let mut packet = pool.packet(&[&bytes]);
        let new = vec![7; new_len];
        let total = bytes.len() - old_len + new_len;
        packet.replace_head(old_len, &new, total).expect("there is room");
        let whole = Whole::of(packet);
        assert_eq!(whole.bytes, expected(&bytes, old_len, &new, total), "{old_len} -> {new_len}");
        assert!(whole.headroom >= 96, "a switch has room for a tunnel: {} bytes", whole.headroom);
    }
    assert_eq!(pool.free_count(), 64);
}

#[test]
fn a_head_that_has_no_room_is_refused() {
    let pool = Pool::new(8, 512);
    let mut packet = pool.packet(&[&udp(300)]);
    packet.replace_head(34, &[7; 400], 700).expect_err("512 bytes are too few");
    packet.free();
    assert_eq!(pool.free_count(), 8);
}

#[test]
fn lengths_out_of_range_are_refused() {
    let pool = Pool::new(8, 2176);
    for (old_len, new_len, total) in [(500, 1, 1), (14, 20, 19), (14, 20, 400), (14, 14, usize::MAX)] {
        let mut packet = pool.packet(&[&udp(100)]);
        packet.replace_head(old_len, &vec![1; new_len], total).expect_err("out of range");
        packet.free();
    }
    assert_eq!(pool.free_count(), 8);
}

#[test]
fn a_chain_is_cut_at_the_given_length() {
    let pool = Pool::new(64, 2176);
    let (front, middle, tail) = (udp(400), vec![1; 300], vec![2; 300]);
    let all: Vec<u8> = [&front[..], &middle, &tail].concat();
    for total in [100, front.len(), front.len() + 1, front.len() + 300, front.len() + 301, all.len()] {
        let mut packet = pool.packet(&[&front, &middle, &tail]);
        packet.replace_head(34, &front[..34], total).expect("there is room");
        assert_eq!(Whole::of(packet).bytes, all[..total], "{total}");
        assert_eq!(pool.free_count(), 64);
    }
}

/// A clone shares its bytes with another owner, who must not see the rewrite.
#[test]
fn a_shared_packet_is_copied_before_a_rewrite() {
    let pool = Pool::new(64, 2176);
    let bytes = udp(400);
    let original = pool.packet(&[&bytes, &[9; 50]]);
    let mut clone = pool.clone_of(&original);
    clone.replace_head(34, &[7; 40], 400).expect("there is memory");
    assert_eq!(Whole::of(clone).bytes, expected(&[&bytes[..], &[9; 50]].concat(), 34, &[7; 40], 400));
    assert_eq!(Whole::of(original).bytes, [&bytes[..], &[9; 50]].concat());
    assert_eq!(pool.free_count(), 64);
}

#[test]
fn a_clone_without_memory_for_a_copy_is_refused() {
    let (pool, clones) = (Pool::new(8, 2176), Pool::new(8, 0));
    let original = pool.packet(&[&udp(100)]);
    let mut clone = clones.clone_of(&original);
    clone.replace_head(34, &[7; 34], 142).expect_err("no memory to copy to");
    clone.free();
    assert_eq!(Whole::of(original).bytes, udp(100));
    assert_eq!((pool.free_count(), clones.free_count()), (8, 8));
}

#[test]
fn an_external_buffer_is_changed_only_if_exclusive() {
    let pool = Pool::new(16, 2176);
    let bytes = udp(3000);
    let mut alone = pool.external(&bytes);
    alone.packet().replace_head(34, &[7; 60], bytes.len() + 26).expect("there is room");
    assert_eq!(alone.take().bytes, expected(&bytes, 34, &[7; 60], bytes.len() + 26));

    let mut shared = pool.external(&bytes);
    let clone = pool.clone_of(shared.packet());
    shared.packet().replace_head(34, &[7; 60], bytes.len() + 26).expect("a copy has room");
    assert_eq!(Whole::of(clone).bytes, bytes);
    assert_eq!(shared.take().bytes, expected(&bytes, 34, &[7; 60], bytes.len() + 26));
    assert_eq!(pool.free_count(), 16);
}

/// Headers that come in pieces would not be recognised, and the packet would get past the program.
#[test]
fn scattered_headers_are_made_contiguous() {
    let pool = Pool::new(32, 2176);
    let bytes = udp(100);
    let mut packet = pool.packet(&[&bytes[..10], &bytes[10..30], &bytes[30..]]);
    assert!(!packet.is_whole());
    packet.make_whole().expect("there is memory");
    assert_eq!(packet.bytes(), bytes);
    packet.free();
    assert_eq!(pool.free_count(), 32);
    assert!(pool.packet_is_whole(&[&[0; 60]]), "short packets are whole");
    assert!(pool.packet_is_whole(&[&[0; 192], &[0; 60]]));
}

#[test]
fn offload_flags_of_old_headers_are_cleared() {
    let pool = Pool::new(8, 2176);
    let promises = flag::RX_RSS_HASH | flag::RX_IP_CKSUM_GOOD | flag::RX_L4_CKSUM_GOOD;
    let rewritten = |flags| {
        let bytes = udp(100);
        let mut packet = pool.packet(&[&bytes]);
        pool.set_flags(&packet, flags, [0, 0, 0]);
        packet.replace_head(34, &bytes[..34], bytes.len()).expect("there is room");
        Whole::of(packet).flags
    };
    assert_eq!(rewritten(promises), 0);
    let stripped = flag::RX_VLAN | flag::RX_VLAN_STRIPPED;
    assert_eq!(rewritten(promises | stripped), stripped, "the tag is not in the data");
    assert_eq!(rewritten(flag::RX_VLAN), 0, "the tag is in the data and may have changed");
}

const ONE_TAG: u64 = flag::RX_VLAN | flag::RX_VLAN_STRIPPED;
const TWO_TAGS: u64 = ONE_TAG | flag::RX_QINQ | flag::RX_QINQ_STRIPPED;

/// A packet whose tags the device moved beside it, and what it was on the wire.
fn stripped(pool: &Pool, bytes: &[&[u8]], flags: u64) -> (Mbuf, Vec<u8>) {
    let packet = pool.packet(bytes);
    pool.set_flags(&packet, flags | flag::RX_RSS_HASH, [0, 0, 0]);
    pool.set_tags(&packet, [100, 3_000]);
    let tags: &[u8] = match flags {
        ONE_TAG => &[0x81, 0, 0, 100],
        _ => &[0x88, 0xa8, 0x0b, 0xb8, 0x81, 0, 0, 100],
    };
    let all = bytes.concat();
    (packet, [&all[..12], tags, &all[12..]].concat())
}

/// A program that looks for a VLAN finds it, and the application finds the packet as the device left it.
#[test]
fn tags_that_a_device_took_out_are_in_the_packet() {
    let pool = Pool::new(64, 2176);
    let bytes = udp(100);
    for (flags, tags) in [(ONE_TAG, [100, 0]), (TWO_TAGS, [100, 3_000])] {
        for segments in [&[&bytes[..]][..], &[&bytes[..], &[9; 50]]] {
            let (mut packet, wire) = stripped(&pool, segments, flags);
            assert!(packet.is_stripped());
            packet.restore_tags().expect("there is room");
            assert_eq!(packet.bytes(), &wire[..packet.bytes().len()]);
            assert!(packet.len() == wire.len() && !packet.is_stripped());
            packet.strip_tags();
            let whole = Whole::of(packet);
            assert_eq!((whole.bytes, whole.tags), (segments.concat(), tags));
            assert_eq!(whole.flags & TWO_TAGS, flags);
            assert!(whole.flags & flag::RX_RSS_HASH != 0, "no other statement changes");
        }
    }
    assert_eq!(pool.free_count(), 64);
}

#[test]
fn a_program_changes_adds_and_removes_stripped_tags() {
    let pool = Pool::new(64, 2176);
    let bytes = udp(100);
    let cases: [(u64, &[u8], u64, [u16; 2]); 4] = [
        (ONE_TAG, &[0x81, 0, 0, 7], ONE_TAG, [7, 0]),
        (ONE_TAG, &[], 0, [0, 0]),
        (ONE_TAG, &[0x88, 0xa8, 0, 8, 0x81, 0, 0, 9], TWO_TAGS, [9, 8]),
        (TWO_TAGS, &[0x81, 0, 0, 6], ONE_TAG, [6, 0]),
    ];
    for (flags, tags, left, beside) in cases {
        let (mut packet, wire) = stripped(&pool, &[&bytes], flags);
        packet.restore_tags().expect("there is room");
        let new = [&bytes[..12], tags, &bytes[12..34]].concat();
        let old_len = wire.len() - bytes.len() + 34;
        packet.replace_head(old_len, &new, bytes.len() + tags.len()).expect("there is room");
        packet.strip_tags();
        let whole = Whole::of(packet);
        assert_eq!((whole.bytes, whole.tags), (bytes.clone(), beside), "{tags:x?}");
        assert_eq!(whole.flags & TWO_TAGS, left, "{tags:x?}");
    }
}

#[test]
fn tags_that_cannot_be_put_back_are_refused() {
    let pool = Pool::new(64, 2176);
    // Of two tags one is in the packet, and the device does not say which.
    let (mut packet, _) = stripped(&pool, &[&udp(100)], ONE_TAG | flag::RX_QINQ);
    packet.restore_tags().expect_err("ambiguous");
    packet.free();
    let (mut short, _) = stripped(&pool, &[&udp(100)[..12]], ONE_TAG);
    short.replace_head(12, &[], 0).expect("there is room");
    short.restore_tags().expect_err("there are no addresses");
    short.free();
    // Packets that the device says nothing of stay as they are.
    let mut plain = pool.packet(&[&udp(100)]);
    pool.set_tags(&plain, [100, 0]);
    assert!(!plain.is_stripped());
    plain.strip_tags();
    assert_eq!((Whole::of(plain).bytes, pool.free_count()), (udp(100), 64));
}

/// A clone's other owner keeps its bytes.
#[test]
fn tags_are_put_into_no_shared_buffer() {
    let pool = Pool::new(64, 2176);
    let (original, wire) = stripped(&pool, &[&udp(100)], ONE_TAG);
    let mut clone = pool.clone_of(&original);
    pool.set_flags(&clone, ONE_TAG, [0, 0, 0]);
    pool.set_tags(&clone, [100, 0]);
    clone.restore_tags().expect("there is memory");
    assert_eq!((Whole::of(clone).bytes, Whole::of(original).bytes), (wire, udp(100)));
}

/// The sum of the pseudo header 10.0.0.1 -> `last`, UDP, 108 bytes.
fn pseudo(last: u16) -> [u8; 2] {
    (0x0a00_u16 + 1 + 0x0a00 + last + 17 + 108).to_be_bytes()
}

#[test]
fn a_checksum_offload_request_stays_valid() {
    let pool = Pool::new(8, 2176);
    for flags in [flag::TX_UDP_CKSUM | flag::TX_IPV4, flag::RX_L4_CKSUM_NONE] {
        let bytes = udp(100);
        let mut packet = pool.packet(&[&bytes]);
        pool.set_flags(&packet, flags, [14, 20, 8]);
        // The program sends it elsewhere, puts a tag in front, and leaves nonsense in the checksum.
        let mut new = [&bytes[..12], &[0x81, 0, 0, 5], &bytes[12..42]].concat();
        new[37] = 9;
        new[44..46].copy_from_slice(&[0xde, 0xad]);
        packet.replace_head(42, &new, bytes.len() + 4).expect("there is room");
        let whole = Whole::of(packet);
        assert_eq!(whole.bytes[44..46], pseudo(9));
        assert_eq!(whole.flags, flags);
        if flags & flag::TX_IPV4 != 0 {
            assert_eq!(whole.offload & 0xff_ffff, 18 | 20 << 7 | 8 << 16, "lengths of the new headers");
        }
    }
    assert_eq!(pool.free_count(), 8);
}

#[test]
fn a_checksum_that_no_part_can_complete_is_refused() {
    let pool = Pool::new(8, 2176);
    let bytes = udp(100);
    let refused = |flags, new: &[u8], why: &str| {
        let mut packet = pool.packet(&[&bytes]);
        pool.set_flags(&packet, flags, [14, 20, 8]);
        packet.replace_head(42, new, bytes.len() - 42 + new.len()).expect_err(why);
        packet.free();
    };
    let mut icmp = bytes[..42].to_vec();
    icmp[23] = 1;
    refused(flag::TX_UDP_CKSUM | flag::TX_IPV4, &icmp, "another protocol");
    refused(flag::RX_L4_CKSUM_NONE, &icmp, "another protocol");
    refused(flag::RX_L4_CKSUM_NONE, &[&bytes[..42], &bytes[..42]].concat()[1..], "no headers any more");
    refused(flag::TX_TUNNEL_VXLAN | flag::TX_TCP_CKSUM, &bytes[..42], "headers within headers");
    assert_eq!(pool.free_count(), 8);
}

/// A frame in VXLAN over IPv4, with all checksums.
fn wrapped(inner: &[u8]) -> Vec<u8> {
    let mut b = udp(0);
    let len = u16::try_from(16 + inner.len()).expect("short").to_be_bytes();
    let total = u16::try_from(36 + inner.len()).expect("short").to_be_bytes();
    b[16..18].copy_from_slice(&total);
    ipv4::set_checksum(&mut b[14..34]);
    b[36..42].copy_from_slice(&[18, 181, len[0], len[1], 0, 0]);
    b.extend([8, 0, 0, 0, 0, 0, 7, 0]);
    b.extend(inner);
    let sum = transport::pseudo_header(&b[26..34], protocol::UDP, b.len() - 34) + Sum::of(&b[34..]);
    b[40..42].copy_from_slice(&sum.udp_checksum().to_be_bytes());
    b
}

/// Bytes of the headers around.
const OUTER: usize = 50;

#[test]
fn inner_packets_are_judged_alone_and_return_whole() {
    let pool = Pool::new(32, 2176);
    let inner = udp(301);
    let frame = wrapped(&inner);
    let mut packet = pool.packet(&[&frame]);
    packet.hide(OUTER).expect("it is in one piece");
    assert_eq!((packet.bytes(), packet.len(), packet.hidden()), (&inner[..], inner.len(), OUTER));
    packet.show();
    assert_eq!(packet.hidden(), 0);
    assert_eq!(Whole::of(packet).bytes, frame);
    let mut short = pool.packet(&[&frame[..20]]);
    short.hide(OUTER).expect_err("there are no such headers");
    short.free();
    assert_eq!(pool.free_count(), 32);
}

#[test]
fn inner_rewrites_update_the_outer_headers_or_are_refused() {
    let pool = Pool::new(32, 2176);
    let inner = udp(301);
    let frame = wrapped(&inner);
    for (old_len, new_len, total) in [(34, 34, 343), (34, 61, 370), (42, 21, 322), (34, 40, 200), (0, 7, 7)] {
        let new: Vec<u8> = (0..new_len).map(|i| i as u8 ^ 0x5a).collect();
        for parts in [&[&frame[..]][..], &[&frame[..200], &frame[200..301], &frame[301..]]] {
            let original = pool.packet(parts);
            let mut packet = pool.clone_of(&original);
            packet.hide(OUTER).expect("it is in one piece");
            packet.replace_head(old_len, &new, total).expect("it fits");
            let want = expected(&inner, old_len, &new, total);
            assert_eq!(packet.len(), want.len());
            packet.show();
            assert!(Whole::of(packet).bytes == wrapped(&want), "{old_len} -> {new_len} of {total}");
            assert!(Whole::of(original).bytes == frame, "who holds the same bytes sees nothing of it");
        }
    }
    for flags in [flag::TX_UDP_CKSUM | flag::TX_IPV4, flag::RX_L4_CKSUM_NONE] {
        let mut packet = pool.packet(&[&frame]);
        pool.set_flags(&packet, flags, [14, 20, 8]);
        packet.hide(OUTER).expect("it is in one piece");
        packet.replace_head(34, &[7; 34], inner.len()).expect_err("a checksum offload is pending");
        packet.free();
    }
    assert_eq!(pool.free_count(), 32);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever a rewrite is asked to do, with whatever segments: it does that or refuses, DPDK
    /// finds the packet sound, and every buffer comes back.
    #[test]
    fn any_rewrite_is_exact_and_loses_no_buffer(
        segments in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..400), 1..5),
        old_len in 0_usize..300,
        new in prop::collection::vec(any::<u8>(), 0..500),
        total in 0_usize..1800,
        flags in prop::sample::select(vec![0, flag::TX_UDP_CKSUM | flag::TX_IPV4, flag::RX_L4_CKSUM_NONE]),
        clone in any::<bool>(),
    ) {
        let pool = Pool::new(32, 700);
        let parts: Vec<&[u8]> = segments.iter().map(Vec::as_slice).collect();
        let original = pool.packet(&parts);
        let mut packet: Mbuf;
        let keep = if clone {
            packet = pool.clone_of(&original);
            Some(original)
        } else {
            packet = original;
            None
        };
        pool.set_flags(&packet, flags, [14, 20, 8]);
        let all = segments.concat();
        let done = packet.replace_head(old_len, &new, total).is_ok();
        let whole = Whole::of(packet);
        if done && flags == 0 {
            prop_assert_eq!(whole.bytes, expected(&all, old_len, &new, total));
        }
        if let Some(original) = keep {
            prop_assert_eq!(Whole::of(original).bytes, all);
        }
        prop_assert_eq!(pool.free_count(), 32);
    }
}
