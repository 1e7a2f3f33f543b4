//! Ports that are capture files: a port receives the packets of its input and appends what it sends to its
//! output. The files have the classic libpcap format, in both byte orders, with micro- or nanoseconds;
//! outputs have nanoseconds.
//!
//! A packet that is sent has the time of the packet that was received last, so that the same inputs give the
//! same outputs.
//!
//! # Libraries
//!
//! `pcap-file` reads as it goes, so that a capture may be larger than memory. `p4shield_stf::pcap` has the
//! whole capture in memory, since a script's test compares all packets of two captures.

mod error;
mod input;
mod output;

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::Duration;

use p4shield_switch::PacketIo;

pub use self::error::Error;
use self::input::Input;
use self::output::Output;

/// Bytes of the longest packet in a file: what libpcap takes for the longest of all.
pub const MAX_PACKET: usize = 1 << 18;

/// The files of one port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortFiles {
    /// The packets that arrive. Without it none arrives.
    pub input: Option<PathBuf>,
    /// Receives the packets that leave; what the file contained is lost. Without it they are lost.
    pub output: Option<PathBuf>,
}

/// Ports that are capture files.
#[derive(Debug, Default)]
pub struct PcapPorts {
    ports: Vec<PcapPort>,
    /// The time of the packet that was received last.
    now: Duration,
}

#[derive(Debug)]
struct PcapPort {
    input: Option<Input>,
    output: Option<Output>,
}

impl PcapPorts {
    /// Opens the files of all ports. Outputs are created after all inputs were opened.
    ///
    /// # Errors
    /// [`Error`]: a file cannot be opened or is no capture of Ethernet frames, or an output is another file
    /// of these ports as well.
    pub fn open(files: &[PortFiles]) -> Result<Self, Error> {
        let inputs: Vec<_> = files.iter().map(|f| f.input.as_deref().map(Input::open).transpose()).collect();
        let inputs = inputs.into_iter().collect::<Result<Vec<_>, _>>()?;
        let mut used: BTreeSet<_> =
            files.iter().filter_map(|f| f.input.as_ref()).filter_map(|p| fs::canonicalize(p).ok()).collect();
        let mut ports = Vec::new();
        for (input, files) in inputs.into_iter().zip(files) {
            let output = files.output.as_deref().map(|path| Output::create(path, &mut used)).transpose()?;
            ports.push(PcapPort { input, output });
        }
        Ok(Self { ports, now: Duration::ZERO })
    }
}

impl PacketIo for PcapPorts {
    type Error = Error;

    fn ports(&self) -> usize {
        self.ports.len()
    }

    /// A damaged file is an error after the packets in front of the damage, each time.
    fn receive(&mut self, port: usize, most: usize, mut each: impl FnMut(&[u8])) -> Result<usize, Error> {
        let Some(input) = &mut self.ports[port].input else { return Ok(0) };
        for n in 0..most {
            match input.next() {
                Ok(Some(packet)) => {
                    self.now = packet.time;
                    each(&packet.bytes);
                }
                Err(e) if n == 0 => return Err(e),
                Ok(None) | Err(_) => return Ok(n),
            }
        }
        Ok(most)
    }

    fn send(&mut self, port: usize, packet: &[u8]) -> bool {
        let now = self.now;
        self.ports[port].output.as_mut().is_some_and(|output| output.write(now, packet))
    }

    /// Reports what could not be written since the last call.
    fn flush(&mut self) -> Result<(), Error> {
        self.ports.iter_mut().filter_map(|p| p.output.as_mut()).try_for_each(Output::flush)
    }

    fn ended(&self) -> bool {
        self.ports.iter().filter_map(|p| p.input.as_ref()).all(Input::ended)
    }

    /// Returns at once: files have their packets already.
    fn wait(&mut self, _longest: Duration, _bell: Option<BorrowedFd<'_>>) -> Result<(), Error> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
