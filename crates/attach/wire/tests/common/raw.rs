//! Sends and receives whole frames on an interface: a packet socket that puts VLAN tags back into the
//! frame.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use p4shield_frame::{ipv4, protocol, transport};
use p4shield_testbed::NetNs;

pub struct Raw {
    fd: OwnedFd,
    index: i32,
}

fn check(result: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

impl Raw {
    /// Opens `interface` of `ns`.
    pub fn open(ns: &NetNs, interface: &str) -> Self {
        let name = std::ffi::CString::new(interface).unwrap();
        ns.inside(|| {
            let protocol = (libc::ETH_P_ALL as u16).to_be();
            // SAFETY: plain system calls on live values of the sizes given.
            unsafe {
                let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
                check(fd as libc::ssize_t).unwrap();
                let fd = OwnedFd::from_raw_fd(fd);
                let index = libc::if_nametoindex(name.as_ptr()).cast_signed();
                let mut address: libc::sockaddr_ll = std::mem::zeroed();
                address.sll_family = libc::AF_PACKET as u16;
                address.sll_protocol = protocol;
                address.sll_ifindex = index;
                let len = size_of_val(&address) as u32;
                let bound = libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len);
                check(bound as libc::ssize_t).unwrap();
                let on = 1i32;
                let set = |option, value: *const libc::c_void, len| {
                    let level = if option == libc::SO_RCVTIMEO { libc::SOL_SOCKET } else { libc::SOL_PACKET };
                    check(libc::setsockopt(fd.as_raw_fd(), level, option, value, len) as libc::ssize_t)
                        .unwrap();
                };
                set(libc::PACKET_AUXDATA, (&raw const on).cast(), 4);
                let soon = libc::timeval { tv_sec: 0, tv_usec: 50_000 };
                set(libc::SO_RCVTIMEO, (&raw const soon).cast(), size_of_val(&soon) as u32);
                Self { fd, index }
            }
        })
    }

    /// Sends a frame unchanged.
    pub fn send(&self, frame: &[u8]) {
        // SAFETY: plain system call on live values of the sizes given.
        let sent = unsafe {
            let mut address: libc::sockaddr_ll = std::mem::zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_ifindex = self.index;
            let len = size_of_val(&address) as u32;
            let to = (&raw const address).cast();
            libc::sendto(self.fd.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0, to, len)
        };
        assert_eq!(check(sent).unwrap(), frame.len());
    }

    /// Returns the next received frame, with its tags, or `None` after a short while. Skips sent frames.
    pub fn receive(&self) -> Option<Vec<u8>> {
        let mut frame = vec![0u8; 65536];
        let mut control = [0u64; 16];
        // SAFETY: plain system call on live buffers of the sizes given; control messages are walked by
        // libc's macros within what the kernel wrote.
        unsafe {
            let mut part = libc::iovec { iov_base: frame.as_mut_ptr().cast(), iov_len: frame.len() };
            let mut from: libc::sockaddr_ll = std::mem::zeroed();
            let mut message: libc::msghdr = std::mem::zeroed();
            message.msg_name = (&raw mut from).cast();
            message.msg_namelen = size_of_val(&from) as u32;
            message.msg_iov = &raw mut part;
            message.msg_iovlen = 1;
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = size_of_val(&control);
            let got = check(libc::recvmsg(self.fd.as_raw_fd(), &raw mut message, 0)).ok()?;
            frame.truncate(got);
            if from.sll_pkttype == libc::PACKET_OUTGOING {
                return self.receive();
            }
            let c = libc::CMSG_FIRSTHDR(&raw const message);
            if !c.is_null() && (*c).cmsg_type == libc::PACKET_AUXDATA {
                let aux = libc::CMSG_DATA(c).cast::<libc::tpacket_auxdata>().read_unaligned();
                if aux.tp_status & libc::TP_STATUS_VLAN_VALID != 0 {
                    let tag = [aux.tp_vlan_tpid.to_be_bytes(), aux.tp_vlan_tci.to_be_bytes()].concat();
                    frame.splice(12..12, tag);
                }
            }
        }
        Some(frame)
    }

    /// Returns the first frame that `wanted` accepts, or `None` after ten seconds.
    pub fn find(&self, mut wanted: impl FnMut(&[u8]) -> bool) -> Option<Vec<u8>> {
        let end = Instant::now() + Duration::from_secs(10);
        while Instant::now() < end {
            if let Some(f) = self.receive().filter(|f| wanted(f)) {
                return Some(f);
            }
        }
        None
    }
}

/// Creates a broadcast UDP frame with a tag for each of `tags` (protocol, tag control) and a partial
/// checksum, the sum of the pseudo header. `mark` identifies the frame.
pub fn partial_udp(tags: &[(u16, u16)], mark: u64) -> Vec<u8> {
    let mut f = vec![0xff; 6];
    f.extend([2, 0, 0, 0, 0, 9]);
    for (protocol, control) in tags {
        f.extend(protocol.to_be_bytes());
        f.extend(control.to_be_bytes());
    }
    let payload = [&mark.to_be_bytes()[..], &b"a payload of odd length ".repeat(37)[..]].concat();
    let length = (8 + payload.len()) as u16;
    f.extend([8, 0, 0x45, 0]);
    let ip = f.len() - 2;
    f.extend((20 + length).to_be_bytes());
    f.extend([0, 1, 0x40, 0, 64, 17, 0, 0, 10, 7, 0, 77, 10, 7, 0, 255]);
    // A bridge drops what has a wrong header checksum.
    ipv4::set_checksum(&mut f[ip..]);
    let pseudo = transport::pseudo_header(&f[ip..][ipv4::ADDRESSES], protocol::UDP, length.into());
    f.extend([0x11, 0x11, 0x22, 0x22]);
    f.extend(length.to_be_bytes());
    f.extend(pseudo.folded().to_be_bytes());
    f.extend(payload);
    f
}

/// Returns whether a frame has this mark.
pub fn has_mark(frame: &[u8], mark: u64) -> bool {
    frame.windows(8).any(|w| w == mark.to_be_bytes())
}
