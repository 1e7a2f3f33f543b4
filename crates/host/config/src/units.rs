//! Durations and sizes with units.

use std::time::Duration;

/// Parses a duration such as `2ms`, `500us` or `1s`.
pub(super) fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = split(text)?;
    let nanos = match unit {
        "ns" => 1,
        "us" | "µs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    number.checked_mul(nanos).map(Duration::from_nanos)
}

/// Parses a size such as `512MiB`, `1GiB` or `4096`.
pub(super) fn size(text: &str) -> Option<u64> {
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
        assert_eq!(duration("2ms"), Some(Duration::from_millis(2)));
        assert_eq!(duration("500 us"), Some(Duration::from_micros(500)));
        for bad in
            ["", "2", "ms", "-1ms", "1.5s", "2 minutes", "99999999999999999999s", "18446744073709551615s"]
        {
            assert_eq!(duration(bad), None, "{bad:?}");
        }
        assert_eq!(size("512MiB"), Some(512 << 20));
        assert_eq!(size("4096"), Some(4096));
        for bad in ["", "1 MB", "GiB", "18446744073709551615KiB"] {
            assert_eq!(size(bad), None, "{bad:?}");
        }
    }
}
