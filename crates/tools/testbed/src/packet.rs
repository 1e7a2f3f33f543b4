//! Packets for tests that need no network.

/// Returns a UDP packet over IPv4 of 60 bytes, including the Ethernet header. Payload and checksums are zero;
/// a reader of addresses ignores them.
#[must_use]
pub fn udp(source: [u8; 4], destination: [u8; 4]) -> Vec<u8> {
    let mut bytes = vec![0; 60];
    bytes[12..15].copy_from_slice(&[8, 0, 0x45]);
    bytes[16..18].copy_from_slice(&[0, 46]);
    bytes[22..24].copy_from_slice(&[64, 17]);
    bytes[26..30].copy_from_slice(&source);
    bytes[30..34].copy_from_slice(&destination);
    bytes
}
