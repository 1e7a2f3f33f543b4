//! Packets whose VLAN tags the device moved into the mbuf.
//!
//! A device that strips tags (`RTE_ETH_RX_OFFLOAD_VLAN_STRIP`, `_QINQ_STRIP`) leaves them in `vlan_tci` and
//! `vlan_tci_outer`, where no program looks: a rule about a VLAN would have no effect. While a lane holds
//! such a packet its tags are in the data, as on the wire. The application, which asked for packets without
//! them, gets them moved into the mbuf again: those that the program left there.
//!
//! The mbuf says nothing of a tag's EtherType: it is 0x8100, and 0x88a8 for the outer one of two.

use super::layout::{DynFlag, flags};
use super::outer::dynamic_name;
use super::packet::Mbuf;
use crate::dpdk::{self, Dpdk};
use p4shield_mediator::{Packet, RewriteRefused};
use std::ffi::CStr;
use std::sync::OnceLock;

/// The name of the flag in DPDK's list.
const NAME: &CStr = c"p4shield_vlan";
/// Both link-layer addresses.
const ADDRESSES: usize = 12;
/// Bytes of a tag.
const TAG: usize = 4;
const CUSTOMER: [u8; 2] = 0x8100_u16.to_be_bytes();
const SERVICE: [u8; 2] = 0x88a8_u16.to_be_bytes();

const STRIPPED: u64 = flags::RX_VLAN_STRIPPED | flags::RX_QINQ_STRIPPED;
/// What a device says of tags.
const ALL: u64 = STRIPPED | flags::RX_VLAN | flags::RX_QINQ;

/// The dynamic flag of an mbuf whose tags were put back; none: DPDK has none left.
static RESTORED: OnceLock<Option<u64>> = OnceLock::new();

/// Registers the flag that restoring needs. False if DPDK has none left.
pub(crate) fn prepare(dpdk: &Dpdk) -> bool {
    RESTORED.get_or_init(|| register(dpdk)).is_some()
}

fn register(dpdk: &Dpdk) -> Option<u64> {
    let flag = DynFlag { name: dynamic_name(NAME), flags: 0 };
    // SAFETY: it is what the function takes, a terminated name and all.
    let bit = unsafe { (dpdk.rte_mbuf_dynflag_register)(&raw const flag) };
    1_u64.checked_shl(u32::try_from(bit).ok()?)
}

impl Mbuf {
    /// Returns whether the device moved tags out of the packet.
    #[inline]
    #[must_use]
    pub fn is_stripped(&self) -> bool {
        self.raw().ol_flags & STRIPPED != 0
    }

    /// Puts the tags in front of the EtherType, where they were on the wire.
    ///
    /// # Errors
    /// The device says of two tags that only one was moved, and not which; the packet has no link-layer
    /// header; there is no room or memory; or DPDK has no flag left.
    #[cold]
    pub fn restore_tags(&mut self) -> Result<(), RewriteRefused> {
        let dpdk = dpdk::dpdk().map_err(|_| RewriteRefused)?;
        let mark = RESTORED.get_or_init(|| register(dpdk)).ok_or(RewriteRefused)?;
        let (flags, raw) = (self.raw().ol_flags, self.raw());
        let (inner, outer) = (raw.vlan_tci.to_be_bytes(), raw.vlan_tci_outer.to_be_bytes());
        if flags & flags::RX_QINQ_STRIPPED != 0 {
            self.insert([SERVICE, outer, CUSTOMER, inner].as_flattened())?;
        } else if flags & flags::RX_QINQ == 0 {
            self.insert([CUSTOMER, inner].as_flattened())?;
        } else {
            return Err(RewriteRefused);
        }
        let raw = self.raw_mut();
        raw.ol_flags = raw.ol_flags & !ALL | mark;
        Ok(())
    }

    /// Moves the tags of a packet whose tags were restored into the mbuf again.
    pub fn strip_tags(&mut self) {
        let Some(mark) = RESTORED.get().copied().flatten() else { return };
        if self.raw().ol_flags & mark == 0 {
            return;
        }
        self.raw_mut().ol_flags &= !mark;
        // A packet that cannot be changed keeps its tags in the data, where flags and bytes agree, too.
        match (self.tag(ADDRESSES), self.tag(ADDRESSES + TAG)) {
            (Some((SERVICE, outer)), Some((CUSTOMER, inner))) if self.remove(2 * TAG).is_ok() => {
                self.note(ALL, inner, outer);
            }
            (Some((CUSTOMER, tag)), _) if self.remove(TAG).is_ok() => {
                self.note(flags::RX_VLAN | flags::RX_VLAN_STRIPPED, tag, [0; 2]);
            }
            _ => self.note(0, [0; 2], [0; 2]),
        }
    }

    /// Puts tags behind the addresses.
    fn insert(&mut self, tags: &[u8]) -> Result<(), RewriteRefused> {
        self.own(false)?;
        let addresses: [u8; ADDRESSES] = *self.bytes().first_chunk().ok_or(RewriteRefused)?;
        self.resize_head(ADDRESSES, ADDRESSES + tags.len())?;
        let front = self.front_mut();
        front[..ADDRESSES].copy_from_slice(&addresses);
        front[ADDRESSES..ADDRESSES + tags.len()].copy_from_slice(tags);
        Ok(())
    }

    /// Takes out `len` bytes of tags behind the addresses.
    fn remove(&mut self, len: usize) -> Result<(), RewriteRefused> {
        self.own(false)?;
        let addresses: [u8; ADDRESSES] = *self.bytes().first_chunk().ok_or(RewriteRefused)?;
        self.resize_head(ADDRESSES + len, ADDRESSES)?;
        self.front_mut()[..ADDRESSES].copy_from_slice(&addresses);
        Ok(())
    }

    /// Returns EtherType and tag at this place.
    fn tag(&self, at: usize) -> Option<([u8; 2], [u8; 2])> {
        let [a, b, c, d] = *self.bytes().get(at..)?.first_chunk()?;
        Some(([a, b], [c, d]))
    }

    /// Notes the tags that are not in the data.
    fn note(&mut self, said: u64, inner: [u8; 2], outer: [u8; 2]) {
        let raw = self.raw_mut();
        raw.ol_flags |= said;
        (raw.vlan_tci, raw.vlan_tci_outer) = (u16::from_be_bytes(inner), u16::from_be_bytes(outer));
    }
}
