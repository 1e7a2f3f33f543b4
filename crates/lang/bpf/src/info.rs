//! In-VM information for programs: plaintext, decrypted once per publication, read once per packet.

use p4shield_abi::info::{FIELDS, InfoStatus, Snapshot, unknown_value};

/// In-VM information that a program may read, with its status.
///
/// Unless the status is [`InfoStatus::Known`], no value is known, whatever the last genuine snapshot
/// contained: a program never takes old data for new data. `repr(C)`: JIT code reads it directly.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct VmInfo {
    pub(crate) values: [u64; FIELDS],
    pub(crate) known: [u64; FIELDS / 64],
    pub(crate) status: u64,
}

impl VmInfo {
    /// Information without values: no field is known. `status` is the reason; with
    /// [`InfoStatus::Known`], the snapshot is genuine but empty.
    #[must_use]
    pub fn unknown(status: InfoStatus) -> Self {
        let values = std::array::from_fn(|i| unknown_value(i as u32));
        Self { values, known: [0; FIELDS / 64], status: status as u64 }
    }

    /// Returns the values of `snapshot` if `status` is [`InfoStatus::Known`], else [`VmInfo::unknown`].
    #[must_use]
    pub fn new(snapshot: &Snapshot, status: InfoStatus) -> Self {
        match status {
            InfoStatus::Known => {
                Self { values: *snapshot.values(), known: *snapshot.known(), status: status as u64 }
            }
            _ => Self::unknown(status),
        }
    }

    /// Returns the value of `field`, or its default if it is not known; zero if the field does not exist.
    #[must_use]
    pub fn value(&self, field: u32) -> u64 {
        self.values.get(field as usize).copied().unwrap_or(0)
    }

    /// Returns whether `field` is known.
    #[must_use]
    pub fn is_known(&self, field: u32) -> bool {
        let i = field as usize;
        i < FIELDS && self.known[i / 64] >> (i % 64) & 1 == 1
    }
}
