//! The hash functions of [`p4shield_abi::helper::HASH`].

use p4shield_abi::helper::{MAX_HASHED, algorithm};
use p4shield_frame::Sum;

use crate::budget;

/// Computes a CRC table at compile time.
const fn reflected_table(polynomial: u32) -> [u32; 256] {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let mut crc = i as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ polynomial } else { crc >> 1 };
            bit += 1;
        }
        table[i] = crc;
        i += 1;
    }
    table
}

static CRC32: [u32; 256] = reflected_table(0xedb8_8320);
static CRC16: [u32; 256] = reflected_table(0xa001);

fn crc(table: &[u32; 256], start: u32, data: &[u8]) -> u32 {
    data.iter().fold(start, |crc, b| crc >> 8 ^ table[((crc ^ u32::from(*b)) & 0xff) as usize])
}

/// Returns big-endian words; a zero byte pads the last one.
fn words(data: &[u8]) -> impl Iterator<Item = u16> + '_ {
    data.chunks(2).map(|c| u16::from(c[0]) << 8 | c.get(1).map_or(0, |b| u16::from(*b)))
}

/// Returns the ones' complement sum, folded and not inverted.
pub(crate) fn sum16(data: &[u8]) -> u64 {
    Sum::of(data).folded().into()
}

/// Returns Bob Jenkins' lookup3 with initial value 0, as on little-endian machines.
fn lookup3(data: &[u8]) -> u32 {
    let start = 0xdead_beef_u32.wrapping_add(data.len() as u32);
    let mut abc = [start; 3];
    let mut rest = data;
    loop {
        let part = rest.len().min(12);
        for (word, chunk) in abc.iter_mut().zip(rest[..part].chunks(4)) {
            let mut bytes = [0; 4];
            bytes[..chunk.len()].copy_from_slice(chunk);
            *word = word.wrapping_add(u32::from_le_bytes(bytes));
        }
        if rest.len() <= 12 {
            break;
        }
        mix(&mut abc);
        rest = &rest[12..];
    }
    if rest.is_empty() {
        return abc[2];
    }
    let [mut a, mut b, mut c] = abc;
    for by in [14, 11, 25, 16, 4, 14, 24] {
        c = (c ^ b).wrapping_sub(b.rotate_left(by));
        (a, b, c) = (b, c, a);
    }
    // The rotation of the tuple leaves the result in `b`.
    b
}

fn mix(abc: &mut [u32; 3]) {
    let [mut a, mut b, mut c] = *abc;
    for by in [4, 6, 8, 16, 19, 4] {
        a = a.wrapping_sub(c) ^ c.rotate_left(by);
        c = c.wrapping_add(b);
        (a, b, c) = (b, c, a);
    }
    *abc = [a, b, c];
}

/// Returns the charge for a hash of `len` bytes: about the instructions of the loops below.
pub(crate) const fn cost(algorithm: u32, len: usize) -> u64 {
    match algorithm {
        algorithm::CRC32 | algorithm::CRC16 => 1 + 2 * len as u64,
        algorithm::XOR16 | algorithm::LOOKUP3 => 1 + len as u64,
        algorithm::CSUM16 | algorithm::SUM16 => budget::of_bytes(len),
        _ => 1,
    }
}

/// Returns the hash of an algorithm; 0 for an unknown number. The caller implements `RANDOM`.
pub(crate) fn hash(algorithm: u32, data: &[u8]) -> u64 {
    match algorithm {
        algorithm::CRC32 => u64::from(!crc(&CRC32, u32::MAX, data)),
        algorithm::CRC16 => u64::from(crc(&CRC16, 0, data)),
        algorithm::IDENTITY => data.iter().take(8).fold(0, |n, b| n << 8 | u64::from(*b)),
        algorithm::CSUM16 => sum16(data) ^ 0xffff,
        algorithm::XOR16 => u64::from(words(data).fold(0, |x, w| x ^ w)),
        algorithm::LOOKUP3 => u64::from(lookup3(data)),
        algorithm::SUM16 => sum16(data),
        _ => 0,
    }
}

/// Returns the hash of the concatenated parts; `None` if they exceed [`MAX_HASHED`] bytes.
pub(crate) fn hash_joined(algorithm: u32, parts: [&[u8]; 3]) -> Option<u64> {
    let mut all = [0; MAX_HASHED];
    let mut at = 0;
    for part in parts {
        all.get_mut(at..)?.get_mut(..part.len())?.copy_from_slice(part);
        at += part.len();
    }
    Some(hash(algorithm, all.get(..at)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check values of the CRC catalogue (reveng) and of lookup3.c's own driver.
    #[test]
    fn crcs_and_lookup3_have_known_values() {
        let check = b"123456789";
        assert_eq!(hash(algorithm::CRC32, check), 0xcbf4_3926);
        assert_eq!(hash(algorithm::CRC16, check), 0xbb3d);
        assert_eq!(hash(algorithm::LOOKUP3, b"Four score and seven years ago"), 0x1777_0551);
        assert_eq!(hash(algorithm::LOOKUP3, b""), 0xdead_beef);
    }

    #[test]
    fn parts_are_hashed_as_their_concatenation() {
        let whole = hash(algorithm::CRC32, b"123456789");
        assert_eq!(hash_joined(algorithm::CRC32, [b"123", b"4567", b"89"]), Some(whole));
        assert_eq!(hash_joined(algorithm::CRC32, [b"123456789", b"", b""]), Some(whole));
        assert_eq!(hash_joined(algorithm::CRC32, [&[0; MAX_HASHED], b"1", b""]), None);
        assert_eq!(hash_joined(algorithm::CRC32, [&[0; MAX_HASHED + 1], b"", b""]), None);
    }

    /// RFC 1071's example.
    #[test]
    fn sums_and_identity_have_known_values() {
        let data = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(hash(algorithm::SUM16, &data), 0xddf2);
        assert_eq!(hash(algorithm::CSUM16, &data), 0x220d);
        assert_eq!(hash(algorithm::XOR16, &[0x12, 0x34, 0xff]), 0xed34);
        assert_eq!(hash(algorithm::IDENTITY, &[1, 2, 3]), 0x0001_0203);
        assert_eq!(hash(algorithm::IDENTITY, &[1, 2, 3, 4, 5, 6, 7, 8, 9]), 0x0102_0304_0506_0708);
    }
}
