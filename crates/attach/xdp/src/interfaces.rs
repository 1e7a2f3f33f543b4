//! The interfaces of a network namespace and their changes, from rtnetlink (`man 7 rtnetlink`).
//!
//! The interfaces of a wire may come, go, return with another index, go down and up, and change their
//! MTU. The monitor reports each change. If messages were lost because the kernel's buffer was full, it
//! says so, and its user requests the whole list.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// `RTMGRP_LINK`: the multicast group of link messages.
const GROUP_LINK: u32 = libc::RTMGRP_LINK as u32;
/// Bytes of `struct nlmsghdr`.
const MESSAGE_HEADER: usize = 16;
/// Bytes of `struct ifinfomsg`.
const LINK_HEADER: usize = 16;
/// Bytes of `struct rtattr`.
const ATTRIBUTE_HEADER: usize = 4;

/// `IFF_LOWER_UP`, which libc has not.
const LOWER_UP: u32 = 1 << 16;

/// Longest time until the next message of a requested list.
const LONGEST: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Index, which no other interface gets until the host reboots.
    pub index: u32,
    /// Name.
    pub name: String,
    /// MTU in bytes.
    pub mtu: u32,
    /// Whether the interface is administratively up.
    pub up: bool,
    /// True if the interface has a carrier: a cable, or another end that is up.
    pub carrier: bool,
    /// Index of the veth peer, if that is in the same network namespace.
    pub peer: Option<u32>,
    /// Index of the bridge, Open vSwitch datapath or bond that the interface belongs to.
    pub master: Option<u32>,
}

/// A message of the monitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InterfaceEvent {
    /// The interface exists and has these properties.
    Present(Interface),
    /// The interface with this index was removed.
    Gone(u32),
    /// The end of a requested list.
    ListEnd,
}

/// A socket that receives every change.
#[derive(Debug)]
pub struct InterfaceMonitor {
    fd: OwnedFd,
    buffer: Vec<u8>,
    sequence: u32,
}

