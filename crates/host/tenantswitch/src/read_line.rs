//! Reads lines of a party that is not trusted.

use std::io::{self, BufRead, Read as _};

/// Reads a line with its end. `None`: the other side has closed the stream.
///
/// # Errors
/// The stream fails, or the line is longer than `most` bytes.
pub(crate) fn read_line(stream: &mut impl BufRead, most: u64) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    stream.take(most).read_until(b'\n', &mut line)?;
    match line.last() {
        None => Ok(None),
        Some(b'\n') => Ok(Some(line)),
        Some(_) => Err(io::Error::other(format!("a line has no end, or more than {most} bytes"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_and_bounded() {
        let mut text = &b"one\ntwo\nthree"[..];
        assert_eq!(read_line(&mut text, 4).unwrap().unwrap(), b"one\n");
        assert!(read_line(&mut text, 3).is_err(), "longer than three bytes");
        let mut text = &b"no end"[..];
        assert!(read_line(&mut text, 100).is_err());
        assert_eq!(read_line(&mut text, 100).unwrap(), None);
    }
}
