//! In-VM information: the fields of a snapshot, and how programs read them.
//!
//! A snapshot is an array of [`FIELDS`] 64-bit values with a bitmap of the known ones. The user VM
//! publishes it sealed on the info page ([`crate::info_page`]); the P4 VM opens each publication
//! once, and programs read the plaintext.
//!
//! Layout of an encoded snapshot, little-endian, version [`LAYOUT_VERSION`]:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | `taken_ns` |
//! | 8 | 32 | bitmap of known fields: field `i` is bit `i % 64` of word `i / 64` |
//! | 40 | 256 x 8 | values, by field number |

use crate::bytes::{Reader, Writer};

/// Version of the snapshot's layout; part of the associated data of the seal.
pub const LAYOUT_VERSION: u32 = 2;

/// Number of values in a snapshot.
pub const FIELDS: usize = 256;

/// Number of network interfaces in a snapshot.
pub const INTERFACES: usize = 8;

/// Number of values that an application of the tenant may set.
pub const APP_VALUES: usize = 64;

/// Field numbers: the argument of `read_vm_info`. A field's unit is part of its meaning.
pub mod field {
    /// Saturating 32-bit halves of the two fields below: threshold in the upper half, use in the
    /// lower half, in bytes. The `get_tcp_mem()` of the P4 Shield paper; [`super::Snapshot::set`]
    /// computes it.
    pub const TCP_MEM: u32 = 0;
    /// TCP memory in use, bytes.
    pub const TCP_MEM_USED: u32 = 1;
    /// The tenant's threshold of TCP memory, bytes.
    pub const TCP_MEM_THRESHOLD: u32 = 2;
    /// Memory pressure, `some`, ten-second average, hundredths of a percent (PSI).
    pub const MEM_PRESSURE_SOME: u32 = 3;
    /// Memory pressure, `full`, ten-second average, hundredths of a percent (PSI).
    pub const MEM_PRESSURE_FULL: u32 = 4;
    /// CPU pressure, `some`, ten-second average, hundredths of a percent (PSI).
    pub const CPU_PRESSURE_SOME: u32 = 5;
    /// Memory in use (`MemTotal - MemAvailable`), bytes.
    pub const MEM_USED: u32 = 6;
    /// Total memory, bytes.
    pub const MEM_TOTAL: u32 = 7;
    /// TCP sockets in use (`TCP: inuse` of sockstat), a count.
    pub const TCP_SOCKETS: u32 = 8;

    /// First field of interface 0; each interface has [`INTERFACE_STRIDE`] fields, in the order of
    /// the agent's configuration.
    pub const INTERFACE_BASE: u32 = 64;
    /// Fields of one interface.
    pub const INTERFACE_STRIDE: u32 = 8;
    /// Received, bits per second.
    pub const INTERFACE_RX_BPS: u32 = 0;
    /// Transmitted, bits per second.
    pub const INTERFACE_TX_BPS: u32 = 1;
    /// Received, packets per second.
    pub const INTERFACE_RX_PPS: u32 = 2;
    /// Transmitted, packets per second.
    pub const INTERFACE_TX_PPS: u32 = 3;
    /// Received, hundredths of a percent of the link's speed.
    pub const INTERFACE_RX_UTILISATION: u32 = 4;
    /// Transmitted, hundredths of a percent of the link's speed.
    pub const INTERFACE_TX_UTILISATION: u32 = 5;
    /// The link's speed, bits per second.
    pub const INTERFACE_SPEED_BPS: u32 = 6;

    /// First of the [`super::APP_VALUES`] values that an application sets.
    pub const APP_BASE: u32 = 128;
}

/// Returns the value that an unknown field reads as. For most fields 0; for [`field::TCP_MEM`] a
/// threshold of 0 and the largest use, so that the paper's program (`threshold < used`: deny) denies.
#[must_use]
pub const fn unknown_value(field: u32) -> u64 {
    match field {
        field::TCP_MEM => 0x0000_0000_ffff_ffff,
        field::TCP_MEM_USED => u64::MAX,
        _ => 0,
    }
}

/// Status of a VM's information.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum InfoStatus {
    /// Fresh and genuine.
    Known = 0,
    /// Nothing was published yet.
    Missing = 1,
    /// The newest genuine snapshot exceeds the age limit.
    Stale = 2,
    /// The publication on the page does not authenticate, and no genuine snapshot is fresh.
    Forged = 3,
    /// The publication on the page is an old genuine snapshot, and no genuine snapshot is fresh.
    Replayed = 4,
}

