//! Checksums of generated packets, undone and done, against an oracle that sums byte by byte.

use super::*;
use p4shield_frame::ethernet::TAG_TYPES;
use p4shield_testbed::Frames;
use proptest::prelude::*;

/// A frame with TCP or UDP, its checksum left undone as a kernel leaves it.
#[derive(Clone, Debug)]
struct Shape {
    tags: usize,
    v6: bool,
    udp: bool,
    options: usize,
    payload: Vec<u8>,
    padding: usize,
    seed: [u8; 32],
}

fn shapes() -> impl Strategy<Value = Shape> {
    (
        0..3usize,
        any::<bool>(),
        any::<bool>(),
        0..4usize,
        prop::collection::vec(any::<u8>(), 0..200),
        0..20usize,
        any::<[u8; 32]>(),
    )
        .prop_map(|(tags, v6, udp, options, payload, padding, seed)| Shape {
            tags,
            v6,
            udp,
            options,
            payload,
            padding,
            seed,
        })
}

/// Sum of big-endian words, the slow and obvious way.
fn oracle(parts: &[&[u8]]) -> u16 {
    let all: Vec<u8> = parts.concat();
    let mut sum = 0u32;
    for pair in all.chunks(2) {
        sum += u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The frame, where its segment starts, and the sum of its pseudo-header.
fn build(s: &Shape) -> (Vec<u8>, usize, u16) {
    let mut f = s.seed[..12].to_vec();
    for n in 0..s.tags {
        f.extend(TAG_TYPES[(n + usize::from(s.seed[31])) % 3].to_be_bytes());
        f.extend([0x20, n as u8]);
    }
    let head = if s.udp { 8 } else { 20 };
    let length = head + s.payload.len();
    let protocol = if s.udp { 17 } else { 6 };
    let pseudo = if s.v6 {
        f.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        f.extend(((8 * s.options + length) as u16).to_be_bytes());
        f.extend([if s.options > 0 { 60 } else { protocol }, 64]);
        f.extend(s.seed);
        for n in (0..s.options).rev() {
            f.extend([if n == 0 { protocol } else { 60 }, 0, 1, 4, 0, 0, 0, 0]);
        }
        oracle(&[&s.seed, &(length as u32).to_be_bytes(), &[0, 0, 0, protocol]])
    } else {
        f.extend([8, 0, 0x45 + s.options as u8, 0]);
        f.extend(((20 + 4 * s.options + length) as u16).to_be_bytes());
        f.extend([0, 1, 0x40, 0, 64, protocol, 0, 0]);
        f.extend(&s.seed[..8]);
        f.extend(vec![1; 4 * s.options]);
        oracle(&[&s.seed[..8], &[0, protocol], &(length as u16).to_be_bytes()])
    };
    let at = f.len();
    f.extend(&s.seed[..head]);
    if s.udp {
        f[at + 4..at + 6].copy_from_slice(&(length as u16).to_be_bytes());
    }
    let field = at + if s.udp { 6 } else { 16 };
    f[field..field + 2].copy_from_slice(&pseudo.to_be_bytes());
    f.extend(&s.payload);
    f.extend(vec![0xee; s.padding]);
    (f, at, pseudo)
}

fn whole(s: &Shape, f: &[u8], at: usize, pseudo: u16) -> u16 {
    let head = if s.udp { 8 } else { 20 };
    oracle(&[&pseudo.to_be_bytes(), &f[at..at + head + s.payload.len()]])
}

proptest! {
    #[test]
    fn an_undone_checksum_becomes_right(s in shapes()) {
        let (mut f, at, pseudo) = build(&s);
        let before = f.clone();
        prop_assert!(complete(&mut f));
        prop_assert_eq!(whole(&s, &f, at, pseudo), 0xffff);
        prop_assert_eq!(is_right(&f), Some(true));
        let field = at + if s.udp { 6 } else { 16 };
        prop_assert_eq!(&f[..field], &before[..field]);
        prop_assert_eq!(&f[field + 2..], &before[field + 2..]);
        let done = f.clone();
        complete(&mut f);
        prop_assert_eq!(f, done, "completing twice changes nothing");
    }

    #[test]
    fn any_other_field_is_left_alone(s in shapes(), other: u16) {
        let (mut f, at, pseudo) = build(&s);
        prop_assume!(oracle(&[&other.to_be_bytes()]) % 0xffff != pseudo % 0xffff || (s.udp && other == 0));
        let field = at + if s.udp { 6 } else { 16 };
        f[field..field + 2].copy_from_slice(&other.to_be_bytes());
        let before = f.clone();
        prop_assert!(!complete(&mut f));
        prop_assert_eq!(f, before);
    }

    #[test]
    fn truncated_frames_are_left_alone(s in shapes(), cut in 0..300usize) {
        let (f, at, _) = build(&s);
        let head = if s.udp { 8 } else { 20 };
        let end = (at + head + s.payload.len() - 1).min(cut);
        let mut f = f[..end].to_vec();
        let before = f.clone();
        prop_assert!(!complete(&mut f));
        prop_assert_eq!(f, before);
    }
}

const UDP: Shape =
    Shape { tags: 0, v6: false, udp: true, options: 0, payload: Vec::new(), padding: 0, seed: [3; 32] };

#[test]
fn checksums_behind_every_tag_type_are_completed() {
    for (n, tag) in (0..).zip(TAG_TYPES) {
        for tags in 1..=2 {
            let seed = std::array::from_fn(|i| if i == 31 { n } else { 3 });
            let s = Shape { tags, payload: vec![7; 9], seed, ..UDP };
            let (mut f, at, pseudo) = build(&s);
            assert_eq!(f[12..14], tag.to_be_bytes());
            assert!(complete(&mut f), "{tag:x}");
            assert_eq!(whole(&s, &f, at, pseudo), 0xffff, "{tag:x}");
        }
    }
}

#[test]
fn fragments_are_left_alone() {
    let s = Shape { payload: vec![7; 40], ..UDP };
    for offset_and_flags in [[0x20, 0], [0, 1], [0x20, 9]] {
        let (mut f, ..) = build(&s);
        f[20..22].copy_from_slice(&offset_and_flags);
        assert!(!complete(&mut f));
    }
}

/// The campaign on generated frames, whole and cut off.
#[test]
fn arbitrary_frames_never_panic() {
    let total = p4shield_need::extent(1_000_000_u64, 20_000_000);
    let (mut frames, mut frame, mut done) = (Frames::new(0x9e37_79b9), Vec::new(), 0);
    while done < total {
        frames.fill(&mut frame);
        crate::fuzz_frame(&frame);
        let cut = frames.below(frame.len());
        crate::fuzz_frame(&frame[..cut]);
        done += (frame.len() + cut) as u64;
    }
}
