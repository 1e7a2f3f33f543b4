use super::*;
use crate::arp as arp_header;
use std::net::Ipv6Addr;

const LINK: [u8; 6] = [2, 0, 0, 0, 0, 7];
/// Addresses of one link, and of another one.
const VM: &str = "2001:db8::7";
const PEER: &str = "2001:db8::9";
const AFAR: &str = "2001:db8:1::9";
const VM_LINK_LOCAL: &str = "fe80::7";
const SOLICITED_PEER: &str = "ff02::1:ff00:9";

fn address(text: &str) -> u128 {
    text.parse::<Ipv6Addr>().unwrap().to_bits()
}

/// A message, behind so many VLAN tags.
#[derive(Clone)]
struct Message {
    source: &'static str,
    destination: &'static str,
    icmp: Vec<u8>,
    options: Vec<u8>,
    hops: u8,
    tags: usize,
    trailer: usize,
}

impl Message {
    fn new(kind: u8, source: &'static str, destination: &'static str, target: Option<&str>) -> Self {
        let fixed = if kind == 134 { 16 } else { 8 };
        let mut icmp = vec![0; fixed];
        icmp[0] = kind;
        icmp.extend(target.map(|t| address(t).to_be_bytes()).into_iter().flatten());
        Self { source, destination, icmp, options: Vec::new(), hops: 255, tags: 0, trailer: 0 }
    }

    fn options(&self, options: &[&[u8]]) -> Self {
        Self { options: options.concat(), ..self.clone() }
    }

    fn frame(&self) -> Vec<u8> {
        let mut frame = [&[0x33; 6][..], &LINK].concat();
        (0..self.tags).for_each(|_| frame.extend([0x81, 0, 0, 5]));
        let len = (self.icmp.len() + self.options.len()) as u16;
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        frame.extend(len.to_be_bytes());
        frame.extend([58, self.hops]);
        frame.extend([address(self.source).to_be_bytes(), address(self.destination).to_be_bytes()].concat());
        frame.extend([&self.icmp[..], &self.options, &vec![0; self.trailer]].concat());
        frame
    }

    fn read(&self) -> Option<Discovery> {
        let frame = self.frame();
        discovery(&frame, 14 + 4 * self.tags, frame.len())
    }
}

fn link_option(kind: u8) -> [u8; 8] {
    [kind, 1, 2, 0, 0, 0, 0, 7]
}

const NONCE: [u8; 8] = [14, 1, 1, 2, 3, 4, 5, 6];

fn solicitation() -> Message {
    Message::new(135, VM, SOLICITED_PEER, Some(PEER))
}

fn advertisement() -> Message {
    Message::new(136, VM, PEER, Some(VM))
}

fn router() -> Message {
    Message::new(134, "fe80::1", "ff02::1", None)
}

#[test]
fn what_machines_send_is_neighbour_discovery() {
    let found = |source, claimed| {
        let (source, claimed) = (address(source), address(claimed));
        Some(Discovery { source, claimed, is_own_link: true, is_router: false })
    };
    assert_eq!(solicitation().options(&[&link_option(1)]).read(), found(VM, VM));
    assert_eq!(solicitation().options(&[&link_option(1), &NONCE]).read(), found(VM, VM));
    let probe = Message::new(135, "::", SOLICITED_PEER, Some(PEER));
    assert_eq!(probe.options(&[&NONCE]).read(), found("::", "::"), "duplicate address detection");
    assert_eq!(Message::new(135, VM, PEER, Some(PEER)).read(), found(VM, VM), "is it still there?");
    assert_eq!(
        Message::new(135, VM_LINK_LOCAL, AFAR, Some(AFAR)).read(),
        found(VM_LINK_LOCAL, VM_LINK_LOCAL)
    );
    assert_eq!(advertisement().options(&[&link_option(2)]).read(), found(VM, VM));
    assert_eq!(Message::new(136, VM, "ff02::1", Some(VM)).read(), found(VM, VM));
    assert_eq!(Message::new(136, VM_LINK_LOCAL, PEER, Some(VM)).read(), found(VM_LINK_LOCAL, VM));
    assert_eq!(Message::new(133, "::", "ff02::2", None).read(), found("::", "::"));
    let solicits = Message::new(133, VM_LINK_LOCAL, "ff02::2", None).options(&[&link_option(1)]);
    assert_eq!(solicits.read(), found(VM_LINK_LOCAL, VM_LINK_LOCAL));
    let options: [&[u8]; 3] =
        [&link_option(1), &[5, 1, 0, 0, 0, 0, 5, 220], &[&[3, 4][..], &[0; 30]].concat()];
    let advertised = router().options(&options);
    let expected = Discovery { is_own_link: false, is_router: true, ..found("fe80::1", "fe80::1").unwrap() };
    assert_eq!(advertised.read(), Some(Discovery { is_own_link: true, ..expected }));
    let mut of_another = advertised;
    of_another.options[7] = 1;
    assert_eq!(of_another.read(), Some(expected), "the link-layer address of another machine");
    for tags in 1..=2 {
        assert!(Message { tags, ..advertisement() }.read().is_some(), "{tags}");
    }
}

