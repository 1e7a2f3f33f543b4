//! Packets with numbers, in files that DPDK's `net_pcap` reads and writes.

use p4shield_testbed::NetNs;
use std::ffi::CString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

/// Where a packet's number is: behind Ethernet, IPv4 without options, and UDP.
const SERIAL: usize = 42;
/// Bytes behind the number that a program may take out.
const FILLER: usize = 16;

/// A UDP packet of `len` bytes from 10.0.`source`.1 to 10.0.`destination`.1, of a flow that `port` tells.
pub(crate) fn frame(serial: u32, source: u8, destination: u8, port: u16, len: usize) -> Vec<u8> {
    let mut b = vec![2, 0, 0, 0, 0, destination, 2, 0, 0, 0, 0, source, 8, 0];
    let total = u16::try_from(len - 14).expect("short").to_be_bytes();
    b.extend([0x45, 0, total[0], total[1], 0, 0, 0, 0, 64, 17, 0, 0]);
    b.extend([10, 0, source, 1, 10, 0, destination, 1]);
    let udp = u16::try_from(len - 34).expect("short").to_be_bytes();
    b.extend(port.to_be_bytes().into_iter().chain([0, 9, udp[0], udp[1], 0, 0]));
    b.extend(serial.to_be_bytes());
    b.extend([0xf1; FILLER]);
    b.extend((b.len()..len).map(|i| i as u8));
    assert_eq!(b.len(), len, "room for number and filler");
    b
}

/// The number of a packet, whatever a program did to it.
pub(crate) fn serial_of(frame: &[u8]) -> u32 {
    let at = SERIAL - 20 + usize::from(frame[14] & 0xf) * 4;
    u32::from_be_bytes(frame[at..at + 4].try_into().expect("four bytes"))
}

/// The number of a packet's flow.
pub(crate) fn flow_of(frame: &[u8]) -> u16 {
    let at = 14 + usize::from(frame[14] & 0xf) * 4;
    u16::from_be_bytes([frame[at], frame[at + 1]])
}

/// Puts four bytes of IPv4 options in.
pub(crate) fn grown(frame: &[u8]) -> Vec<u8> {
    let mut new = [&frame[..34], &[1, 1, 1, 0], &frame[34..]].concat();
    new[14] = 0x46;
    resize_ip(&mut new, 4);
    new
}

/// Takes eight bytes of payload out.
pub(crate) fn shrunk(frame: &[u8]) -> Vec<u8> {
    let mut new = [&frame[..SERIAL + 4], &frame[SERIAL + 12..]].concat();
    resize_ip(&mut new, -8);
    new
}

fn resize_ip(frame: &mut [u8], by: i16) {
    let total = u16::from_be_bytes([frame[16], frame[17]]).wrapping_add_signed(by);
    frame[16..18].copy_from_slice(&total.to_be_bytes());
}

/// Sends frames from an interface.
#[allow(dead_code, reason = "not every test sends on an interface")]
pub(crate) fn send(ns: &NetNs, interface: &str, frames: &[Vec<u8>]) {
    let name = CString::new(interface).expect("no NUL");
    ns.inside(|| {
        // SAFETY: plain system calls on live values of the sizes given.
        unsafe {
            let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
            assert!(fd >= 0, "a packet socket");
            let socket = OwnedFd::from_raw_fd(fd);
            let mut address: libc::sockaddr_ll = std::mem::zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_ifindex = libc::if_nametoindex(name.as_ptr()).cast_signed();
            let to = (&raw const address).cast();
            for frame in frames {
                let (bytes, len) = (frame.as_ptr().cast(), size_of_val(&address) as u32);
                let sent = libc::sendto(socket.as_raw_fd(), bytes, frame.len(), 0, to, len);
                assert_eq!(usize::try_from(sent).ok(), Some(frame.len()), "{interface}");
            }
        }
    });
}

/// Writes a capture file.
pub(crate) fn write(path: &Path, frames: &[Vec<u8>]) {
    let mut file = Vec::new();
    // Magic number, version 2.4, no time zone, whole packets, Ethernet.
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1] {
        file.extend(word.to_le_bytes());
    }
    for frame in frames {
        let len = u32::try_from(frame.len()).expect("short");
        [0, 0, len, len].into_iter().for_each(|word| file.extend(word.to_le_bytes()));
        file.extend(frame);
    }
    std::fs::write(path, file).expect("the folder is ours");
}

/// Reads a capture file.
pub(crate) fn read(path: &Path) -> Vec<Vec<u8>> {
    let file = std::fs::read(path).expect("it was written");
    let mut rest = &file[24..];
    let mut frames = Vec::new();
    while let Some(len) = rest.get(8..12) {
        let len = u32::from_le_bytes(len.try_into().expect("four bytes")) as usize;
        frames.push(rest[16..16 + len].to_vec());
        rest = &rest[16 + len..];
    }
    frames
}
