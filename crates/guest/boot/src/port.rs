//! The virtio-serial port to the host.

use std::fs::File;
use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

/// The first port of the first controller (`drivers/char/virtio_console.c` of Linux).
const PATH: &str = "/dev/vport0p1";
/// Longest time until the device is there, and until the host is behind it.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time between two looks for it.
const LOOK: Duration = Duration::from_millis(10);

/// The way to the host: a stream of bytes.
#[derive(Debug)]
pub struct Port(File);

impl Port {
    /// Opens it as soon as it is there.
    ///
    /// # Errors
    /// The machine has none.
    pub fn open() -> io::Result<Self> {
        let end = Instant::now() + PATIENCE;
        loop {
            match File::options().read(true).write(true).open(PATH) {
                Ok(port) => return Ok(Self(port)),
                Err(_) if Instant::now() < end => std::thread::sleep(LOOK),
                Err(e) => return Err(io::Error::new(e.kind(), format!("cannot open {PATH}: {e}"))),
            }
        }
    }

    /// Returns a second one, with which another thread reads.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }
}

impl Read for Port {
    /// Waits for bytes. Zero: the host has closed the line.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let end = Instant::now() + PATIENCE;
        loop {
            match self.0.read(buffer)? {
                // The port is open before the host is known to be behind it.
                0 if !buffer.is_empty() && Instant::now() < end => std::thread::sleep(LOOK),
                n => return Ok(n),
            }
        }
    }
}

impl Write for Port {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
