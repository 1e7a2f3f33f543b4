use super::*;
use p4shield_mediator::extensions::MAX_HEADERS;
use proptest::prelude::*;

const LOCAL4: [u8; 4] = [192, 0, 2, 7];
const LOCAL6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];

/// How a packet is wrapped.
#[derive(Clone, Debug)]
struct Wrapping {
    tags: usize,
    v6: bool,
    /// Words of IPv4 options.
    ip_options: usize,
    kind: TunnelKind,
    /// Words of Geneve options.
    options: usize,
    checksum: bool,
}

const PLAIN: Wrapping =
    Wrapping { tags: 0, v6: false, ip_options: 0, kind: TunnelKind::Vxlan, options: 0, checksum: false };

fn geneve_in_v6() -> Wrapping {
    Wrapping { v6: true, kind: TunnelKind::Geneve, options: 3, checksum: true, ..PLAIN }
}

impl Wrapping {
    fn tunnel_header(&self) -> Vec<u8> {
        match self.kind {
            TunnelKind::Vxlan => vec![8, 0, 0, 0, 0, 0, 7, 0],
            TunnelKind::Geneve => {
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
            frame.extend(udp_len.to_be_bytes().into_iter().chain([UDP_PROTOCOL, 64]));
            frame.extend([3; 16].into_iter().chain(LOCAL6));
        } else {
            let header = 20 + self.ip_options * 4;
            frame.extend([8, 0, 0x40 | (header / 4) as u8, 0]);
            frame.extend((header as u16 + udp_len).to_be_bytes());
            frame.extend([0, 1, 0x40, 0, 64, UDP_PROTOCOL, 0, 0, 192, 0, 2, 1].into_iter().chain(LOCAL4));
            frame.extend((0..self.ip_options * 4).map(|_| 1));
        }
        frame.extend([0x80, 1].into_iter().chain(self.kind.default_port().to_be_bytes()));
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
            frame[ip + 10..ip + 12].fill(0);
            let sum = Sum::of(&frame[ip..udp]).field();
            frame[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
        }
        frame[udp + 6..udp + 8].fill(0);
        if self.checksum {
            let sum = self.udp_sum(frame).field();
            frame[udp + 6..udp + 8].copy_from_slice(&sum.to_be_bytes());
        }
    }

    /// Over everything that UDP's checksum covers, the field as it is.
    fn udp_sum(&self, frame: &[u8]) -> Sum {
        let (ip, udp) = (self.ip(), self.udp());
        let addresses = if self.v6 { ip + 8..ip + 40 } else { ip + 12..ip + 20 };
        let len = (frame.len() - udp) as u16;
        Sum::of(&frame[addresses]) + Sum::word(17) + Sum::word(len) + Sum::of(&frame[udp..])
    }
}

fn host(tunnels: &[Tunnel]) -> Tunnels {
    Tunnels::new(tunnels, &mediator::Config::default())
}

fn any(kind: TunnelKind) -> Tunnel {
    Tunnel { kind, address: None, port: kind.default_port() }
}

fn both() -> Tunnels {
    host(&[any(TunnelKind::Geneve), any(TunnelKind::Vxlan)])
}

#[test]
fn inner_frames_are_found_in_every_wrapping() {
    for tags in 0..=2 {
        for (v6, ip_options) in [(false, 0), (false, 10), (true, 0)] {
            for (kind, options) in [(TunnelKind::Vxlan, 0), (TunnelKind::Geneve, 0), (TunnelKind::Geneve, 63)]
            {
                let wrapping = Wrapping { tags, v6, ip_options, kind, options, checksum: true };
                let frame = wrapping.wrap(&[7; ETHERNET]);
                assert_eq!(both().look(&frame, Origin::World), Inside::At(wrapping.inner()), "{wrapping:?}");
                assert!(wrapping.inner() <= MAX_OUTER);
                for len in 0..frame.len() {
                    assert!(!matches!(both().look(&frame[..len], Origin::World), Inside::At(_)), "{len}");
                }
            }
        }
    }
}

#[test]
fn only_packets_for_an_end_point_are_looked_into() {
    let frame = PLAIN.wrap(&[7; 60]);
    assert_eq!(Tunnels::default().look(&frame, Origin::World), Inside::Nothing);
    assert_eq!(host(&[any(TunnelKind::Geneve)]).look(&frame, Origin::World), Inside::Nothing, "another port");
    let at = |address: [u8; 4]| Tunnel { address: Some(address.into()), ..any(TunnelKind::Vxlan) };
    assert_eq!(host(&[at([192, 0, 2, 8])]).look(&frame, Origin::World), Inside::Nothing, "another address");
    let here = host(&[at(LOCAL4)]);
    assert_eq!(here.look(&frame, Origin::World), Inside::At(50));
    assert_eq!(here.look(&frame, Origin::Vm), Inside::Unknown, "no VM speaks with the switch's end point");
    assert_eq!(both().look(&frame, Origin::Vm), Inside::Nothing, "a VM's own tunnel to elsewhere");
    let vms = |tunnel| Tunnels::new(&[tunnel], &tenants(&[(IpAddr::from(LOCAL4), None)]));
    assert_eq!(vms(any(TunnelKind::Vxlan)).look(&frame, Origin::World), Inside::Nothing, "a tunnel to a VM");
    assert_eq!(vms(at(LOCAL4)).look(&frame, Origin::World), Inside::At(50), "the switch's own address");
    let mut tcp = frame;
    tcp[23] = 6;
    assert_eq!(both().look(&tcp, Origin::World), Inside::Nothing);
}

#[test]
fn what_others_could_read_in_another_way_is_unknown() {
    let unknown = |frame: &[u8]| assert_eq!(both().look(frame, Origin::World), Inside::Unknown, "{frame:x?}");
    let wrapping = geneve_in_v6();
    let frame = wrapping.wrap(&[7; 60]);
    let tunnel = wrapping.udp() + UDP;
    for (at, value) in [(tunnel, 0x40), (tunnel + 2, 8), (tunnel, 63)] {
        let mut frame = frame.clone();
        frame[at] = value;
        unknown(&frame);
    }
    let mut gpe = PLAIN.wrap(&[7; 60]);
    gpe[42] = 0x0c;
    gpe[45] = 1;
    unknown(&gpe);
    gpe[45] = 3;
    assert_eq!(both().look(&gpe, Origin::World), Inside::At(50), "Ethernet by the extension's name");
    // Destination options, an authentication header, and a fragment that is none, before UDP.
    for (next, header) in
        [(60, [17, 0, 1, 4, 0, 0, 0, 0]), (51, [17, 0, 0, 0, 0, 0, 0, 1]), (44, [17, 0, 0, 0, 0, 0, 0, 1])]
    {
        let mut frame = [&frame[..54], &header, &frame[54..]].concat();
        frame[20] = next;
        unknown(&frame);
    }
    // More headers than are followed, and one that is longer than what is seen.
    let many = [60, 0, 1, 4, 0, 0, 0, 0].repeat(MAX_HEADERS);
    for header in [&many[..], &[17, 255, 1, 4, 0, 0, 0, 0]] {
        let mut frame = [&frame[..54], header, &[17, 0, 1, 4, 0, 0, 0, 0], &frame[54..]].concat();
        frame[20] = 60;
        unknown(&frame);
    }
}

/// Without its first piece nobody puts a packet together; the other pieces do not say whose they are.
#[test]
fn the_first_piece_of_what_comes_in_pieces_is_unknown() {
    let look = |frame: &[u8]| both().look(frame, Origin::World);
    let v4 = PLAIN.wrap(&[7; 60]);
    let piece = |word: [u8; 2], len: usize| {
        let mut frame = v4[..len].to_vec();
        frame[20..22].copy_from_slice(&word);
        frame
    };
    for len in [v4.len(), 42, 41, 34] {
        assert_eq!(look(&piece([0x20, 0], len)), Inside::Unknown, "the first piece, of {len} bytes");
    }
    for word in [[0x20, 1], [0, 1], [0x1f, 0xff]] {
        assert_eq!(look(&piece(word, v4.len())), Inside::Nothing, "a later piece");
    }
    let mut elsewhere = piece([0x20, 0], v4.len());
    elsewhere[36..38].copy_from_slice(&53_u16.to_be_bytes());
    assert_eq!(look(&elsewhere), Inside::Nothing, "the first piece of something else");

    let v6 = geneve_in_v6().wrap(&[7; 60]);
    let piece = |word: [u8; 2]| {
        let mut frame = [&v6[..54], &[17, 0, word[0], word[1], 0, 0, 0, 1], &v6[54..]].concat();
        frame[20] = 44;
        frame
    };
    assert_eq!(look(&piece([0, 1])), Inside::Unknown);
    assert_eq!(look(&piece([0, 1])[..58]), Inside::Unknown, "cut off before UDP");
    assert_eq!(look(&piece([0, 9])), Inside::Nothing, "a later piece");
}

/// A tenant with VMs of these addresses and networks.
fn tenants(vms: &[(IpAddr, Option<u32>)]) -> mediator::Config {
    let vm = |(address, network): &(IpAddr, Option<u32>)| mediator::VmConfig {
        network: *network,
        ..mediator::VmConfig::new("vm", vec![*address])
    };
    mediator::Config { tenants: vec![mediator::TenantConfig::new("a", vms.iter().map(vm).collect())] }
}

#[test]
fn the_network_of_what_is_inside_is_read() {
    let vm = IpAddr::from([10, 0, 0, 1]);
    let end_points = [any(TunnelKind::Vxlan), any(TunnelKind::Geneve)];
    assert!(!Tunnels::new(&end_points, &tenants(&[(vm, None)])).tell_networks());
    // `Wrapping` has number 7 in its headers.
    let (seven, eight) = (tenants(&[(vm, Some(7))]), tenants(&[(vm, Some(8))]));
    for wrapping in [PLAIN, geneve_in_v6(), Wrapping { ip_options: 10, tags: 2, ..PLAIN }] {
        let outer = &wrapping.wrap(&[7; 60])[..wrapping.inner()];
        let network = |tenants| {
            let tunnels = Tunnels::new(&end_points, tenants);
            assert!(tunnels.tell_networks());
            tunnels.network(outer)
        };
        assert_eq!(network(&seven), Network::Number(7), "{wrapping:?}");
        assert_eq!(network(&eight), Network::Foreign, "no VM is in it");
    }
    let mut unnumbered = PLAIN.wrap(&[7; 60]);
    unnumbered[42] = 0;
    assert_eq!(both().look(&unnumbered, Origin::World), Inside::Unknown, "the number is not valid");
}

fn wrappings() -> impl Strategy<Value = Wrapping> {
    let kind = prop_oneof![Just(TunnelKind::Vxlan), Just(TunnelKind::Geneve)];
    (0_usize..3, any_bool(), 0_usize..4, kind, 0_usize..8, any_bool()).prop_map(
        |(tags, v6, ip_options, kind, options, checksum)| Wrapping {
            tags,
            v6,
            ip_options,
            kind,
            options: if kind == TunnelKind::Geneve { options } else { 0 },
            checksum,
        },
    )
}

fn any_bool() -> impl Strategy<Value = bool> {
    prop::bool::ANY
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever changes inside, the headers are what they would be had the packet been wrapped so from the start; and if
    /// the checksum was wrong, it is wrong afterwards.
    #[test]
    fn mended_headers_are_those_of_a_packet_that_was_wrapped_so(
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
        let mut outer = Outer::of(&frame, wrapping.inner()).expect("headers");
        prop_assert_eq!(outer.bytes(), &frame[..wrapping.inner()]);
        outer.mend(&Change {
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
    fn any_bytes_are_looked_into_and_mended_or_refused(
        bytes in prop::collection::vec(prop::num::u8::ANY, 0..200),
        flips in prop::collection::vec((0_usize..120, prop::num::u8::ANY), 0..4),
        wrapping in wrappings(),
    ) {
        fuzz_bytes(&bytes);
        let mut frame = wrapping.wrap(&bytes);
        for (at, value) in flips {
            let at = at.min(frame.len() - 1);
            frame[at] = value;
        }
        fuzz_bytes(&frame);
    }
}

#[test]
fn what_fits_no_longer_is_refused() {
    let inner = vec![7; 1000];
    let frame = PLAIN.wrap(&inner);
    let change = |new_len| Change {
        old_head: &inner[..14],
        new_head: &inner[..14],
        old_len: inner.len(),
        new_len,
        cut: Sum::default(),
    };
    let mend = |frame: &[u8], new_len| Outer::of(frame, 50).and_then(|mut o| o.mend(&change(new_len)));
    assert_eq!(mend(&frame, 1000), Ok(()));
    assert_eq!(mend(&frame, 65_500), Err(Unfit), "longer than IP can be");
    for place in [38, 16] {
        let mut wrong = frame.clone();
        wrong[place + 1] ^= 1;
        assert_eq!(mend(&wrong, 1000), Err(Unfit), "the length at {place} is not the packet's");
    }
    assert!(Outer::of(&frame, 30).is_err() && Outer::of(&frame[..20], 50).is_err());
}
