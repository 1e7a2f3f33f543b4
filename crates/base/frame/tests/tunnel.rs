//! Frames in VXLAN and Geneve: where they are found, and what a change inside does to the headers
//! around them.

use p4shield_frame::ipv6::MAX_EXTENSIONS;
use p4shield_frame::tunnel::{Datagram, Encapsulation, InnerChange, MAX_OUTER, Outer, OuterRefused};
use p4shield_frame::{Sum, ethernet, ipv4, protocol, transport, udp};
use p4shield_testbed::Frames;
use proptest::prelude::*;

const ETHERNET: usize = ethernet::HEADER_LEN;
const UDP: usize = udp::HEADER_LEN;

const LOCAL4: [u8; 4] = [192, 0, 2, 7];
const LOCAL6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];

/// How a packet is wrapped.
#[derive(Clone, Debug)]
struct Wrapping {
    tags: usize,
    v6: bool,
    /// Words of IPv4 options.
    ip_options: usize,
    kind: Encapsulation,
    /// Words of Geneve options.
    options: usize,
    checksum: bool,
}

const PLAIN: Wrapping =
    Wrapping { tags: 0, v6: false, ip_options: 0, kind: Encapsulation::Vxlan, options: 0, checksum: false };

fn geneve_in_v6() -> Wrapping {
    Wrapping { v6: true, kind: Encapsulation::Geneve, options: 3, checksum: true, ..PLAIN }
}

impl Wrapping {
    fn port(&self) -> u16 {
        match self.kind {
            Encapsulation::Vxlan => 4789,
            Encapsulation::Geneve => 6081,
        }
    }

    fn tunnel_header(&self) -> Vec<u8> {
        match self.kind {
            Encapsulation::Vxlan => vec![8, 0, 0, 0, 0, 0, 7, 0],
            Encapsulation::Geneve => {
                let mut header = vec![self.options as u8, 0, 0x65, 0x58, 0, 0, 7, 0];
                header.extend((0..self.options * 4).map(|i| i as u8));
                header
            }
        }
    }

    fn wrap(&self, inner: &[u8]) -> Vec<u8> {
        let tunnel = self.tunnel_header();
        let udp_len = (UDP + tunnel.len() + inner.len()) as u16;
        let mut frame = vec![2; 12];
        (0..self.tags).for_each(|_| frame.extend([0x81, 0, 0, 5]));
        if self.v6 {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(udp_len.to_be_bytes().into_iter().chain([protocol::UDP, 64]));
            frame.extend([3; 16].into_iter().chain(LOCAL6));
        } else {
            let header = 20 + self.ip_options * 4;
            frame.extend([8, 0, 0x40 | (header / 4) as u8, 0]);
            frame.extend((header as u16 + udp_len).to_be_bytes());
            frame.extend([0, 1, 0x40, 0, 64, protocol::UDP, 0, 0, 192, 0, 2, 1].into_iter().chain(LOCAL4));
            frame.extend((0..self.ip_options * 4).map(|_| 1));
        }
        frame.extend([0x80, 1].into_iter().chain(self.port().to_be_bytes()));
        frame.extend(udp_len.to_be_bytes().into_iter().chain([0, 0]));
        frame.extend(tunnel.iter().chain(inner));
        self.sum_up(&mut frame);
        frame
    }

    fn ip(&self) -> usize {
        14 + 4 * self.tags
    }

    fn udp(&self) -> usize {
        self.ip() + if self.v6 { 40 } else { 20 + self.ip_options * 4 }
    }

    fn inner(&self) -> usize {
        self.udp() + UDP + self.tunnel_header().len()
    }

    /// Computes all checksums anew.
    fn sum_up(&self, frame: &mut [u8]) {
        let (ip, udp) = (self.ip(), self.udp());
        if !self.v6 {
            ipv4::set_checksum(&mut frame[ip..]);
        }
        frame[udp + 6..udp + 8].fill(0);
        if self.checksum {
            let sum = self.udp_sum(frame).udp_checksum();
            frame[udp + 6..udp + 8].copy_from_slice(&sum.to_be_bytes());
        }
    }

    /// Over everything that UDP's checksum covers, the field as it is.
    fn udp_sum(&self, frame: &[u8]) -> Sum {
        let (ip, udp) = (self.ip(), self.udp());
        let addresses = if self.v6 { ip + 8..ip + 40 } else { ip + 12..ip + 20 };
        let pseudo = transport::pseudo_header(&frame[addresses], protocol::UDP, frame.len() - udp);
        pseudo + Sum::of(&frame[udp..])
    }
}

/// Where the inner frame is, if it is certain.
fn inner(frame: &[u8], kind: Encapsulation) -> Option<usize> {
    let datagram = Datagram::find(frame).filter(|datagram| !datagram.is_ambiguous)?;
    datagram.inner(frame, kind)
}