#[test]
fn messages_must_stay_on_their_link() {
    let refused = |kind, source, destination, target| {
        assert_eq!(Message::new(kind, source, destination, target).read(), None, "{source} {destination}");
    };
    refused(135, VM, SOLICITED_PEER, Some("2001:db8::8"));
    refused(135, VM, "ff02::1", Some(PEER));
    refused(135, VM, AFAR, Some(AFAR));
    refused(135, VM, PEER, Some(VM));
    refused(135, "::", PEER, Some(PEER));
    refused(135, VM, "ff05::1:ff00:9", Some(PEER));
    refused(135, VM, "ff02::1:ff00:9", Some("ff02::9"));
    refused(135, "ff02::7", SOLICITED_PEER, Some(PEER));
    refused(136, VM, AFAR, Some(VM));
    refused(136, VM, "ff02::2", Some(VM));
    refused(136, VM, "ff0e::1", Some(VM));
    refused(136, "::", "ff02::1", Some(VM));
    refused(136, VM, "::", Some(VM));
    refused(136, VM, PEER, Some("::"));
    refused(133, VM, "ff02::1", None);
    refused(133, VM, AFAR, None);
    refused(134, VM, "ff02::1", None);
    refused(134, "fe80::1", "ff02::2", None);
    let mut solicited = Message::new(136, VM, "ff02::1", Some(VM));
    solicited.icmp[4] = SOLICITED;
    assert_eq!(solicited.read(), None, "an answer has one receiver");
    assert_eq!(Message { hops: 254, ..advertisement() }.read(), None, "a router forwarded it");
}

#[test]
fn messages_have_no_room_for_anything_else() {
    for message in [solicitation(), advertisement(), Message::new(133, VM, "ff02::2", None), router()] {
        let kind = message.icmp[0];
        let mut code = message.clone();
        code.icmp[1] = 1;
        assert_eq!(code.read(), None, "{kind}: a code");
        assert_eq!(Message { trailer: 1, ..message.clone() }.read(), None, "{kind}: bytes behind the packet");
        for len in 1..message.frame().len() {
            let frame = &message.frame()[..len];
            assert_eq!(discovery(frame, 14, message.frame().len()), None, "{kind}: {len} bytes are seen");
            assert_eq!(discovery(frame, 14, len), None, "{kind}: cut off at {len}");
        }
        assert_eq!(message.options(&[&[0; 8]]).read(), None, "{kind}: an option without length");
        assert_eq!(message.options(&[&[14, 2], &[0; 6]]).read(), None, "{kind}: an option that is cut off");
        assert_eq!(message.options(&[&NONCE, &[14, 1]]).read(), None, "{kind}: the rest of an option");
        let link = if kind == 136 { 2 } else { 1 };
        assert_eq!(
            message.options(&[&[link, 2], &[0; 14]]).read(),
            None,
            "{kind}: a long link-layer address"
        );
        let most = if kind == 134 { 6 } else { 2 };
        assert!(message.options(&vec![&NONCE[..]; most]).read().is_some(), "{kind}");
        assert_eq!(message.options(&vec![&NONCE[..]; most + 1]).read(), None, "{kind}: too many options");
    }
    for options in [[&[15, 1, 0, 0, 0, 0, 0, 0][..]; 1], [&[14, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]]]
    {
        assert_eq!(solicitation().options(&options).read(), None, "none of its own: {options:?}");
    }
    let probe = Message::new(135, "::", SOLICITED_PEER, Some(PEER));
    assert_eq!(probe.options(&[&link_option(1)]).read(), None, "a link-layer address without an address");
    assert_eq!(Message::new(137, "fe80::1", VM, Some(PEER)).read(), None, "a redirect");
}

fn arp_frame() -> Vec<u8> {
    let mut frame = [&[0xff; 6][..], &LINK, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &LINK].concat();
    frame.extend([10, 0, 0, 7, 0, 0, 0, 0, 0, 0, 10, 0, 0, 9]);
    frame
}

#[test]
fn arp_is_bounded_and_complete() {
    let read = |frame: &[u8]| arp(frame, 14, frame.len());
    let expected = Arp { sender: 0x0a00_0007, is_own_link: true };
    let whole = arp_frame();
    assert_eq!(whole.len(), 14 + arp_header::HEADER_LEN);
    assert_eq!(read(&whole), Some(expected));
    let padded = |len| [&whole[..], &vec![0; len]].concat();
    assert_eq!(read(&padded(18)), Some(expected), "the shortest frame");
    assert_eq!(read(&padded(19)), None, "more than padding");
    assert_eq!(arp(&whole, 14, 1500), None, "more than is seen");
    let changed = |at: usize, value| {
        let mut frame = arp_frame();
        frame[at] = value;
        read(&frame)
    };
    assert_eq!(changed(21, 2), Some(expected), "a reply");
    for (at, value, what) in [(21, 3, "RARP"), (15, 6, "hardware"), (16, 9, "protocol"), (19, 8, "length")] {
        assert_eq!(changed(at, value), None, "{what}");
    }
    assert_eq!(changed(11, 1), Some(Arp { is_own_link: false, ..expected }));
    assert_eq!(changed(27, 1), Some(Arp { is_own_link: false, ..expected }));
    (0..whole.len()).for_each(|len| assert_eq!(read(&whole[..len]), None, "{len} bytes"));
}
