//! Values that people write: numbers and addresses, and what a key of an entry matches.

use crate::model::{KeyFacts, Match};
use num_bigint::BigUint;
use std::net::{Ipv4Addr, Ipv6Addr};

/// The reason why a text is no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ValueError {
    /// It has no known form.
    #[error(
        "`{0}` is no value: write a number (10, 0xa, 0b1010) or an address (10.0.0.1, fd00::1, \
         02:00:00:00:00:01)"
    )]
    Form(String),
    /// An address has another width than the key or parameter.
    #[error("`{text}` is an address of {bits} bits, but {name} has {width}; write a number instead")]
    Address {
        /// The address.
        text: String,
        /// Its width in bits.
        bits: u32,
        /// Name of the key or parameter.
        name: String,
        /// Its width in bits.
        width: u32,
    },
    /// A prefix is longer than its key.
    #[error("`{text}` has a prefix of more than the {width} bits of {name}")]
    Prefix {
        /// The value.
        text: String,
        /// Name of the key.
        name: String,
        /// Its width in bits.
        width: u32,
    },
}

/// Parses a value of a key or parameter with this name and width in bits.
///
/// # Errors
/// [`ValueError`]. The encoding of an entry checks that a number fits the width.
pub fn value(name: &str, width: u32, text: &str) -> Result<BigUint, ValueError> {
    let (bits, bytes) = if let Ok(address) = text.parse::<Ipv4Addr>() {
        (32, address.octets().to_vec())
    } else if let Ok(address) = text.parse::<Ipv6Addr>() {
        (128, address.octets().to_vec())
    } else if let Some(address) = ethernet(text) {
        (48, address)
    } else {
        return number(text).ok_or_else(|| ValueError::Form(text.to_owned()));
    };
    if bits != width {
        return Err(ValueError::Address { text: text.to_owned(), bits, name: name.to_owned(), width });
    }
    Ok(BigUint::from_bytes_be(&bytes))
}

/// Parses six pairs of hexadecimal digits between colons.
fn ethernet(text: &str) -> Option<Vec<u8>> {
    let byte = |part: &str| {
        let digits = part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit());
        u8::from_str_radix(part, 16).ok().filter(|_| digits)
    };
    text.split(':').map(byte).collect::<Option<Vec<_>>>().filter(|bytes| bytes.len() == 6)
}

fn number(text: &str) -> Option<BigUint> {
    let (digits, radix) = match text.as_bytes() {
        b"true" => ("1", 10),
        b"false" => ("0", 10),
        [b'0', b'x' | b'X', ..] => (&text[2..], 16),
        [b'0', b'b' | b'B', ..] => (&text[2..], 2),
        _ => (text, 10),
    };
    // The parser of numbers accepts a sign and underscores, which P4 has elsewhere.
    let plain = digits.bytes().all(|b| b.is_ascii_alphanumeric()) && digits.len() <= 4096;
    BigUint::parse_bytes(digits.as_bytes(), radix).filter(|_| plain)
}

/// Parses what a key of an entry matches: a value; `VALUE/BITS` (a prefix); `VALUE/MASK` or `VALUE&&&MASK`,
/// whose mask is an address or begins with `0x` or `0b`; `FIRST..LAST`; or `_` for every value.
///
/// # Errors
/// [`ValueError`]. The encoding of an entry checks that the key's kind has such matches.
pub fn key_match(key: &KeyFacts, text: &str) -> Result<Match, ValueError> {
    let one = |text: &str| value(&key.name, key.width, text.trim());
    if matches!(text, "_" | "*") {
        return Ok(Match::Any);
    }
    if let Some((first, last)) = text.split_once("..") {
        return Ok(Match::Range(one(first)?, one(last)?));
    }
    if let Some((value, mask)) = text.split_once("&&&") {
        return Ok(Match::Ternary(one(value)?, one(mask)?));
    }
    let Some((value, rest)) = text.split_once('/') else {
        let value = one(text)?;
        return Ok(if key.kind == "lpm" { Match::Prefix(value, key.width) } else { Match::Exact(value) });
    };
    if rest.is_empty() || !rest.bytes().all(|b| b.is_ascii_digit()) {
        return Ok(Match::Ternary(one(value)?, one(rest)?));
    }
    let long = || ValueError::Prefix { text: text.to_owned(), name: key.name.clone(), width: key.width };
    let value = one(value)?;
    Ok(Match::Prefix(value, rest.parse().ok().filter(|bits| *bits <= key.width).ok_or_else(long)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(kind: &'static str, width: u32) -> KeyFacts {
        KeyFacts { name: "hdr.ip.dst".into(), kind, width, offset: 0, bytes: width.div_ceil(8) }
    }

    #[test]
    fn numbers_and_addresses_are_values() {
        for (width, text, expected) in [
            (9, "10", 10u64),
            (9, "0x1F", 31),
            (9, "0b101", 5),
            (1, "true", 1),
            (32, "10.0.1.2", 0x0a00_0102),
            (48, "02:00:00:00:00:fe", 0x0200_0000_00fe),
        ] {
            assert_eq!(value("k", width, text), Ok(expected.into()), "{text}");
        }
        assert_eq!(value("k", 128, "fd00::1"), Ok((BigUint::from(0xfdu8) << 120) + 1u8));
        for wrong in ["", "-1", "0x", "1_0", "ten", "10.0.0", "2:0:0:0:0:1:2", "+1", "0xg"] {
            assert!(matches!(value("k", 32, wrong), Err(ValueError::Form(_))), "{wrong}");
        }
        let error = value("port", 9, "10.0.0.1").unwrap_err().to_string();
        assert!(error.contains("32 bits, but port has 9"), "{error}");
    }

    #[test]
    fn a_match_has_the_form_that_tables_show() {
        let (lpm, ternary) = (key("lpm", 32), key("ternary", 16));
        assert_eq!(key_match(&lpm, "10.0.0.0/8"), Ok(Match::Prefix(0x0a00_0000u32.into(), 8)));
        assert_eq!(key_match(&lpm, "10.0.0.1"), Ok(Match::Prefix(0x0a00_0001u32.into(), 32)));
        assert_eq!(key_match(&lpm, "10.0.0.0/255.0.0.0").ok(), {
            Some(Match::Ternary(0x0a00_0000u32.into(), 0xff00_0000u32.into()))
        });
        assert_eq!(key_match(&ternary, "0x0800 &&& 0xff00").ok(), {
            Some(Match::Ternary(0x0800u32.into(), 0xff00u32.into()))
        });
        assert_eq!(key_match(&ternary, "_"), Ok(Match::Any));
        assert_eq!(key_match(&key("range", 16), "80..443"), Ok(Match::Range(80u8.into(), 443u16.into())));
        assert_eq!(key_match(&key("exact", 16), "80"), Ok(Match::Exact(80u8.into())));
        let error = key_match(&lpm, "10.0.0.0/33").unwrap_err().to_string();
        assert!(error.contains("32 bits of hdr.ip.dst"), "{error}");
        assert!(key_match(&lpm, "10.0.0.0/").is_err());
    }
}