impl InterfaceMonitor {
    /// Opens the monitor in the network namespace of the calling thread.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // No protocol means protocol 0, NETLINK_ROUTE.
        let fd = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        rustix::net::bind(&fd, &SocketAddrNetlink::new(0, GROUP_LINK))?;
        Ok(Self { fd, buffer: vec![0; 64 << 10], sequence: 0 })
    }

    /// Requests all interfaces: an [`InterfaceEvent::Present`] for each, then
    /// [`InterfaceEvent::ListEnd`].
    ///
    /// # Errors
    /// The kernel's error.
    pub fn request_all(&mut self) -> io::Result<()> {
        self.sequence += 1;
        let mut m = [0; MESSAGE_HEADER + LINK_HEADER];
        let flags = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;
        let len = m.len() as u32;
        m[0..4].copy_from_slice(&len.to_ne_bytes());
        m[4..6].copy_from_slice(&libc::RTM_GETLINK.to_ne_bytes());
        m[6..8].copy_from_slice(&flags.to_ne_bytes());
        m[8..12].copy_from_slice(&self.sequence.to_ne_bytes());
        rustix::net::send(&self.fd, &m, SendFlags::empty())?;
        Ok(())
    }

    /// Returns all interfaces. Changes that come meanwhile are in it.
    ///
    /// # Errors
    /// The kernel's error, or the list did not come.
    pub fn list(&mut self) -> io::Result<Vec<Interface>> {
        self.request_all()?;
        let (mut interfaces, mut is_whole) = (BTreeMap::new(), false);
        while !is_whole {
            let mut fds = [PollFd::new(&*self, PollFlags::IN)];
            if rustix::event::poll(&mut fds, Some(&LONGEST))? == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let complete = self.receive(|event| match event {
                InterfaceEvent::Present(interface) => drop(interfaces.insert(interface.index, interface)),
                InterfaceEvent::Gone(index) => drop(interfaces.remove(&index)),
                InterfaceEvent::ListEnd => is_whole = true,
            })?;
            if !complete {
                return Err(io::Error::other("messages of the kernel were lost"));
            }
        }
        Ok(interfaces.into_values().collect())
    }

    /// Passes the messages since the last call to `each`, without waiting. Returns false if messages
    /// were lost.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn receive(&mut self, mut each: impl FnMut(InterfaceEvent)) -> io::Result<bool> {
        loop {
            match rustix::net::recv(&self.fd, &mut self.buffer[..], RecvFlags::empty()) {
                Ok((got, full)) => {
                    for event in events(&self.buffer[..got]) {
                        each(event);
                    }
                    if full > got {
                        return Ok(false);
                    }
                }
                Err(rustix::io::Errno::AGAIN) => return Ok(true),
                Err(rustix::io::Errno::NOBUFS) => return Ok(false),
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
}

impl AsFd for InterfaceMonitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Parses the messages of a datagram and skips invalid ones.
pub fn events(datagram: &[u8]) -> impl Iterator<Item = InterfaceEvent> {
    records(datagram, MESSAGE_HEADER, |h| u32::from_ne_bytes([h[0], h[1], h[2], h[3]]) as usize).filter_map(
        |(header, body)| match u16::from_ne_bytes([header[4], header[5]]) {
            libc::RTM_NEWLINK => interface(body).map(InterfaceEvent::Present),
            libc::RTM_DELLINK => Some(InterfaceEvent::Gone(word(body, 4)?)),
            n if n == libc::NLMSG_DONE as u16 => Some(InterfaceEvent::ListEnd),
            _ => None,
        },
    )
}

fn interface(body: &[u8]) -> Option<Interface> {
    let (index, flags) = (word(body, 4)?, word(body, 8)?);
    let (up, carrier) = (flags & libc::IFF_UP as u32 != 0, flags & LOWER_UP != 0);
    let mut interface =
        Interface { index, name: String::new(), mtu: 0, up, carrier, peer: None, master: None };
    let (mut lower, mut elsewhere) = (None, false);
    let length = |h: &[u8]| usize::from(u16::from_ne_bytes([h[0], h[1]]));
    for (header, value) in records(body.get(LINK_HEADER..)?, ATTRIBUTE_HEADER, length) {
        match u16::from_ne_bytes([header[2], header[3]]) {
            libc::IFLA_IFNAME => {
                interface.name = String::from_utf8_lossy(value.split(|&b| b == 0).next()?).into_owned();
            }
            libc::IFLA_MTU => interface.mtu = word(value, 0)?,
            libc::IFLA_MASTER => interface.master = word(value, 0),
            libc::IFLA_LINK => lower = word(value, 0),
            libc::IFLA_LINK_NETNSID => elsewhere = true,
            _ => {}
        }
    }
    interface.peer = lower.filter(|&i| !elsewhere && i != 0);
    (!interface.name.is_empty()).then_some(interface)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Splits `bytes` into records of a fixed-size header, which contains the length of header and body, and
/// a body. Each record starts at a multiple of four bytes.
fn records(
    mut bytes: &[u8],
    header: usize,
    length: impl Fn(&[u8]) -> usize,
) -> impl Iterator<Item = (&[u8], &[u8])> {
    std::iter::from_fn(move || {
        let head = bytes.get(..header)?;
        let len = length(head);
        let body = bytes.get(header..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some((head, body))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_found() {
        let mut m = InterfaceMonitor::open().unwrap();
        let all = m.list().unwrap();
        let lo = all.iter().find(|l| l.name == "lo").expect("every namespace has a loopback");
        assert_eq!(lo.index, 1);
        assert!(lo.mtu >= 1280);
    }

    #[test]
    fn invalid_lengths_end_the_list() {
        let mut m = [0u8; 64];
        for len in [0u32, 15, 16, 17, 63, 64, 65, u32::MAX] {
            m[0..4].copy_from_slice(&len.to_ne_bytes());
            m[4..6].copy_from_slice(&libc::RTM_NEWLINK.to_ne_bytes());
            assert_eq!(events(&m).count(), 0, "length {len}");
        }
    }
}
