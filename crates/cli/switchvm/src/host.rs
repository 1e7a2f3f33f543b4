//! Messages to and from the host, over the virtio-serial port.

use anyhow::{Context, bail};
use p4shield_boot::Port;
use p4shield_line::switch::{FromSwitch, MAX_FROM_SWITCH, MAX_TO_SWITCH, ToSwitch};
use p4shield_line::{FrameReader, encode_frame};
use std::io::{Read as _, Write as _};
use std::sync::{Mutex, PoisonError};

/// The way to the host.
#[derive(Debug)]
pub(crate) struct Host {
    port: Mutex<Port>,
}

impl Host {
    /// Opens the port as soon as it is there.
    pub(crate) fn open() -> anyhow::Result<Self> {
        Ok(Self { port: Mutex::new(Port::open()?) })
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
    port: Port,
    frames: FrameReader,
}

impl Received {
    /// Waits for the next message.
    pub(crate) fn next(&mut self) -> anyhow::Result<ToSwitch> {
        let mut buffer = vec![0; 64 << 10];
        loop {
            if let Some(message) = self.frames.take().context("the host's message")? {
                return Ok(message);
            }
            match self.port.read(&mut buffer).context("cannot read from the host")? {
                0 => bail!("the host has closed the line"),
                n => self.frames.extend(&buffer[..n]),
            }
        }
    }
}