#[test]
fn inner_frames_are_found_in_every_wrapping() {
    for tags in 0..=2 {
        for (v6, ip_options) in [(false, 0), (false, 10), (true, 0)] {
            for (kind, options) in
                [(Encapsulation::Vxlan, 0), (Encapsulation::Geneve, 0), (Encapsulation::Geneve, 63)]
            {
                let wrapping = Wrapping { tags, v6, ip_options, kind, options, checksum: true };
                let frame = wrapping.wrap(&[7; ETHERNET]);
                assert_eq!(inner(&frame, kind), Some(wrapping.inner()), "{wrapping:?}");
                assert!(wrapping.inner() <= MAX_OUTER);
                for len in 0..frame.len() {
                    assert_eq!(inner(&frame[..len], kind), None, "{len}");
                }
            }
        }
    }
}

#[test]
fn headers_that_readers_differ_about_hide_the_frame() {
    let wrapping = geneve_in_v6();
    let frame = wrapping.wrap(&[7; 60]);
    let tunnel = wrapping.udp() + UDP;
    for (at, value) in [(tunnel, 0x40), (tunnel + 2, 8), (tunnel, 63)] {
        let mut frame = frame.clone();
        frame[at] = value;
        assert_eq!(inner(&frame, Encapsulation::Geneve), None, "{at} {value}");
    }
    let mut gpe = PLAIN.wrap(&[7; 60]);
    (gpe[42], gpe[45]) = (0x0c, 1);
    assert_eq!(inner(&gpe, Encapsulation::Vxlan), None);
    gpe[45] = 3;
    assert_eq!(inner(&gpe, Encapsulation::Vxlan), Some(50), "Ethernet by the extension's name");
    gpe[42] = 0x04;
    assert_eq!(inner(&gpe, Encapsulation::Vxlan), None, "the number is not valid");
    let ambiguous = |frame: &[u8]| {
        let found = Datagram::find(frame).expect("a datagram");
        assert!(found.is_ambiguous, "{frame:x?}");
        found.port
    };
    // Destination options, an authentication header, and a fragment that is none, before UDP.
    for (next, header) in
        [(60, [17, 0, 1, 4, 0, 0, 0, 0]), (51, [17, 0, 0, 0, 0, 0, 0, 1]), (44, [17, 0, 0, 0, 0, 0, 0, 1])]
    {
        let mut frame = [&frame[..54], &header, &frame[54..]].concat();
        frame[20] = next;
        assert_eq!(ambiguous(&frame), Some(6081));
    }
    // More headers than are followed, and one that is longer than what is seen.
    let many = [60, 0, 1, 4, 0, 0, 0, 0].repeat(MAX_EXTENSIONS);
    for header in [&many[..], &[17, 255, 1, 4, 0, 0, 0, 0]] {
        let mut frame = [&frame[..54], header, &[17, 0, 1, 4, 0, 0, 0, 0], &frame[54..]].concat();
        frame[20] = 60;
        assert_eq!(ambiguous(&frame), None);
    }
}

/// Without its first fragment a packet cannot be put together; the others do not say what they belong to.
#[test]
fn only_first_fragments_are_datagrams() {
    let v4 = PLAIN.wrap(&[7; 60]);
    let fragment = |word: [u8; 2], len: usize| {
        let mut frame = v4[..len].to_vec();
        frame[20..22].copy_from_slice(&word);
        Datagram::find(&frame)
    };
    for (len, port) in [(v4.len(), Some(4789)), (42, Some(4789)), (41, None), (34, None)] {
        let found = fragment([0x20, 0], len).expect("a datagram");
        assert!(found.is_ambiguous && found.port == port, "the first fragment, of {len} bytes");
    }
    for word in [[0x20, 1], [0, 1], [0x1f, 0xff]] {
        assert_eq!(fragment(word, v4.len()), None, "a later fragment");
    }
    let v6 = geneve_in_v6().wrap(&[7; 60]);
    let fragment = |word: [u8; 2], len: usize| {
        let mut frame = [&v6[..54], &[17, 0, word[0], word[1], 0, 0, 0, 1], &v6[54..]].concat();
        frame[20] = 44;
        Datagram::find(&frame[..len])
    };
    assert!(fragment([0, 1], 100).is_some_and(|found| found.is_ambiguous));
    assert!(fragment([0, 1], 58).is_some_and(|found| found.port.is_none()), "cut off before UDP");
    assert_eq!(fragment([0, 9], 100), None, "a later fragment");
}

#[test]
fn the_network_of_what_is_inside_is_read() {
    for wrapping in [PLAIN, geneve_in_v6(), Wrapping { ip_options: 10, tags: 2, ..PLAIN }] {
        let outer = &wrapping.wrap(&[7; 60])[..wrapping.inner()];
        let vni = Datagram::find(outer).and_then(|datagram| datagram.vni(outer));
        assert_eq!(vni, Some(7), "{wrapping:?}");
    }
}

