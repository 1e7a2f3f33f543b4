//! Ports that are capture files: a switch without interfaces and privileges.

use std::path::Path;

use p4shield_testbed::process::run;
use pcap_file::pcap::{PcapPacket, PcapReader, PcapWriter};

use super::*;
use crate::common::p4shield;

/// Routes and their next hops, for the example.
const ENTRIES: &str = "table_add routes forward 10.9.2.0/24 => 02:00:00:00:00:02 2\n";

/// An IPv4 packet to this address, of this protocol.
pub(super) fn to(last: u8, protocol: u8) -> Vec<u8> {
    let mut ip = [0x45, 0, 0, 28, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 9, 1, 1, 10, 9, last, 1];
    let sum: u32 = ip.as_chunks().0.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum();
    let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    let ethernet = [2, 0, 0, 0, 0, 0xfe, 2, 0, 0, 0, 0, 1, 8, 0];
    [&ethernet[..], &ip, &[0; 8]].concat()
}

pub(super) fn write(path: &Path, packets: &[Vec<u8>]) {
    let mut writer = PcapWriter::new(std::fs::File::create(path).unwrap()).unwrap();
    for (n, bytes) in packets.iter().enumerate() {
        let time = std::time::Duration::from_secs(n as u64);
        writer.write_packet(&PcapPacket::new(time, bytes.len() as u32, bytes)).unwrap();
    }
}

pub(super) fn read(path: &Path) -> Vec<Vec<u8>> {
    let mut reader = PcapReader::new(std::fs::File::open(path).unwrap()).unwrap();
    let mut packets = Vec::new();
    while let Some(packet) = reader.next_packet() {
        packets.push(packet.unwrap().data.into_owned());
    }
    packets
}

/// Runs the example on these ports, and returns its exit code and errors.
fn routes(folder: &Path, ports: &[String]) -> (i32, String) {
    let entries = folder.join("commands.txt");
    std::fs::write(&entries, ENTRIES).unwrap();
    let (entries, socket) = (entries.display().to_string(), folder.join("switch.sock").display().to_string());
    let router = example("programs/router.p4");
    let begin = ["switch", "run", &router, "--entries", &entries, "--socket", &socket];
    let ports: Vec<_> = ports.iter().flat_map(|port| ["--port", port]).collect();
    let output = p4shield(&[&begin, &ports[..]].concat());
    (code(&output), stderr(&output))
}

#[test]
fn a_switch_of_capture_files_ends_with_its_packets() {
    let folder = tempfile::tempdir().unwrap();
    let [input, out, back] = ["in.pcap", "out.pcap", "back.pcap"].map(|name| folder.path().join(name));
    let sent: Vec<_> = (0..100).map(|n| to(if n % 4 == 0 { 3 } else { 2 }, 17)).collect();
    write(&input, &sent);
    let ports =
        [format!("1=pcap:{},{}", input.display(), back.display()), format!("2=pcap:,{}", out.display())];
    let (code, text) = routes(folder.path(), &ports);
    assert_eq!(code, 0, "{text}");
    let left = read(&out);
    assert_eq!(left.len(), 75, "those with a route");
    assert!(left.iter().all(|p| p[..6] == [2, 0, 0, 0, 0, 2] && p[22] == 63), "{left:?}");
    assert!(read(&back).is_empty());
}

#[test]
fn a_damaged_capture_ends_the_switch_with_the_place() {
    let folder = tempfile::tempdir().unwrap();
    let [input, out] = ["in.pcap", "out.pcap"].map(|name| folder.path().join(name));
    write(&input, &[to(2, 17), to(2, 17)]);
    let mut bytes = std::fs::read(&input).unwrap();
    bytes.truncate(bytes.len() - 3);
    std::fs::write(&input, bytes).unwrap();
    let ports = [format!("1=pcap:{}", input.display()), format!("2=pcap:,{}", out.display())];
    let (code, text) = routes(folder.path(), &ports);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("in.pcap") && text.contains("at byte"), "{text}");
    assert_eq!(read(&out).len(), 1, "the packets before it");
    let (code, text) = routes(folder.path(), &["1=pcap:/nowhere/in.pcap".to_owned()]);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("cannot open the capture /nowhere/in.pcap"), "{text}");
}

#[test]
fn a_full_disk_for_a_capture_ends_the_switch() {
    if !rustix::process::geteuid().is_root() {
        p4shield_need::skip("root", "only root mounts a file system");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("in.pcap");
    write(&input, &vec![to(2, 17); 2000]);
    let small = folder.path().join("small");
    std::fs::create_dir(&small).unwrap();
    run(Command::new("mount").args(["-t", "tmpfs", "-o", "size=16k", "tmpfs"]).arg(&small)).unwrap();
    let ports = [format!("1=pcap:{}", input.display()), format!("2=pcap:,{}/out.pcap", small.display())];
    let (code, text) = routes(folder.path(), &ports);
    run(Command::new("umount").arg(&small)).unwrap();
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("small/out.pcap") && text.contains("No space left"), "{text}");
}

#[test]
fn more_threads_than_a_switch_can_have_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.pcap");
    std::fs::write(&out, "kept").unwrap();
    let (router, port) = (example("programs/router.p4"), format!("1=pcap:,{}", out.display()));
    let refused = |threads: &str| {
        let output = p4shield(&["switch", "run", &router, "--port", &port, "--threads", threads]);
        (code(&output), stderr(&output))
    };
    let range = |n| (3, format!("p4shield: {n} packet threads: a switch has 1 to 16\n"));
    assert_eq!((refused("0"), refused("17")), (range(0), range(17)));
    let files = "p4shield: capture files are read by one packet thread; leave --threads out\n".to_owned();
    assert_eq!(refused("2"), (3, files));
    assert_eq!(std::fs::read_to_string(&out).unwrap(), "kept");
}
