//! Reads a capture, packet by packet.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pcap_file::pcap::PcapReader;
use pcap_file::{DataLink, PcapError, TsResolution};

use super::MAX_PACKET;
use super::error::Error;

/// Bytes of the file's header.
const FILE_HEADER: u64 = 24;
/// Bytes in front of each packet.
const PACKET_HEADER: u64 = 16;

/// A packet of a capture.
pub(super) struct CapturedPacket<'a> {
    pub(super) time: Duration,
    pub(super) bytes: Cow<'a, [u8]>,
}

/// A capture that is being read.
#[derive(Debug)]
pub(super) struct Input<R: io::Read = File> {
    reader: PcapReader<R>,
    file: PathBuf,
    /// Where the next packet begins.
    offset: u64,
    ended: bool,
    too_long: bool,
}

impl Input {
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let file = File::open(path).map_err(Error::file("open the capture", path))?;
        Self::new(file, path)
    }
}

impl<R: io::Read> Input<R> {
    /// Reads the header of the capture.
    pub(super) fn new(source: R, file: &Path) -> Result<Self, Error> {
        let reader = PcapReader::new(source).map_err(|e| match e {
            PcapError::InvalidField(_) => {
                let why = "not a pcap file (convert pcapng first: editcap -F pcap)".to_owned();
                Error::Damaged { file: file.to_owned(), offset: 0, why }
            }
            e => explain(e, file, 0, "the file's header"),
        })?;
        // The upper bits hold the length of the checksum after each frame.
        let link = u32::from(reader.header().datalink) & 0xffff;
        if link != u32::from(DataLink::ETHERNET) {
            let why = format!("packets have link type {link}; only Ethernet (1) is supported");
            return Err(Error::Damaged { file: file.to_owned(), offset: 20, why });
        }
        Ok(Self { reader, file: file.to_owned(), offset: FILE_HEADER, ended: false, too_long: false })
    }

    /// Returns the next packet, or `None` at the end. An error stays.
    pub(super) fn next(&mut self) -> Result<Option<CapturedPacket<'_>>, Error> {
        if self.ended {
            return Ok(None);
        }
        let too_long = || {
            let why = format!("a packet is longer than {MAX_PACKET} bytes");
            Error::Damaged { file: self.file.clone(), offset: self.offset, why }
        };
        if self.too_long {
            return Err(too_long());
        }
        let unit = match self.reader.header().ts_resolution {
            TsResolution::MicroSecond => 1_000,
            TsResolution::NanoSecond => 1,
        };
        let Some(read) = self.reader.next_raw_packet() else {
            self.ended = true;
            return Ok(None);
        };
        let packet = read.map_err(|e| explain(e, &self.file, self.offset, "a packet"))?;
        if packet.data.len() > MAX_PACKET {
            self.too_long = true;
            return Err(too_long());
        }
        self.offset += PACKET_HEADER + packet.data.len() as u64;
        let part = Duration::from_nanos(u64::from(packet.ts_frac) * unit);
        let time = Duration::from_secs(packet.ts_sec.into()) + part;
        Ok(Some(CapturedPacket { time, bytes: packet.data }))
    }

    pub(super) const fn ended(&self) -> bool {
        self.ended
    }
}

/// Adds the place to an error.
fn explain(error: PcapError, file: &Path, offset: u64, part: &str) -> Error {
    let damaged = |why| Error::Damaged { file: file.to_owned(), offset, why };
    match error {
        PcapError::IoError(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
            damaged(format!("the file ends within {part}, or its length is wrong"))
        }
        PcapError::IoError(e) => Error::file("read the capture", file)(e),
        e => damaged(e.to_string()),
    }
}