/// Finds an inner frame in any bytes, and changes it.
fn inspect(frame: &[u8]) {
    for kind in [Encapsulation::Vxlan, Encapsulation::Geneve] {
        let Some(at) = Datagram::find(frame).and_then(|datagram| datagram.inner(frame, kind)) else {
            continue;
        };
        assert!(at + ETHERNET <= frame.len());
        let inner = &frame[at..];
        let (old_head, new_head) = (&inner[..ETHERNET], &frame[..ETHERNET + 1]);
        let (old_len, new_len) = (inner.len(), inner.len() + 1);
        let change = InnerChange { old_head, new_head, old_len, new_len, cut: Sum::default() };
        let _ = Outer::new(frame, at).and_then(|mut outer| outer.update(&change));
    }
}

#[test]
fn generated_frames_are_inspected_wherever_they_are_cut() {
    let (mut frames, mut frame, mut found) = (Frames::new(0x7475_6e6e), Vec::new(), 0);
    for _ in 0..20_000 {
        frames.fill(&mut frame);
        inspect(&frame);
        let cut = frames.below(frame.len());
        inspect(&frame[..cut]);
        found += usize::from(inner(&frame, Encapsulation::Vxlan).is_some());
    }
    assert!(found > 200, "{found}");
}

fn wrappings() -> impl Strategy<Value = Wrapping> {
    let kind = prop_oneof![Just(Encapsulation::Vxlan), Just(Encapsulation::Geneve)];
    (0_usize..3, any_bool(), 0_usize..4, kind, 0_usize..8, any_bool()).prop_map(
        |(tags, v6, ip_options, kind, options, checksum)| Wrapping {
            tags,
            v6,
            ip_options,
            kind,
            options: if kind == Encapsulation::Geneve { options } else { 0 },
            checksum,
        },
    )
}

fn any_bool() -> impl Strategy<Value = bool> {
    prop::bool::ANY
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Whatever changes inside, the headers are what they would be had the packet been wrapped so
    /// from the start; and if the checksum was wrong, it is wrong afterwards.
    #[test]
    fn updated_headers_are_those_of_a_fresh_packet(
        wrapping in wrappings(),
        inner in prop::collection::vec(prop::num::u8::ANY, ETHERNET..300),
        old_len in 0_usize..300,
        new_head in prop::collection::vec(prop::num::u8::ANY, 0..200),
        cut in 0_usize..300,
        damage in 0_u8..3,
    ) {
        let old_len = old_len.min(inner.len());
        let cut = cut.min(inner.len() - old_len);
        let mut frame = wrapping.wrap(&inner);
        let last = frame.len() - 1;
        let damaged = wrapping.checksum && damage == 1 && cut == 0 && old_len < inner.len();
        if damaged {
            frame[last] ^= 0x55;
        }
        let inner = &frame[wrapping.inner()..];
        let end = inner.len() - cut;
        let new_inner = [&new_head[..], &inner[old_len..end]].concat();
        let mut outer = Outer::new(&frame, wrapping.inner()).expect("headers");
        prop_assert_eq!(outer.bytes(), &frame[..wrapping.inner()]);
        outer.update(&InnerChange {
            old_head: &inner[..old_len],
            new_head: &new_head,
            old_len: inner.len(),
            new_len: new_inner.len(),
            cut: Sum::of(&inner[end..]),
        }).expect("it fits");
        let got = [outer.bytes(), &new_inner].concat();
        let mut want = wrapping.wrap(&new_inner);
        let right = wrapping.udp_sum(&got) == Sum::default();
        prop_assert!(!wrapping.checksum || right != damaged);
        if damaged {
            let checksum = wrapping.udp() + 6..wrapping.udp() + 8;
            want[checksum.clone()].copy_from_slice(&got[checksum]);
        }
        prop_assert_eq!(got, want);
    }

    #[test]
    fn any_bytes_are_inspected_and_updated_or_refused(
        bytes in prop::collection::vec(prop::num::u8::ANY, 0..200),
        flips in prop::collection::vec((0_usize..120, prop::num::u8::ANY), 0..4),
        wrapping in wrappings(),
    ) {
        inspect(&bytes);
        let mut frame = wrapping.wrap(&bytes);
        for (at, value) in flips {
            let at = at.min(frame.len() - 1);
            frame[at] = value;
        }
        inspect(&frame);
    }
}

#[test]
fn packets_that_fit_no_longer_are_refused() {
    let inner = vec![7; 1000];
    let frame = PLAIN.wrap(&inner);
    let change = |new_len| InnerChange {
        old_head: &inner[..14],
        new_head: &inner[..14],
        old_len: inner.len(),
        new_len,
        cut: Sum::default(),
    };
    let update = |frame: &[u8], new_len| Outer::new(frame, 50).and_then(|mut o| o.update(&change(new_len)));
    assert_eq!(update(&frame, 1000), Ok(()));
    assert_eq!(update(&frame, 65_500), Err(OuterRefused), "longer than IP can be");
    for place in [38, 16] {
        let mut wrong = frame.clone();
        wrong[place + 1] ^= 1;
        assert_eq!(
            update(&wrong, 1000),
            Err(OuterRefused),
            "the length at {place} is not that of the packet"
        );
    }
    assert!(Outer::new(&frame, 30).is_err() && Outer::new(&frame[..20], 50).is_err());
}