impl InfoStatus {
    /// Returns its name in metrics and messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Known => "known",
            Self::Missing => "missing",
            Self::Stale => "stale",
            Self::Forged => "forged",
            Self::Replayed => "replayed",
        }
    }
}

/// Values with a bitmap of the known ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// When it was taken, in nanoseconds of the user VM's real-time clock.
    pub taken_ns: u64,
    known: [u64; FIELDS / 64],
    values: [u64; FIELDS],
}

/// Bytes of an encoded [`Snapshot`].
pub const SNAPSHOT_SIZE: usize = 8 + FIELDS / 8 + FIELDS * 8;

impl Default for Snapshot {
    fn default() -> Self {
        let mut values = [0; FIELDS];
        let mut i = 0;
        while i < FIELDS {
            values[i] = unknown_value(i as u32);
            i += 1;
        }
        Self { taken_ns: 0, known: [0; FIELDS / 64], values }
    }
}

impl Snapshot {
    /// Sets a field; other numbers are ignored. Setting either TCP memory field also sets [`field::TCP_MEM`].
    pub fn set(&mut self, field: u32, value: u64) {
        self.put(field, value);
        if matches!(field, field::TCP_MEM_USED | field::TCP_MEM_THRESHOLD)
            && let (Some(used), Some(threshold)) =
                (self.get(field::TCP_MEM_USED), self.get(field::TCP_MEM_THRESHOLD))
        {
            let half = |v: u64| v.min(u64::from(u32::MAX));
            self.put(field::TCP_MEM, half(threshold) << 32 | half(used));
        }
    }

    fn put(&mut self, field: u32, value: u64) {
        let i = field as usize;
        if let Some(v) = self.values.get_mut(i) {
            *v = value;
            self.known[i / 64] |= 1 << (i % 64);
        }
    }

    /// Returns the value of a field, if it is known.
    #[must_use]
    pub fn get(&self, field: u32) -> Option<u64> {
        self.is_known(field).then(|| self.values[field as usize])
    }

    /// Whether a field has a value.
    #[must_use]
    pub fn is_known(&self, field: u32) -> bool {
        let i = field as usize;
        i < FIELDS && self.known[i / 64] >> (i % 64) & 1 == 1
    }

    /// Returns all values; an unknown field has its [`unknown_value`].
    #[must_use]
    pub const fn values(&self) -> &[u64; FIELDS] {
        &self.values
    }

    /// Returns the bitmap of known fields: field `i` is bit `i % 64` of word `i / 64`.
    #[must_use]
    pub const fn known(&self) -> &[u64; FIELDS / 64] {
        &self.known
    }

    /// Encodes the snapshot.
    #[must_use]
    pub fn encode(&self) -> [u8; SNAPSHOT_SIZE] {
        let mut out = [0; SNAPSHOT_SIZE];
        let mut w = Writer::new(&mut out);
        w.u64(self.taken_ns);
        for v in self.known.iter().chain(&self.values) {
            w.u64(*v);
        }
        out
    }

    /// Decodes a snapshot; fields that are not marked as known have their [`unknown_value`], whatever
    /// the bytes contain.
    #[must_use]
    pub fn decode(bytes: &[u8; SNAPSHOT_SIZE]) -> Self {
        let mut r = Reader::new(bytes);
        let mut s = Self { taken_ns: r.u64(), ..Self::default() };
        for k in &mut s.known {
            *k = r.u64();
        }
        for i in 0..FIELDS {
            let v = r.u64();
            if s.is_known(i as u32) {
                s.values[i] = v;
            }
        }
        s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tcp_mem_joins_saturated_halves() {
        let mut s = Snapshot::default();
        assert_eq!(s.get(field::TCP_MEM), None);
        assert_eq!(s.values()[0], 0xffff_ffff);
        s.set(field::TCP_MEM_USED, 5 << 32);
        assert_eq!(s.get(field::TCP_MEM), None, "unknown until both halves are known");
        s.set(field::TCP_MEM_THRESHOLD, 7);
        assert_eq!(s.get(field::TCP_MEM), Some(7 << 32 | 0xffff_ffff));
    }

    #[test]
    fn snapshots_read_back() {
        let mut s = Snapshot { taken_ns: 42, ..Snapshot::default() };
        s.set(field::MEM_USED, 9);
        s.set(FIELDS as u32 - 1, 10);
        s.set(FIELDS as u32, 11);
        assert_eq!(Snapshot::decode(&s.encode()), s);
    }
}
