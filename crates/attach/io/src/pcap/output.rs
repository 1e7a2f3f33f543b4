//! Writes a capture.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use pcap_file::pcap::PcapHeader;
use pcap_file::{Endianness, TsResolution};

use super::MAX_PACKET;
use super::error::Error;

/// A capture that is being written.
#[derive(Debug)]
pub(super) struct Output {
    writer: BufWriter<File>,
    file: PathBuf,
    /// The reason why a packet could not be written, until it is reported.
    failed: Option<io::Error>,
}

impl Output {
    /// Creates a file that is none of the `used` ones, and adds it to them.
    pub(super) fn create(path: &Path, used: &mut BTreeSet<PathBuf>) -> Result<Self, Error> {
        let failed = |e| Error::file("create the capture", path)(e);
        if fs::canonicalize(path).is_ok_and(|file| used.contains(&file)) {
            return Err(Error::Shared { file: path.to_owned() });
        }
        let file = File::create(path).map_err(failed)?;
        used.insert(fs::canonicalize(path).map_err(failed)?);
        let header = PcapHeader {
            snaplen: MAX_PACKET as u32,
            ts_resolution: TsResolution::NanoSecond,
            endianness: Endianness::Little,
            ..PcapHeader::default()
        };
        let mut writer = BufWriter::new(file);
        header.write_to(&mut writer).map_err(|e| failed(io::Error::other(e)))?;
        Ok(Self { writer, file: path.to_owned(), failed: None })
    }

    /// Appends a packet. Returns false if it is too long or cannot be written.
    pub(super) fn write(&mut self, time: Duration, packet: &[u8]) -> bool {
        if self.failed.is_some() || packet.len() > MAX_PACKET {
            return false;
        }
        let length = packet.len() as u32;
        // A damaged input has packets whose parts of a second exceed it.
        let seconds = u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
        let header = [seconds, time.subsec_nanos(), length, length].map(u32::to_le_bytes);
        let mut write = |bytes| self.writer.write_all(bytes);
        let written = write(header.as_flattened()).and_then(|()| write(packet));
        self.failed = written.err();
        self.failed.is_none()
    }

    /// Passes packets to the system, and reports the reason why one could not be written.
    pub(super) fn flush(&mut self) -> Result<(), Error> {
        let result = self.failed.take().map_or(Ok(()), Err).and_then(|()| self.writer.flush());
        result.map_err(Error::file("write the capture", &self.file))
    }
}
