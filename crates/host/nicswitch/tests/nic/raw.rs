//! A packet socket or a tap: sends and receives whole frames on an interface.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};

use p4shield_testbed::NetNs;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

#[derive(Debug)]
pub(crate) struct Raw(OwnedFd);

impl Raw {
    /// Opens an interface of `ns`.
    pub(crate) fn open(ns: &NetNs, interface: &str) -> Self {
        ns.inside(|| {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket =
                rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None).unwrap();
            let index = rustix::net::netdevice::name_to_index(&socket, interface).unwrap();
            let address = libc::sockaddr_ll {
                sll_family: libc::AF_PACKET as u16,
                sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
                sll_ifindex: index.cast_signed(),
                sll_hatype: 0,
                sll_pkttype: 0,
                sll_halen: 0,
                sll_addr: [0; 8],
            };
            let length = size_of_val(&address) as libc::socklen_t;
            // SAFETY: `address` is a sockaddr_ll and the length is its size.
            let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
            assert_eq!(bound, 0, "{interface}: {}", std::io::Error::last_os_error());
            Self(socket)
        })
    }

    /// Has each frame that is sent begin with what its receiver is to do with it (`struct virtio_net_hdr`).
    pub(crate) fn with_offloads(self) -> Self {
        let on: libc::c_int = 1;
        let length = size_of_val(&on) as libc::socklen_t;
        // SAFETY: the kernel reads a live integer of this size.
        let set = unsafe {
            let on = (&raw const on).cast();
            libc::setsockopt(self.0.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_VNET_HDR, on, length)
        };
        assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
        self
    }

    /// Opens the other end of a new tap in `ns`, which is up.
    pub(crate) fn tap(ns: &NetNs, name: &str) -> Self {
        let tap = ns.inside(|| {
            let tap = File::options().read(true).write(true).open("/dev/net/tun").unwrap();
            // SAFETY: all-zero is a valid `ifreq`.
            let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
            for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
                *to = from as libc::c_char;
            }
            request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
            // SAFETY: the kernel reads and writes a live `ifreq`.
            let made = unsafe { libc::ioctl(tap.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) };
            assert_eq!(made, 0, "{name}: {}", std::io::Error::last_os_error());
            tap
        });
        ns.ip(&format!("link set {name} up")).unwrap();
        rustix::io::ioctl_fionbio(&tap, true).unwrap();
        Self(tap.into())
    }

    /// Sends a frame unchanged.
    pub(crate) fn send(&self, frame: &[u8]) {
        assert_eq!(rustix::io::write(&self.0, frame).unwrap(), frame.len());
    }

    /// Returns the next received frame, if there is one.
    pub(crate) fn receive(&self) -> Option<Vec<u8>> {
        let mut frame = vec![0; 16 << 10];
        let length = rustix::io::read(&self.0, &mut frame[..]).ok()?;
        frame.truncate(length);
        Some(frame)
    }
}
