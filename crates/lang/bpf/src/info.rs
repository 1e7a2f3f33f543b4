//! In-VM information as a program sees it: plaintext, opened once a publication, read once a packet.

use p4shield_abi::info::{FIELDS, InfoStatus, Snapshot, unknown_value};

/// Values that a program may read, with the verdict on where they come from.
///
/// While the status is not [`InfoStatus::Known`], no value is known, whatever the last genuine snapshot said: a
/// program never sees old data as if it were new. `repr(C)` because JIT code reads it directly.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct VmInfo {
    pub(crate) values: [u64; FIELDS],
    pub(crate) known: [u64; FIELDS / 64],
    pub(crate) status: u64,
}

impl VmInfo {
    /// Information that nobody can give: no field is known. `status` says why; [`InfoStatus::Known`] is allowed and
    /// means a genuine snapshot without values.
    #[must_use]
    pub fn unknown(status: InfoStatus) -> Self {
        let values = std::array::from_fn(|i| unknown_value(i as u32));
        Self { values, known: [0; FIELDS / 64], status: status as u64 }
    }

    /// What `snapshot` says, if `status` is [`InfoStatus::Known`]; else [`VmInfo::unknown`].
    #[must_use]
    pub fn new(snapshot: &Snapshot, status: InfoStatus) -> Self {
        match status {
            InfoStatus::Known => {
                Self { values: *snapshot.values(), known: *snapshot.known(), status: status as u64 }
            }
            _ => Self::unknown(status),
        }
    }

    /// The value of `field`, or what a program reads instead; numbers of no field read as zero.
    #[must_use]
    pub fn value(&self, field: u32) -> u64 {
        self.values.get(field as usize).copied().unwrap_or(0)
    }

    /// Whether `field` is known.
    #[must_use]
    pub fn is_known(&self, field: u32) -> bool {
        let i = field as usize;
        i < FIELDS && self.known[i / 64] >> (i % 64) & 1 == 1
    }
}
