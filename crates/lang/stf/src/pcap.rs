//! Capture files: the classic libpcap format, both byte orders, micro- and nanoseconds.
//!
//! Layout: <https://www.ietf.org/archive/id/draft-ietf-opsawg-pcap-04.html>.

/// Maximum size of a capture in bytes.
pub const MAX_CAPTURE_BYTES: usize = 1 << 30;
/// Size of the file header in bytes.
const FILE_HEADER: usize = 24;
/// Size of a packet header in bytes.
const PACKET_HEADER: usize = 16;
/// `LINKTYPE_ETHERNET`.
const ETHERNET: u32 = 1;
/// Maximum size of a packet in bytes.
const MAX_PACKET: usize = 1 << 18;

/// A captured packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturedPacket {
    /// Time of capture: nanoseconds of the capture's clock.
    pub timestamp_ns: u64,
    /// CapturedPacket bytes.
    pub bytes: Vec<u8>,
    /// Length on the wire in bytes.
    pub length: u32,
}

/// Reason why a capture cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PcapError {
    /// The capture exceeds the size limit.
    #[error("the capture is longer than {MAX_CAPTURE_BYTES} bytes")]
    TooLong,
    /// The bytes are not a pcap file.
    #[error("not a pcap file (convert pcapng first: editcap -F pcap)")]
    Magic,
    /// The capture does not contain Ethernet frames.
    #[error("the capture has link type {0}, only Ethernet (1) is supported")]
    LinkType(u32),
    /// The capture ends within a packet.
    #[error("the capture ends within packet {0}")]
    Cut(usize),
    /// A packet exceeds the size limit.
    #[error("packet {packet} has {bytes} bytes, the limit is {MAX_PACKET}")]
    Packet {
        /// Number of the packet, from 1.
        packet: usize,
        /// CapturedPacket length.
        bytes: u32,
    },
}

/// Reads a capture.
///
/// # Errors
/// If the bytes are not a capture of Ethernet frames.
pub fn read(bytes: &[u8]) -> Result<Vec<CapturedPacket>, PcapError> {
    if bytes.len() > MAX_CAPTURE_BYTES {
        return Err(PcapError::TooLong);
    }
    let magic = bytes.first_chunk::<4>().ok_or(PcapError::Magic)?;
    let (big, unit) = match u32::from_le_bytes(*magic) {
        0xa1b2_c3d4 => (false, 1_000),
        0xa1b2_3c4d => (false, 1),
        0xd4c3_b2a1 => (true, 1_000),
        0x4d3c_b2a1 => (true, 1),
        _ => return Err(PcapError::Magic),
    };
    let word = |at: usize| {
        let b = bytes.get(at..at + 4)?.first_chunk::<4>()?;
        Some(if big { u32::from_be_bytes(*b) } else { u32::from_le_bytes(*b) })
    };
    // The upper bits hold the length of the checksum after each frame.
    let link = word(20).ok_or(PcapError::Magic)? & 0xffff;
    if link != ETHERNET {
        return Err(PcapError::LinkType(link));
    }
    let mut packets = Vec::new();
    let mut at = FILE_HEADER;
    while at < bytes.len() {
        let number = packets.len() + 1;
        let cut = PcapError::Cut(number);
        let [seconds, part, captured, length] = [0, 4, 8, 12].map(|o| word(at + o)).map(|w| w.ok_or(cut));
        let (seconds, part, captured) = (seconds?, part?, captured?);
        if captured as usize > MAX_PACKET {
            return Err(PcapError::Packet { packet: number, bytes: captured });
        }
        let start = at + PACKET_HEADER;
        let end = start + captured as usize;
        let bytes = bytes.get(start..end).ok_or(cut)?.to_vec();
        let timestamp_ns = u64::from(seconds) * 1_000_000_000 + u64::from(part) * unit;
        packets.push(CapturedPacket { timestamp_ns, bytes, length: length?.max(captured) });
        at = end;
    }
    Ok(packets)
}

/// Encodes a capture with microsecond times, little-endian.
#[must_use]
pub fn write(packets: &[CapturedPacket]) -> Vec<u8> {
    let mut out = Vec::new();
    let words = |words: &[u32], out: &mut Vec<u8>| words.iter().for_each(|w| out.extend(w.to_le_bytes()));
    words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, MAX_PACKET as u32, ETHERNET], &mut out);
    for p in packets {
        let (seconds, rest) = (p.timestamp_ns / 1_000_000_000, p.timestamp_ns % 1_000_000_000);
        words(&[seconds as u32, (rest / 1_000) as u32, p.bytes.len() as u32, p.length], &mut out);
        out.extend(&p.bytes);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_captures_are_read_back() {
        let packets = vec![
            CapturedPacket { timestamp_ns: 1_000_000_007_000, bytes: vec![1; 60], length: 1500 },
            CapturedPacket { timestamp_ns: 2_000_000_000_000, bytes: vec![2; 14], length: 14 },
        ];
        assert_eq!(read(&write(&packets)), Ok(packets));
    }

    #[test]
    fn broken_captures_are_refused() {
        let good = write(&[CapturedPacket { timestamp_ns: 0, bytes: vec![1; 60], length: 60 }]);
        assert_eq!(read(&[]), Err(PcapError::Magic));
        assert_eq!(read(&[0x0a, 0x0d, 0x0d, 0x0a, 0, 0]), Err(PcapError::Magic));
        assert_eq!(read(&good[..50]), Err(PcapError::Cut(1)));
        let mut long = good.clone();
        long[32..36].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(read(&long), Err(PcapError::Packet { packet: 1, bytes: u32::MAX }));
        let mut wifi = good;
        wifi[20] = 105;
        assert_eq!(read(&wifi), Err(PcapError::LinkType(105)));
    }
}
