//! Switches offloads off through ethtool's ioctl (`man 8 ethtool`, `linux/ethtool.h`).

use std::ffi::c_void;
use std::io;
use std::os::fd::AsRawFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

const GET_TX_CHECKSUMS: u32 = 0x16;
const SET_TX_CHECKSUMS: u32 = 0x17;
const GET_FLAGS: u32 = 0x25;
const SET_FLAGS: u32 = 0x26;
const GET_GRO: u32 = 0x2b;
const SET_GRO: u32 = 0x2c;
const GET_CHANNELS: u32 = 0x3c;
const FLAG_TX_VLAN: u32 = 1 << 7;
const FLAG_RX_VLAN: u32 = 1 << 8;
const FLAG_LRO: u32 = 1 << 15;

/// `struct ethtool_channels`.
#[repr(C)]
#[derive(Default)]
struct Channels {
    command: u32,
    max: [u32; 4],
    rx: u32,
    tx: u32,
    other: u32,
    combined: u32,
}

fn call<T>(interface: &str, argument: &mut T) -> io::Result<()> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?;
    // SAFETY: all-zero is a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if interface.len() >= request.ifr_name.len() {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = std::ptr::from_mut(argument).cast::<c_void>().cast();
    // SAFETY: the kernel reads and writes a live `ifreq` and, through its pointer, the structure of the
    // command in the first word of `argument`, which is `argument`.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn clear_flags(interface: &str, flags: u32) -> io::Result<()> {
    let mut now = Value { command: GET_FLAGS, data: 0 };
    call(interface, &mut now)?;
    if now.data & flags == 0 {
        return Ok(());
    }
    call(interface, &mut Value { command: SET_FLAGS, data: now.data & !flags })?;
    call(interface, &mut now)?;
    if now.data & flags == 0 { Ok(()) } else { Err(io::Error::other("the driver keeps it switched on")) }
}

/// The offloads of an interface at one time, to be restored later. Merging (GRO) and the flags of
/// [`receive_unchanged`] and [`keep_sent_tags`] are in it.
#[derive(Clone, Debug)]
pub struct Offloads {
    interface: String,
    flags: u32,
    gro: u32,
}

impl Offloads {
    /// Reads the offloads of an interface.
    ///
    /// # Errors
    /// The driver's error.
    pub fn read(interface: &str) -> io::Result<Self> {
        let get = |command| {
            let mut now = Value { command, data: 0 };
            call(interface, &mut now).map(|()| now.data)
        };
        Ok(Self { interface: interface.to_owned(), flags: get(GET_FLAGS)?, gro: get(GET_GRO)? })
    }

    /// Restores the offloads that changed since they were read.
    ///
    /// # Errors
    /// The driver's error, such as `ENODEV` when the interface is gone.
    pub fn restore(&self) -> io::Result<()> {
        let now = Self::read(&self.interface)?;
        let set = |command, before, now| {
            if before == now { Ok(()) } else { call(&self.interface, &mut Value { command, data: before }) }
        };
        set(SET_FLAGS, self.flags, now.flags).and(set(SET_GRO, self.gro, now.gro))
    }
}

/// Makes the interface leave VLAN tags in the frames that it receives.
///
/// # Errors
/// The driver's error.
pub fn keep_received_tags(interface: &str) -> io::Result<()> {
    clear_flags(interface, FLAG_RX_VLAN)
}

/// Makes the interface hand over packets as they were on the wire: with VLAN tags, and not merged (LRO).
///
/// # Errors
/// The driver's error. It may have switched the other off.
pub fn receive_unchanged(interface: &str) -> io::Result<()> {
    clear_flags(interface, FLAG_RX_VLAN).and(receive_divided(interface))
}

/// Has the interface's driver hand over packets as they were on the wire, not merged (LRO).
///
/// # Errors
/// The driver's error.
pub fn receive_divided(interface: &str) -> io::Result<()> {
    clear_flags(interface, FLAG_LRO)
}

/// Makes the kernel insert VLAN tags into the frames that are sent through the interface.
///
/// # Errors
/// The driver's error.
pub fn keep_sent_tags(interface: &str) -> io::Result<()> {
    clear_flags(interface, FLAG_TX_VLAN)
}

/// Has the kernel write the checksums of packets that leave by the interface, before its driver takes them.
///
/// # Errors
/// The driver's error.
pub fn complete_sent(interface: &str) -> io::Result<()> {
    call(interface, &mut Value { command: SET_TX_CHECKSUMS, data: 0 })?;
    let mut now = Value { command: GET_TX_CHECKSUMS, data: 0 };
    call(interface, &mut now)?;
    if now.data == 0 { Ok(()) } else { Err(io::Error::other("the driver keeps them")) }
}

/// Switches the merging of received packets off.
///
/// # Errors
/// The driver's error.
pub fn receive_unmerged(interface: &str) -> io::Result<()> {
    let gro = call(interface, &mut Value { command: SET_GRO, data: 0 });
    receive_divided(interface).and(gro)
}

/// Switches the merging of received packets on: a veth then receives in NAPI, without which the kernel drops
/// what XDP redirects to the other end of the pair.
///
/// # Errors
/// The driver's error.
pub fn merge_received(interface: &str) -> io::Result<()> {
    call(interface, &mut Value { command: SET_GRO, data: 1 })
}

/// Returns the number of receive queues, if the driver reports it.
#[must_use]
pub fn receive_queues(interface: &str) -> Option<u32> {
    channels(interface).map(|channels| (channels.rx + channels.combined).max(1))
}

/// Returns the number of transmit queues, if the driver reports it.
#[must_use]
pub fn transmit_queues(interface: &str) -> Option<u32> {
    channels(interface).map(|channels| (channels.tx + channels.combined).max(1))
}

fn channels(interface: &str) -> Option<Channels> {
    let mut channels = Channels { command: GET_CHANNELS, ..Channels::default() };
    call(interface, &mut channels).ok().map(|()| channels)
}
