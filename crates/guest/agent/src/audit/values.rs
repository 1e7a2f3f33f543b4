//! Values in findings: shares of packets, and digests of programs.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Some packets out of others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Share {
    /// The packets.
    pub packets: u64,
    /// All packets.
    pub of: u64,
}

impl std::fmt::Display for Share {
    /// `3 of 12000 packets (0.025 %)`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { packets, of } = self;
        let percent = *packets as f64 * 100.0 / (*of).max(1) as f64;
        let digits = if percent < 1.0 { 3 } else { 1 };
        write!(f, "{packets} of {of} packets ({percent:.digits$} %)")
    }
}

/// SHA-256 digest of a program, in hexadecimal digits outside this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest(pub [u8; 32]);

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The text is no digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a digest has 64 hexadecimal digits")]
pub struct NoDigest;

impl std::str::FromStr for Digest {
    type Err = NoDigest;

    fn from_str(text: &str) -> Result<Self, NoDigest> {
        let digits = text.as_bytes();
        if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(NoDigest);
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digit = |c: u8| char::from(c).to_digit(16).ok_or(NoDigest);
            *byte = (digit(pair[0])? * 16 + digit(pair[1])?) as u8;
        }
        Ok(Self(bytes))
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_read_as_they_are_written() {
        let digest = Digest(std::array::from_fn(|i| i as u8 * 7));
        assert_eq!(digest.to_string().parse(), Ok(digest));
        for wrong in ["", "ab", &"g".repeat(64), &"+1".repeat(32), &"ä".repeat(32)] {
            assert_eq!(wrong.parse::<Digest>(), Err(NoDigest), "{wrong}");
        }
    }

    #[test]
    fn small_shares_have_three_digits() {
        assert_eq!(Share { packets: 2, of: 10_000 }.to_string(), "2 of 10000 packets (0.020 %)");
        assert_eq!(Share { packets: 1, of: 4 }.to_string(), "1 of 4 packets (25.0 %)");
        assert_eq!(Share::default().to_string(), "0 of 0 packets (0.000 %)");
    }
}
