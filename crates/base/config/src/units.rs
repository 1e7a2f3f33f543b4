//! Durations and sizes with units.

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use std::fmt;
use std::time::Duration;

/// A duration or size as the file has it. A number without quotes has no unit; `check` reports it together
/// with the file's other problems.
#[derive(Debug)]
pub(super) struct Quantity {
    pub(super) text: String,
    pub(super) quoted: bool,
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(QuantityVisitor)
    }
}

struct QuantityVisitor;

impl Visitor<'_> for QuantityVisitor {
    type Value = Quantity;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number and a unit in quotes, such as \"2ms\" or \"512MiB\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Quantity, E> {
        Ok(Quantity { text: text.to_owned(), quoted: true })
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Quantity, E> {
        Ok(Quantity { text: number.to_string(), quoted: false })
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Quantity, E> {
        Ok(Quantity { text: number.to_string(), quoted: false })
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Quantity, E> {
        Ok(Quantity { text: number.to_string(), quoted: false })
    }
}

/// Parses a duration such as `2ms`, `500us`, `1s` or `10m`.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let (number, unit) = split(text)?;
    let nanos = match unit {
        "ns" => 1,
        "us" | "µs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    };
    number.checked_mul(nanos).map(Duration::from_nanos)
}

/// Parses a size such as `512MiB`, `1GiB` or `4096`.
pub(super) fn parse_size(text: &str) -> Option<u64> {
    let (number, unit) = split(text)?;
    let shift = match unit {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}

fn split(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    Some((number.parse().ok()?, unit.trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_parsed_or_refused() {
        assert_eq!(parse_duration("2ms"), Some(Duration::from_millis(2)));
        assert_eq!(parse_duration("500 us"), Some(Duration::from_micros(500)));
        for bad in
            ["", "2", "ms", "-1ms", "1.5s", "2 minutes", "99999999999999999999s", "18446744073709551615s"]
        {
            assert_eq!(parse_duration(bad), None, "{bad:?}");
        }
        assert_eq!(parse_size("512MiB"), Some(512 << 20));
        assert_eq!(parse_size("4096"), Some(4096));
        for bad in ["", "1 MB", "GiB", "18446744073709551615KiB"] {
            assert_eq!(parse_size(bad), None, "{bad:?}");
        }
    }
}
