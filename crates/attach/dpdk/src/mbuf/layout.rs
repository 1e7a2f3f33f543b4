//! `struct rte_mbuf` as Rust sees it.
//!
//! The layout is public and part of DPDK's ABI; `shim.c` asserts at build time that it is the one
//! of the installed headers, field by field. Only what every application may touch is here.

use std::ffi::{c_char, c_uint, c_void};
use std::sync::atomic::AtomicU16;

/// DPDK's packet buffer. Never made by us, only pointed to.
#[derive(Debug)]
#[repr(C)]
pub struct RawMbuf {
    /// Start of the segment's buffer.
    pub(crate) buf_addr: *mut u8,
    buf_iova: u64,
    /// Where in the buffer the data begins.
    pub(crate) data_off: u16,
    /// How many hold the segment.
    pub(crate) refcnt: AtomicU16,
    /// Segments of the packet; valid in the first.
    pub(crate) nb_segs: u16,
    port: u16,
    /// Offload flags, see [`flags`].
    pub(crate) ol_flags: u64,
    pub(crate) packet_type: u32,
    /// Bytes of the packet; valid in the first segment.
    pub(crate) pkt_len: u32,
    /// Bytes of the segment.
    pub(crate) data_len: u16,
    /// The tag that the device moved here ([`flags::RX_VLAN_STRIPPED`]); of two, the inner one.
    pub(crate) vlan_tci: u16,
    hash: [u32; 2],
    /// The outer one of two tags ([`flags::RX_QINQ_STRIPPED`]).
    pub(crate) vlan_tci_outer: u16,
    /// Bytes of the segment's buffer.
    pub(crate) buf_len: u16,
    pub(crate) pool: *mut c_void,
    /// The next segment.
    pub(crate) next: *mut RawMbuf,
    /// Header lengths, from bit 0: 7 bits L2, 9 bits L3, 8 bits L4, 16 bits segment size.
    pub(crate) tx_offload: u64,
    /// Of a buffer that is not the pool's: who else holds it.
    pub(crate) shinfo: *mut SharedInfo,
    priv_size: u16,
    timesync: u16,
    dynfield1: [u32; 9],
}

/// `struct rte_mbuf_ext_shared_info`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct SharedInfo {
    free_cb: *mut c_void,
    fcb_opaque: *mut c_void,
    pub(crate) refcnt: AtomicU16,
}

const _: () = assert!(size_of::<RawMbuf>() == 128);

/// `RTE_MBUF_DYN_NAMESIZE`.
pub(crate) const DYN_NAME_BYTES: usize = 64;

/// `struct rte_mbuf_dynfield`; `shim.c` asserts the layout.
#[repr(C)]
pub(crate) struct DynField {
    pub(crate) name: [c_char; DYN_NAME_BYTES],
    pub(crate) size: usize,
    pub(crate) align: usize,
    pub(crate) flags: c_uint,
}

/// `struct rte_mbuf_dynflag`.
#[repr(C)]
pub(crate) struct DynFlag {
    pub(crate) name: [c_char; DYN_NAME_BYTES],
    pub(crate) flags: c_uint,
}

/// Bits of `ol_flags` (`RTE_MBUF_F_*`); asserted in `shim.c`.
pub(crate) mod flags {
    pub(crate) const RX_VLAN: u64 = 1 << 0;
    pub(crate) const RX_RSS_HASH: u64 = 1 << 1;
    pub(crate) const RX_FDIR: u64 = 1 << 2;
    pub(crate) const RX_OUTER_IP_CKSUM_BAD: u64 = 1 << 5;
    pub(crate) const RX_VLAN_STRIPPED: u64 = 1 << 6;
    pub(crate) const RX_IP_CKSUM_MASK: u64 = 1 << 4 | 1 << 7;
    /// Both bits: not computed in the packet, but known to be good (`RTE_MBUF_F_RX_L4_CKSUM_NONE`).
    pub(crate) const RX_L4_CKSUM_MASK: u64 = 1 << 3 | 1 << 8;
    pub(crate) const RX_FDIR_ID: u64 = 1 << 13;
    pub(crate) const RX_FDIR_FLX: u64 = 1 << 14;
    pub(crate) const RX_QINQ_STRIPPED: u64 = 1 << 15;
    pub(crate) const RX_QINQ: u64 = 1 << 20;
    pub(crate) const RX_OUTER_L4_CKSUM_MASK: u64 = 1 << 21 | 1 << 22;
    pub(crate) const TX_OUTER_UDP_CKSUM: u64 = 1 << 41;
    pub(crate) const TX_UDP_SEG: u64 = 1 << 42;
    pub(crate) const TX_SEC_OFFLOAD: u64 = 1 << 43;
    pub(crate) const TX_MACSEC: u64 = 1 << 44;
    pub(crate) const TX_TUNNEL_MASK: u64 = 0xf << 45;
    pub(crate) const TX_TCP_SEG: u64 = 1 << 50;
    /// TCP 1, SCTP 2, UDP 3.
    pub(crate) const TX_L4_MASK: u64 = 3 << 52;
    pub(crate) const TX_IP_CKSUM: u64 = 1 << 54;
    pub(crate) const TX_IPV4: u64 = 1 << 55;
    pub(crate) const TX_IPV6: u64 = 1 << 56;
    pub(crate) const TX_OUTER_IP_CKSUM: u64 = 1 << 58;
    pub(crate) const TX_OUTER_IPV4: u64 = 1 << 59;
    pub(crate) const TX_OUTER_IPV6: u64 = 1 << 60;
    /// Every transmit offload request: bits 41 to 60.
    pub(crate) const TX_ANY: u64 = (1 << 61) - (1 << 41);
    /// The buffer is not the pool's.
    pub(crate) const EXTERNAL: u64 = 1 << 61;
    /// The buffer is another mbuf's.
    pub(crate) const INDIRECT: u64 = 1 << 62;
}
