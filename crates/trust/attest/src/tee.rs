//! Kinds of trusted execution environments, report data, and time.

use std::fmt;
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;
use x509_cert::der::DateTime;

/// The kind of a trusted execution environment (TEE).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tee {
    /// AMD SEV-SNP.
    SevSnp,
    /// Intel TDX.
    Tdx,
    /// No TEE: evidence that proves nothing, for machines without one.
    Sample,
}

impl Tee {
    /// Returns its name in policies, statuses and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SevSnp => "sev-snp",
            Self::Tdx => "tdx",
            Self::Sample => "sample",
        }
    }
}

impl fmt::Display for Tee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The 64 bytes that an attester has its hardware sign: a digest of whatever the report is bound to, such as
/// a verifier's nonce, a key and a tenant. This crate compares it and never computes it.
#[derive(Clone, Copy)]
pub struct ReportData([u8; Self::SIZE]);

impl ReportData {
    /// Its number of bytes.
    pub const SIZE: usize = 64;

    /// Wraps a digest.
    #[must_use]
    pub const fn new(digest: [u8; Self::SIZE]) -> Self {
        Self(digest)
    }

    /// Returns the bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; Self::SIZE] {
        &self.0
    }
}

/// Compares in constant time.
impl PartialEq for ReportData {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for ReportData {}

impl fmt::Debug for ReportData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReportData({})", Hex(&self.0))
    }
}

/// A point in time, in seconds since 1970. Whoever verifies passes it: this crate reads no clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnixSeconds(pub u64);

impl From<SystemTime> for UnixSeconds {
    fn from(time: SystemTime) -> Self {
        Self(time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
    }
}

/// Reason why a text is no time.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not a time; write it in UTC, such as 2026-01-31T12:00:00Z")]
pub struct TimeError(String);

impl FromStr for UnixSeconds {
    type Err = TimeError;

    fn from_str(text: &str) -> Result<Self, TimeError> {
        let time = DateTime::from_str(text).map_err(|_| TimeError(text.to_owned()))?;
        Ok(Self(time.unix_duration().as_secs()))
    }
}

impl fmt::Display for UnixSeconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = std::time::Duration::from_secs(self.0);
        match DateTime::from_unix_duration(since) {
            Ok(time) => write!(f, "{time}"),
            Err(_) => write!(f, "second {}", self.0),
        }
    }
}

/// Bytes that are displayed in hexadecimal.
pub(crate) struct Hex<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// Reads hexadecimal digits of exactly `N` bytes.
pub(crate) fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |d: u8| char::from(d).to_digit(16);
        *byte = u8::try_from(digit(pair[0])? << 4 | digit(pair[1])?).ok()?;
    }
    Some(bytes)
}

/// Report data in hexadecimal.
impl FromStr for ReportData {
    type Err = ReportDataError;

    fn from_str(text: &str) -> Result<Self, ReportDataError> {
        from_hex(text).map(Self).ok_or(ReportDataError)
    }
}

/// A text that is no report data.
#[derive(Debug, thiserror::Error)]
#[error("report data has 64 bytes; write 128 hexadecimal digits")]
pub struct ReportDataError;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_report_data_are_read_as_written() {
        let time: UnixSeconds = "2026-01-31T12:00:00Z".parse().unwrap();
        assert_eq!(time.to_string(), "2026-01-31T12:00:00Z");
        assert!("yesterday".parse::<UnixSeconds>().is_err());
        let data: ReportData = "0f".repeat(64).parse().unwrap();
        assert_eq!(data, ReportData::new([15; 64]));
        assert_ne!(data, ReportData::new([16; 64]));
        for wrong in ["", "0f", &"0g".repeat(64), &"é".repeat(64), &"0f".repeat(65)] {
            assert!(wrong.parse::<ReportData>().is_err(), "{wrong}");
        }
    }
}
