//! The guest's console: kernel messages and the last words of the P4 VM.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

/// Longest line that is passed on, in bytes.
const MAX_LINE: usize = 400;

/// Passes each line on to standard error, which the daemon keeps the end of, until the guest ends.
pub(crate) fn pass_on(mut console: UnixStream) -> std::io::Result<()> {
    std::thread::Builder::new().name("console".to_owned()).spawn(move || {
        let mut lines = Lines::default();
        let mut buffer = [0; 4096];
        while let Ok(n @ 1..) = console.read(&mut buffer) {
            // The daemon may be gone, and the next one not come yet.
            lines.add(&buffer[..n], |line| drop(std::io::stderr().write_all(line)));
        }
    })?;
    Ok(())
}

/// Collects lines.
#[derive(Default)]
struct Lines {
    line: Vec<u8>,
}

impl Lines {
    fn add(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8])) {
        for byte in bytes {
            match byte {
                b'\n' if self.line.is_empty() => {}
                b'\n' => {
                    self.line.push(b'\n');
                    each(&self.line);
                    self.line.clear();
                }
                b'\r' => {}
                _ if self.line.len() < MAX_LINE => self.line.push(*byte),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_bounded_and_whole() {
        let mut lines = Lines::default();
        let mut seen = Vec::new();
        for part in [&b"[ 0.1] pan"[..], b"ic\r\n\r\n", &[b'x'; 1000], b"\n", b"rest"] {
            lines.add(part, |line| seen.push(line.len()));
        }
        assert_eq!(seen, ["[ 0.1] panic\n".len(), MAX_LINE + 1]);
    }
}
