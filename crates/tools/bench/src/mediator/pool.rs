//! Packets in memory that outlives them, like mbufs: a handle is a pointer.

use p4shield_mediator::{Packet, RewriteRefused};

use super::Case;

/// Bytes of a buffer, headroom and data: the usual size in DPDK.
const BUFFER: usize = 2048 + 128;

/// A packet's memory.
#[repr(align(64))]
pub(super) struct Buffer {
    len: u32,
    offset: u32,
    bytes: [u8; BUFFER],
}

/// A packet: a pointer to its buffer.
pub(super) struct Frame<'p>(&'p mut Buffer);

impl Packet for Frame<'_> {
    #[inline]
    fn bytes(&self) -> &[u8] {
        let start = self.0.offset as usize;
        &self.0.bytes[start..start + self.0.len as usize]
    }

    #[inline]
    fn len(&self) -> usize {
        self.0.len as usize
    }

    fn replace_head(
        &mut self,
        old_len: usize,
        new: &[u8],
        new_total_len: usize,
    ) -> Result<(), RewriteRefused> {
        if old_len != new.len() || new_total_len != self.len() {
            return Err(RewriteRefused);
        }
        let start = self.0.offset as usize;
        self.0.bytes[start..start + old_len].copy_from_slice(new);
        Ok(())
    }
}

/// All packets of a measurement.
pub(super) struct Pool(Vec<Buffer>);

impl Pool {
    pub(super) fn new(packets: usize, packet_bytes: usize, case: Case) -> Self {
        Self((0..packets).map(|i| buffer(i, packet_bytes, case)).collect())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns handles of all packets.
    pub(super) fn frames(&mut self) -> impl Iterator<Item = Frame<'_>> {
        self.0.iter_mut().map(Frame)
    }
}

/// Writes a TCP segment from and to the machines of the case; VMs are in 10.0.0.0/16, other machines are not.
fn buffer(number: usize, packet_bytes: usize, case: Case) -> Buffer {
    const OUTSIDE: [u8; 4] = [192, 0, 2, 9];
    let vm = |n: usize| [10, 0, 0, n as u8];
    let other_tenants = [10, 0, 1, 0];
    let (source, destination) = match case {
        Case::Unowned => (OUTSIDE, [192, 0, 2, 8]),
        Case::FromVm => (vm(0), OUTSIDE),
        Case::ToVm => (OUTSIDE, vm(0)),
        Case::ToManyVms => (OUTSIDE, vm(number.wrapping_mul(97))),
        Case::BetweenTenants => (vm(0), other_tenants),
    };
    let mut bytes = [0; BUFFER];
    let p = &mut bytes[128..];
    p[..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
    (p[12], p[14], p[22], p[23], p[37], p[47]) = (8, 0x45, 64, 6, 80, 0x10);
    p[26..30].copy_from_slice(&source);
    p[30..34].copy_from_slice(&destination);
    Buffer { len: packet_bytes as u32, offset: 128, bytes }
}
