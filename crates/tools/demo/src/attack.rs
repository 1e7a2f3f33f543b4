//! The malicious cloud: attacks of the host on packets and pages that it carries.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use p4shield_frame::ipv4;
use p4shield_testbed::NetNs;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};

use crate::scene::{CLIENT, VM, VM_INTERFACE};

/// Sends `count` datagrams directly to the VM's interface; they bypass wire, P4 VM and program.
pub(crate) fn bypass(host: &NetNs, vm: &NetNs, count: u16) -> io::Result<()> {
    let mac = |ns: &NetNs, name: &str| -> io::Result<[u8; 6]> {
        let text = ns.ip(&format!("-o link show dev {name}")).map_err(io::Error::other)?;
        let mut words = text.split_whitespace();
        let found = words.find(|w| *w == "link/ether").and_then(|_| words.next());
        found.and_then(parse_mac).ok_or_else(|| io::Error::other(format!("{name} has no Ethernet address")))
    };
    let (from, to) = (mac(host, VM_INTERFACE)?, mac(vm, "eth0")?);
    host.inside(|| {
        let socket = packet_socket(VM_INTERFACE)?;
        for port in 0..count {
            send(&socket, &datagram(from, to, 40_000 + port))?;
        }
        Ok(())
    })
}

/// Publications that the P4 VM accepts after a copy was made until it surely knows a newer one: the first
/// may be the copied one. What it accepted last is not old, so sending it again is no replay.
pub(crate) const NEWER: u64 = 2;

/// Replays old information: overwrites a page with an earlier copy, repeatedly until `is_over`.
pub(crate) fn replay(page: &Path, earlier: &[u8], is_over: &AtomicBool) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(page)?;
    while !is_over.load(Ordering::Relaxed) {
        file.write_all_at(earlier, 0)?;
        std::thread::sleep(Duration::from_micros(200));
    }
    Ok(())
}

fn parse_mac(text: &str) -> Option<[u8; 6]> {
    let bytes: Vec<u8> = text.split(':').map(|b| u8::from_str_radix(b, 16)).collect::<Result<_, _>>().ok()?;
    bytes.try_into().ok()
}

/// Returns an Ethernet frame with an IPv4 UDP datagram from the client to the VM's discard port. A UDP
/// checksum of zero means that there is none (RFC 768).
fn datagram(from: [u8; 6], to: [u8; 6], source_port: u16) -> Vec<u8> {
    let (std::net::IpAddr::V4(client), std::net::IpAddr::V4(vm)) = (CLIENT, VM) else { return Vec::new() };
    let payload = b"round the program";
    let udp_len = (8 + payload.len()) as u16;
    let mut ip = [0_u8; 20];
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&(20 + udp_len).to_be_bytes());
    ip[8] = 64;
    ip[9] = 17;
    ip[12..16].copy_from_slice(&client.octets());
    ip[16..20].copy_from_slice(&vm.octets());
    ipv4::set_checksum(&mut ip);
    let udp = [source_port, 9, udp_len, 0].map(u16::to_be_bytes);
    [&to[..], &from, &[8, 0], &ip, udp.as_flattened(), payload].concat()
}

fn packet_socket(interface: &str) -> io::Result<OwnedFd> {
    let socket =
        rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    let index = rustix::net::netdevice::name_to_index(&socket, interface)?;
    // The wire's tc filter drops packets that bypass it; a malicious cloud skips the filter, too.
    let yes: libc::c_int = 1;
    // SAFETY: the option's value is an int that outlives the call.
    let bypassing = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_QDISC_BYPASS,
            (&raw const yes).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if bypassing < 0 {
        return Err(io::Error::last_os_error());
    }
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: 0,
        sll_ifindex: index as i32,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    // SAFETY: `address` is a sockaddr_ll and the length is its size.
    let bound = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    };
    if bound < 0 { Err(io::Error::last_os_error()) } else { Ok(socket) }
}

fn send(socket: &OwnedFd, frame: &[u8]) -> io::Result<()> {
    rustix::net::send(socket, frame, SendFlags::empty()).map(drop).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_datagrams_header_checksum_is_correct() {
        let frame = datagram([2; 6], [4; 6], 40_000);
        assert!(ipv4::has_right_checksum(&frame[14..]));
        assert_eq!(frame.len(), 14 + 20 + 8 + 17);
    }

    #[test]
    fn addresses_are_read() {
        assert_eq!(parse_mac("02:00:00:00:00:ff"), Some([2, 0, 0, 0, 0, 255]));
        assert_eq!(parse_mac("02:00"), None);
        assert_eq!(parse_mac("zz:00:00:00:00:ff"), None);
    }
}
