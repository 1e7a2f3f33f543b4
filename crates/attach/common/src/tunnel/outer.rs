//! The headers around a packet that is changed.

use super::{Ip, MAX_OUTER, Sum, UDP};

/// How the packet inside changes: a new head in the place of its first bytes, and an end that is cut off.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// The bytes that go.
    pub old_head: &'a [u8],
    /// Those that come in their place.
    pub new_head: &'a [u8],
    /// Bytes of the packet inside, before.
    pub old_len: usize,
    /// After.
    pub new_len: usize,
    /// The sum of the bytes that are cut off its end, the first of them at an even place.
    pub cut: Sum,
}

impl Change<'_> {
    /// Bytes that stay between head and end.
    fn kept(&self) -> Option<usize> {
        self.new_len.checked_sub(self.new_head.len())
    }
}

/// The headers cannot be made true of the changed packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the headers around the packet cannot carry it when it is changed")]
pub struct Unfit;

/// The headers around a packet, copied.
#[derive(Clone, Debug)]
pub struct Outer {
    bytes: [u8; MAX_OUTER],
    len: usize,
    ip: usize,
    v6: bool,
    udp: usize,
}

impl Outer {
    /// Those of a frame that [`super::Tunnels::look`] found an inner frame in, at `inner`.
    ///
    /// # Errors
    /// It has none of such a length.
    pub fn of(frame: &[u8], inner: usize) -> Result<Self, Unfit> {
        let headers = frame.get(..inner).ok_or(Unfit)?;
        let Ip { at: ip, v6 } = Ip::find(headers).ok_or(Unfit)?;
        let first = *headers.get(ip).ok_or(Unfit)?;
        let udp = ip + if v6 { 40 } else { usize::from(first & 0xf) * 4 };
        if headers.len() < udp + UDP {
            return Err(Unfit);
        }
        let mut bytes = [0; MAX_OUTER];
        bytes.get_mut(..inner).ok_or(Unfit)?.copy_from_slice(headers);
        Ok(Self { bytes, len: inner, ip, v6, udp })
    }

    /// The headers.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Makes lengths and checksums true of the packet that is `change`d.
    ///
    /// # Errors
    /// It would be too long, or the lengths are not those of the packet that was inside.
    pub fn mend(&mut self, change: &Change<'_>) -> Result<(), Unfit> {
        let before = self.len - self.udp + change.old_len;
        let after = u16::try_from(self.len - self.udp + change.new_len).map_err(|_| Unfit)?;
        if usize::from(self.get(self.udp + 4)) != before {
            return Err(Unfit);
        }
        // As many as fit into UDP's length, or it would not be this.
        let before = before as u16;
        let checksum = self.get(self.udp + 6);
        if checksum != 0 {
            let inner = Sum::said_by(checksum) - self.covered(before);
            let sum = self.covered(after) + changed(inner, change).ok_or(Unfit)?;
            self.set(self.udp + 6, sum.field());
        }
        self.set(self.udp + 4, after);
        self.set_ip_len(before, after)
    }

    /// The sum of all that stands before the inner packet and is covered by UDP's checksum, which is left out.
    fn covered(&self, udp_len: u16) -> Sum {
        let addresses = if self.v6 { 8..40 } else { 12..20 };
        let addresses = &self.bytes[self.ip + addresses.start..self.ip + addresses.end];
        let ports = &self.bytes[self.udp..self.udp + 4];
        let tunnel = &self.bytes[self.udp + UDP..self.len];
        let pseudo = Sum::of(addresses) + Sum::word(u16::from(super::UDP_PROTOCOL)) + Sum::word(udp_len);
        pseudo + Sum::of(ports) + Sum::word(udp_len) + Sum::of(tunnel)
    }

    fn set_ip_len(&mut self, before: u16, after: u16) -> Result<(), Unfit> {
        let header = if self.v6 { 0 } else { self.udp - self.ip };
        let place = self.ip + if self.v6 { 4 } else { 2 };
        let old = self.get(place);
        if usize::from(old) != header + usize::from(before) {
            return Err(Unfit);
        }
        let new = u16::try_from(header + usize::from(after)).map_err(|_| Unfit)?;
        self.set(place, new);
        if !self.v6 {
            let sum = Sum::said_by(self.get(self.ip + 10)) - Sum::word(old) + Sum::word(new);
            self.set(self.ip + 10, sum.field());
        }
        Ok(())
    }

    fn get(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    fn set(&mut self, at: usize, value: u16) {
        self.bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
    }
}

/// The sum of the inner packet after a change, if it was `before`.
fn changed(before: Sum, change: &Change<'_>) -> Option<Sum> {
    let (old, new) = (change.old_head, change.new_head);
    let kept_len = change.kept()?;
    let cut = change.cut.at(old.len() + kept_len);
    let kept = before - Sum::of(old) - cut;
    // What is kept moves by as much as the head grows: by one byte, each becomes the other half of its word.
    let moved = kept.at(old.len().abs_diff(new.len()));
    Some(Sum::of(new) + moved)
}
