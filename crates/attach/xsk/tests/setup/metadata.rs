//! An application that uses transmit metadata (`XDP_TX_METADATA`).

use super::{App, CHUNK, map, setsockopt, socket, wait_until};
use p4shield_frame::{Sum, ipv4, protocol, transport};

/// UMEM flags: transmit metadata precedes packets, and the kernel may complete checksums in software.
const FLAGS: u64 = 1 << 2 | 1 << 1;
/// Bytes of `struct xsk_tx_metadata`.
const LEN: usize = 24;
/// Requests in it: report the time of sending, complete the checksum.
const REQUESTS: u64 = 1 | 2;
/// Descriptor option: there is metadata.
const PRESENT: u32 = 2;
/// Address of the packet.
const AT: u64 = 3 * CHUNK + 256;

/// Sends datagrams with partial checksums until one arrives at the other end.
pub(crate) fn task() {
    let mut app = match App::with(socket, setsockopt, map, (32, FLAGS | (LEN as u64) << 32)) {
        Ok(app) => app,
        Err(error) => return println!("metadata refused: {error}"),
    };
    let receiver = listen();
    app.bind(libc::XDP_COPY | libc::XDP_USE_NEED_WAKEUP).unwrap();
    let (packet, requests) = (datagram(), request_bytes());
    let mut received = None;
    wait_until("a datagram", 60, || {
        app.bytes(AT - LEN as u64, LEN).copy_from_slice(&requests);
        app.bytes(AT, packet.len()).copy_from_slice(&packet);
        app.send(AT, packet.len() as u32, PRESENT);
        received = receive_copy(receiver, &packet);
        received.is_some()
    })
    .unwrap();
    // The requests stay, and the time of sending replaces the checksum offsets.
    let after = app.bytes(AT - LEN as u64, LEN).to_vec();
    let timed = after[..8] == requests[..8] && after[8..16] != requests[8..16];
    let right = received.is_some_and(|p| (pseudo(&p) + Sum::of(&p[34..])).checksum() == 0);
    println!("metadata: time of sending {timed}, right checksum {right}");
    assert_eq!(super::close(app.fd), 0);
}

fn request_bytes() -> [u8; LEN] {
    let mut request = [0; LEN];
    request[..8].copy_from_slice(&REQUESTS.to_ne_bytes());
    // From the UDP header on, to the checksum field of that header.
    request[8..10].copy_from_slice(&34_u16.to_ne_bytes());
    request[10..12].copy_from_slice(&6_u16.to_ne_bytes());
    request
}

/// Returns the sum of a datagram's pseudo header.
fn pseudo(p: &[u8]) -> Sum {
    transport::pseudo_header(&p[26..34], protocol::UDP, p.len() - 34)
}

/// Creates a datagram from 10.9.3.2 to 10.9.3.1 whose checksum field holds the sum of the pseudo header.
fn datagram() -> Vec<u8> {
    const PAYLOAD: &[u8] = b"P4 Shield's checksums";
    let mut p = vec![0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 2, 8, 0];
    let udp = 8 + PAYLOAD.len() as u16;
    p.extend([0x45, 0]);
    p.extend((20 + udp).to_be_bytes());
    p.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 9, 3, 2, 10, 9, 3, 1]);
    ipv4::set_checksum(&mut p[14..]);
    p.extend([0, 9, 0, 9]);
    p.extend(udp.to_be_bytes());
    p.extend([0, 0]);
    p.extend(PAYLOAD);
    let sum = pseudo(&p).folded();
    p[40..42].copy_from_slice(&sum.to_be_bytes());
    p
}

/// Opens a socket that receives what leaves `s1`.
fn listen() -> i32 {
    let protocol = (libc::ETH_P_IP as u16).to_be();
    // SAFETY: takes no pointers.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW, protocol.into()) };
    assert!(fd >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: all integers.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    (address.sll_family, address.sll_protocol) = (libc::AF_PACKET as u16, protocol);
    let len = size_of_val(&address) as u32;
    // SAFETY: a string that ends in a zero, and an address of that length.
    let bound = unsafe {
        address.sll_ifindex = libc::if_nametoindex(c"s1".as_ptr()) as i32;
        libc::bind(fd, (&raw const address).cast(), len)
    };
    assert_eq!(bound, 0, "{}", std::io::Error::last_os_error());
    fd
}

/// Returns the datagram as it arrived, if it has.
fn receive_copy(receiver: i32, sent: &[u8]) -> Option<Vec<u8>> {
    loop {
        let mut bytes = [0_u8; 2048];
        // SAFETY: a buffer of that length.
        let n = unsafe { libc::recv(receiver, bytes.as_mut_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT) };
        let packet = bytes.get(..usize::try_from(n).ok()?)?;
        // All but the checksum.
        if packet.len() == sent.len() && packet[..40] == sent[..40] && packet[42..] == sent[42..] {
            return Some(packet.to_vec());
        }
    }
}
