//! The packets that DPDK's `net_pcap` replays.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use p4shield_frame::ipv4;
use pcap_file::pcap::{PcapPacket, PcapWriter};

use super::lab::SERVER;

/// Connections that the packets belong to.
const FLOWS: u16 = 64;
/// Bytes that a frame has on the wire and not in memory.
const CHECK_SEQUENCE: u32 = 4;
const HEADERS: usize = 14 + 20 + 20;

/// Writes a file with a segment of each of several established TCP connections to the server.
///
/// # Errors
/// If the file cannot be written.
pub(super) fn write(path: &Path, bytes: u32) -> anyhow::Result<()> {
    let mut file = PcapWriter::new(File::create(path)?)?;
    for flow in 0..FLOWS {
        let frame = segment(flow, bytes);
        let packet = PcapPacket::new(Duration::ZERO, frame.len() as u32, &frame);
        file.write_packet(&packet)?;
    }
    Ok(())
}

/// A TCP segment (ACK) over IPv4 over Ethernet, zeros for its payload and its TCP checksum.
fn segment(flow: u16, bytes: u32) -> Vec<u8> {
    let mut p = vec![0; (bytes.saturating_sub(CHECK_SEQUENCE) as usize).max(HEADERS)];
    let total = (p.len() - 14) as u16;
    p[..6].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
    p[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    p[12..14].copy_from_slice(&[8, 0]);
    (p[14], p[22], p[23]) = (0x45, 64, 6);
    p[16..18].copy_from_slice(&total.to_be_bytes());
    p[26..30].copy_from_slice(&[10, 9, 2, 1]);
    p[30..34].copy_from_slice(&SERVER.octets());
    ipv4::set_checksum(&mut p[14..]);
    p[34..36].copy_from_slice(&(10_000 + flow).to_be_bytes());
    p[36..38].copy_from_slice(&80_u16.to_be_bytes());
    (p[46], p[47]) = (0x50, 0x10);
    p
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_its_size_and_a_good_checksum() {
        for bytes in [64, 128, 1500] {
            let p = segment(7, bytes);
            assert_eq!(p.len() as u32, bytes - CHECK_SEQUENCE);
            assert!(ipv4::has_right_checksum(&p[14..]));
            assert_eq!(usize::from(u16::from_be_bytes([p[16], p[17]])), p.len() - 14);
        }
        assert_eq!(segment(0, 10).len(), HEADERS, "no shorter than its headers");
    }
}
