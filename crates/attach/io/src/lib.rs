//! The ports of a P4 switch: what implements [`p4shield_switch::PacketIo`].
//!
//! | module | a port is |
//! |---|---|
//! | [`afxdp`] | a network interface, whose frames AF_XDP sockets receive and send |
//! | [`pcap`] | a capture file to read, and one to write |
//! | [`controller`] | memory, between the switch and its controller |
//! | [`ports`] | any of these, or a DPDK device of `p4shield_dpdk_ports` |

#![forbid(unsafe_code)]

pub mod afxdp;
pub mod controller;
pub mod pcap;
pub mod ports;
