//! DPDK devices as ports of a P4 switch.
//!
//! ```text
//!   device ─► rte_eth_rx_burst ─► Buffers::receive ─► the switch ─► Port::send ─► rte_eth_tx_burst ─► device
//!                                      └────────── kept buffers ───────┘
//! ```
//!
//! This crate does not link DPDK. It loads `libp4shield_ethdev.so`, which does, when the first device is
//! opened, and calls it once for a burst of packets. A device has no offloads: programs see packets as they
//! are on the wire, VLAN tags included.
//!
//! | module | contents |
//! |---|---|
//! | `open` | opens devices for one thread or several |
//! | `devices` | open devices, and the threads' pools |
//! | `ports` | [`DpdkPorts`]: the ports of a thread |
//! | `port` | a thread's queues of a device, and the packets that wait for it |
//! | `buffers` | a thread's buffers, which are used again |
//! | `idle` | how long a thread sleeps that polls in vain |
//! | `eal`, `options` | the start of DPDK's EAL, once in a process |
//! | `library`, `interface` | the library, and its table of functions |
//!
//! # Promises
//!
//! * **Per packet** nothing allocates, locks, or makes a system call; a forwarded packet's buffer is the next
//!   one that is sent from.
//! * **[`PacketIo::send`](p4shield_switch::PacketIo::send) returns true for packets that the device gets.**
//!   Those that it does not take at once wait, at most a burst for each port; then `send` returns false.
//! * **Every buffer** is sent, kept or released once.
//!
//! # Several threads
//!
//! [`DpdkPorts::open_for`] gives each thread a receive queue and a transmit queue of each device, as far as
//! it has so many, and a pool of buffers: per packet, threads share nothing. The device puts the packets of
//! one flow into one queue, if it can tell flows apart (RSS over addresses and ports). A thread without a
//! queue to receive from gets no packet of the device, and one without a queue to send by hands packets to
//! one that has ([`Way`](p4shield_switch::Way)). The devices close after the last thread has dropped its
//! part.
//!
//! # Costs of polling
//!
//! A device wakes no thread: a thread that receives from a DPDK port polls. After a tenth of a millisecond
//! without a packet it sleeps 50 µs at a time, so that an idle switch takes a few percent of a processor, and
//! the first packet waits for a tenth of a millisecond at most.

mod buffers;
mod config;
mod devices;
mod eal;
mod error;
mod idle;
mod interface;
mod library;
mod open;
mod options;
mod port;
mod ports;

pub use config::DpdkConfig;
pub use error::Error;
pub use open::{FurtherDevices, OpenDevices};
pub use ports::DpdkPorts;
