//! The measurement's packets: UDP datagrams that say when they were sent, and for which tenant.

use std::time::Duration;

use p4shield_frame::{ethernet, ipv4, udp};

use crate::fixture::headers::{HEADERS, Headers};

/// The port of packets that a VM forwards.
pub(super) const TO_VM: u16 = 7000;
/// The port of packets that the switch sends back to where they came from.
pub(super) const TO_PORT: u16 = 7001;
/// The port that they come from.
pub(super) const FROM: u16 = 40_000;
/// Bytes of Ethernet's check sequence, which counts in a frame's length.
const CHECK: usize = 4;
/// Bytes of the time and of the tenant's number.
const STAMP: usize = 10;

/// Returns a frame of this length on the wire, for a tenant. Nothing says yet when it was sent.
pub(super) fn frame(headers: &Headers, bytes: u16, tenant: u16) -> Vec<u8> {
    let mut payload = vec![0; usize::from(bytes).saturating_sub(HEADERS + CHECK).max(STAMP)];
    payload[STAMP - 2..STAMP].copy_from_slice(&tenant.to_le_bytes());
    headers.frame(&payload)
}

/// Writes into a frame when it is sent.
pub(super) fn stamp(frame: &mut [u8], sent: Duration) {
    frame[HEADERS..HEADERS + STAMP - 2].copy_from_slice(&(sent.as_nanos() as u64).to_le_bytes());
}

/// Returns the tenant of a packet, and when it was sent; `None` if it is not one of these.
pub(super) fn read(frame: &[u8]) -> Option<(u16, Duration)> {
    if !is_ours(frame) {
        return None;
    }
    let (time, tenant) = frame.get(HEADERS..HEADERS + STAMP)?.split_at(STAMP - 2);
    let nanoseconds = u64::from_le_bytes(time.try_into().ok()?);
    Some((u16::from_le_bytes(tenant.try_into().ok()?), Duration::from_nanos(nanoseconds)))
}

/// Returns a packet as the machine that received it sends it on; `None` if it is another packet.
pub(super) fn forwarded(frame: &[u8], to: &Headers) -> Option<Vec<u8>> {
    if !is_ours(frame) {
        return None;
    }
    let mut frame = frame.to_vec();
    let (ethernet, ip) = frame.split_at_mut(ethernet::HEADER_LEN);
    ethernet[..ethernet::ADDRESSES_LEN].copy_from_slice(to.macs.as_flattened());
    ip[ipv4::ADDRESSES].copy_from_slice(to.addresses.map(u32::to_be_bytes).as_flattened());
    ipv4::set_checksum(ip);
    Some(frame)
}

fn is_ours(frame: &[u8]) -> bool {
    let parts = ethernet::payload(frame).filter(|p| p.ether_type == ethernet::ether_type::IPV4);
    let ip = parts.and_then(|p| frame.get(p.offset..)).and_then(ipv4::Header::new);
    let udp = frame.get(HEADERS - udp::HEADER_LEN..).and_then(udp::Header::new);
    ip.is_some_and(|ip| ip.header_len() == Some(ipv4::HEADER_LEN) && ip.protocol() == 17)
        && udp.is_some_and(|udp| udp.source_port() == FROM)
        && frame.len() >= HEADERS + STAMP
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADERS_OF_ONE: Headers =
        Headers { macs: [[2; 6], [4; 6]], addresses: [0x0a00_0001, 0x0a01_0001], ports: [FROM, TO_VM] };

    #[test]
    fn a_forwarded_packet_keeps_its_stamp_and_length() {
        for bytes in [64, 512, 1500] {
            let mut sent = frame(&HEADERS_OF_ONE, bytes, 3);
            assert_eq!(sent.len(), usize::from(bytes) - CHECK);
            stamp(&mut sent, Duration::from_micros(7));
            let to =
                Headers { macs: [[6; 6], [8; 6]], addresses: [0x0a01_0001, 0x0a00_0001], ..HEADERS_OF_ONE };
            let back = forwarded(&sent, &to).unwrap();
            assert_eq!(read(&back), Some((3, Duration::from_micros(7))));
            assert_eq!((&back[..6], &back[26..30]), (&[6; 6][..], &[10, 1, 0, 1][..]));
            assert!(ipv4::has_right_checksum(&back[14..]) && back.len() == sent.len());
        }
    }

    #[test]
    fn packets_of_others_are_not_read() {
        let other = Headers { ports: [1, TO_VM], ..HEADERS_OF_ONE };
        assert!(read(&frame(&other, 64, 0)).is_none() && read(&[]).is_none());
        assert!(forwarded(&[0; 60], &HEADERS_OF_ONE).is_none());
        assert!((0..64).all(|n| forwarded(&frame(&HEADERS_OF_ONE, 64, 0)[..n.min(50)], &other).is_none()));
    }
}
