//! Sizes as people write them.

/// Reads `64MiB`, `1.5GiB`, `4096` or `10kB` as bytes.
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
        _ => return Err(format!("{unit:?} is no unit of bytes; use B, kB, MB, GB, KiB, MiB or GiB")),
    };
    match number.parse::<f64>() {
        Ok(n) => Ok((n * factor) as u64),
        Err(_) => Err(format!("{text:?} is no number of bytes; write for example 64MiB")),
    }
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn sizes_read_as_people_mean_them() {
        assert_eq!(bytes("64MiB"), Ok(64 << 20));
        assert_eq!(bytes("1.5 KiB"), Ok(1536));
        assert_eq!(bytes("4096"), Ok(4096));
        assert!(bytes("64 apples").unwrap_err().contains("unit"));
        assert!(bytes("MiB").is_err());
        assert!(bytes("-1").is_err());
    }
}
