//! `p4shield switch capture`.

use std::borrow::Cow;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow};
use p4shield_console::Exit;
use p4shield_p4switch::api::{RecordView, StepView, Wanted};
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::{DataLink, TsResolution};

use super::Socket;
use super::recorded::{Limits, follow};

/// Write packets of a switch to a capture file, which Wireshark and tcpdump read
///
/// tcpdump on an interface that is a port sees only what leaves; the switch itself sees both. It records
/// while the capture lasts, and misses packets if there are more than the client takes.
///
/// Examples:
///
///   p4shield switch capture in.pcap --port 1 --count 1000
///   p4shield switch capture out.pcap --leaves-by 2 --for 10    as they leave
///   p4shield switch capture drops.pcap --dropped               as they arrived
///   p4shield switch capture - --port 1 | tcpdump -nr -
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Capture {
    /// The capture file, pcap with nanoseconds; - is standard output
    file: PathBuf,
    /// Packets that arrive at this port
    #[arg(long, value_name = "NUMBER")]
    port: Option<u16>,
    /// Packets that leave by this port, as they leave; otherwise as they arrived
    #[arg(long, value_name = "NUMBER")]
    leaves_by: Option<u16>,
    /// Packets of which a copy is dropped
    #[arg(long)]
    dropped: bool,
    #[command(flatten)]
    limits: Limits,
    #[command(flatten)]
    socket: Socket,
}

impl Capture {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let Self { file, port, leaves_by, dropped, limits, socket } = self;
        let mut capture = Writer::create(&file)?;
        let most = limits.count;
        let wanted = Wanted { port, leaves_by, through: None, dropped, events: false, most };
        let write = |record: &RecordView| {
            packets(record, leaves_by).try_for_each(|packet| capture.write(record.time_ns, packet))
        };
        follow(&socket.socket, wanted, &limits, write)
    }
}

/// Returns the packets of a record: as it left by a port, or as it arrived.
fn packets(record: &RecordView, leaves_by: Option<u16>) -> impl Iterator<Item = &str> {
    let left = record.steps.iter().filter_map(move |step| match step {
        StepView::Sent { port, bytes } if Some(*port) == leaves_by => Some(bytes.as_str()),
        _ => None,
    });
    let arrived = leaves_by.is_none().then_some(record.bytes.as_str());
    arrived.into_iter().chain(left)
}

/// A capture that is being written.
struct Writer {
    /// Without a buffer, so that a reader behind a pipe sees each packet at once.
    pcap: PcapWriter<File>,
    file: PathBuf,
}

impl Writer {
    fn create(file: &Path) -> anyhow::Result<Self> {
        let failed = || format!("cannot create {}", file.display());
        let to = match file.as_os_str() == "-" {
            true => std::io::stdout().as_fd().try_clone_to_owned().map(File::from),
            false => File::create(file),
        };
        let header = PcapHeader {
            datalink: DataLink::ETHERNET,
            ts_resolution: TsResolution::NanoSecond,
            ..PcapHeader::default()
        };
        let pcap = PcapWriter::with_header(to.with_context(failed)?, header)
            .map_err(|e| anyhow!("{}: {e}", failed()))?;
        Ok(Self { pcap, file: file.to_owned() })
    }

    fn write(&mut self, time_ns: u64, packet: &str) -> anyhow::Result<()> {
        let bytes = hex::decode(packet).context("the switch sent a packet that is not hexadecimal")?;
        let length = bytes.len() as u32;
        let packet = PcapPacket {
            timestamp: Duration::from_nanos(time_ns),
            orig_len: length,
            data: Cow::Owned(bytes),
        };
        let written = self.pcap.write_packet(&packet);
        written.map(|_| ()).map_err(|e| anyhow!("cannot write {}: {e}", self.file.display()))
    }
}
