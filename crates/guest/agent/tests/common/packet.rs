//! A raw packet socket on one interface, which acts as a port of a switch.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// The socket. It does not receive its own frames.
pub(crate) struct PacketSocket(OwnedFd);

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

impl PacketSocket {
    /// Opens a socket on `interface`, in the network namespace of the calling thread.
    pub(crate) fn open(interface: &str) -> io::Result<Self> {
        let all = (libc::ETH_P_ALL as u16).to_be();
        let flags = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: the call has no pointers. Protocol 0: the socket receives nothing before `bind`.
        let fd = check(unsafe { libc::socket(libc::AF_PACKET, flags, 0) })?;
        // SAFETY: a new descriptor that nothing else owns.
        let socket = Self(unsafe { OwnedFd::from_raw_fd(fd) });
        let on: libc::c_int = 1;
        // SAFETY: the option's value is an int, and its size is given.
        check(unsafe {
            libc::setsockopt(
                fd,
                libc::SOL_PACKET,
                libc::PACKET_IGNORE_OUTGOING,
                (&raw const on).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            )
        })?;
        let name = std::ffi::CString::new(interface).expect("names of interfaces have no NUL");
        // SAFETY: `name` is a NUL-terminated string.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        if index == 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: all zeros is a valid address structure.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = all;
        address.sll_ifindex = index.cast_signed();
        // SAFETY: the address is a `sockaddr_ll`, and its size is given.
        check(unsafe {
            libc::bind(fd, (&raw const address).cast(), size_of::<libc::sockaddr_ll>() as libc::socklen_t)
        })?;
        Ok(socket)
    }

    pub(crate) fn send(&self, frame: &[u8]) -> io::Result<()> {
        // SAFETY: pointer and length are those of a slice.
        let n = unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        if n < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Returns a frame, if one has arrived.
    pub(crate) fn receive<'a>(&self, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
        // SAFETY: pointer and length are those of an exclusive slice.
        let n = unsafe { libc::recv(self.0.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        usize::try_from(n).ok().map(|n| &buffer[..n])
    }
}

/// Waits at most 1 ms until one of the sockets has a frame.
pub(crate) fn wait(sockets: [&PacketSocket; 2]) {
    let mut fds = sockets.map(|s| libc::pollfd { fd: s.0.as_raw_fd(), events: libc::POLLIN, revents: 0 });
    // SAFETY: pointer and count are those of an array. The caller reads both sockets in any case.
    unsafe { libc::poll(fds.as_mut_ptr(), 2, 1) };
}
