//! Sizes with units, as users write them.

/// Parses `64MiB`, `1.5GiB`, `4096` or `10kB` as bytes.
///
/// # Errors
/// The text is not a number with a known unit.
pub fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit.trim() {
        "" | "B" => 1.0,
        "kB" | "KB" | "k" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "KiB" => 1024.0,
        "MiB" => 1024.0 * 1024.0,
        "GiB" => 1024.0 * 1024.0 * 1024.0,
        _ => return Err(format!("{unit:?} is not a unit of bytes; use B, kB, MB, GB, KiB, MiB or GiB")),
    };
    match number.parse::<f64>() {
        Ok(n) => Ok((n * factor) as u64),
        Err(_) => Err(format!("{text:?} is not a number of bytes; write for example 64MiB")),
    }
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn sizes_are_parsed_with_their_units() {
        assert_eq!(bytes("64MiB"), Ok(64 << 20));
        assert_eq!(bytes("1.5 KiB"), Ok(1536));
        assert_eq!(bytes("4096"), Ok(4096));
        assert!(bytes("64 apples").unwrap_err().contains("unit"));
        assert!(bytes("MiB").is_err());
        assert!(bytes("-1").is_err());
    }
}
