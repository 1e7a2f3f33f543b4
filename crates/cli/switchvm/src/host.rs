//! The virtio-serial port to the host.

use anyhow::{Context, bail};
use p4shield_line::switch::{FromSwitch, MAX_FROM_SWITCH, MAX_TO_SWITCH, ToSwitch};
use p4shield_line::{FrameReader, encode_frame};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The first port of the first controller (`drivers/char/virtio_console.c` of Linux).
const PORT: &str = "/dev/vport0p1";
/// Longest time until the device is there, and until the host is behind it.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time between two looks for it.
const LOOK: Duration = Duration::from_millis(10);

/// The way to the host.
#[derive(Debug)]
pub(crate) struct Host {
    port: Mutex<File>,
}

impl Host {
    /// Opens the port as soon as it is there.
    pub(crate) fn open() -> anyhow::Result<Self> {
        let end = Instant::now() + PATIENCE;
        loop {
            match File::options().read(true).write(true).open(PORT) {
                Ok(port) => return Ok(Self { port: Mutex::new(port) }),
                Err(_) if Instant::now() < end => std::thread::sleep(LOOK),
                Err(e) => return Err(e).context(format!("cannot open {PORT}")),
            }
        }
    }

    /// Sends a message, whole.
    pub(crate) fn send(&self, message: &FromSwitch) -> anyhow::Result<()> {
        let frame = encode_frame(message, MAX_FROM_SWITCH)?;
        let mut port = self.port.lock().unwrap_or_else(PoisonError::into_inner);
        port.write_all(&frame).context("cannot write to the host")
    }

    pub(crate) fn receiver(&self) -> anyhow::Result<Received> {
        let port = self.port.lock().unwrap_or_else(PoisonError::into_inner);
        let port = port.try_clone().context("cannot read from the host")?;
        Ok(Received { port, frames: FrameReader::new(MAX_TO_SWITCH) })
    }
}

/// The messages of the host.
#[derive(Debug)]
pub(crate) struct Received {
    port: File,
    frames: FrameReader,
}

impl Received {
    /// Waits for the next message.
    pub(crate) fn next(&mut self) -> anyhow::Result<ToSwitch> {
        let end = Instant::now() + PATIENCE;
        let mut buffer = vec![0; 64 << 10];
        loop {
            if let Some(message) = self.frames.take().context("the host's message")? {
                return Ok(message);
            }
            match self.port.read(&mut buffer).context("cannot read from the host")? {
                // The port is open before the host is known to be behind it.
                0 if Instant::now() < end => std::thread::sleep(LOOK),
                0 => bail!("the host has closed the line"),
                n => self.frames.extend(&buffer[..n]),
            }
        }
    }
}
