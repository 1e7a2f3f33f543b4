//! Claims: what a verifier knows about a machine after it has accepted its evidence.

use std::fmt;

use crate::tee::{Hex, Tee};

/// Whether hardware vouches for the claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attested {
    /// Yes, this kind of TEE.
    By(Tee),
    /// No: the evidence is a sample.
    No,
}

impl fmt::Display for Attested {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::By(tee) => write!(f, "attested by {tee}"),
            Self::No => f.write_str("not attested"),
        }
    }
}

/// What a verifier knows about a machine whose evidence it has accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    /// Whether hardware vouches for the rest.
    pub attested: Attested,
    /// The measurement of the machine at launch: SEV-SNP's MEASUREMENT, TDX's MRTD; of a sample none.
    pub measurement: Vec<u8>,
    /// What the host bound to the machine at launch: HOST_DATA, MRCONFIGID; of a sample none.
    pub host_data: Vec<u8>,
    /// The security versions of the hardware's firmware, for people.
    pub tcb: String,
}

impl fmt::Display for Claims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.attested {
            Attested::By(_) => {
                write!(f, "{}: measurement {}, {}", self.attested, Hex(&self.measurement), self.tcb)
            }
            Attested::No => write!(f, "{}: sample evidence proves nothing about the machine", self.attested),
        }
    }
}
