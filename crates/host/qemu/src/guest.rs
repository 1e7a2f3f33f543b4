//! Machines by their TEE.

use crate::snp::SnpGuest;
use crate::tdx::TdxGuest;
use crate::tee::Tee;

/// A virtual machine's TEE and its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guest {
    /// A machine whose memory the host can read.
    Plain,
    /// A machine of SEV-SNP.
    SevSnp(SnpGuest),
    /// A trust domain.
    Tdx(TdxGuest),
}

impl Guest {
    /// Returns a machine with this TEE and the defaults of every setting.
    #[must_use]
    pub fn new(tee: Tee) -> Self {
        match tee {
            Tee::None => Self::Plain,
            Tee::SevSnp => Self::SevSnp(SnpGuest::default()),
            Tee::Tdx => Self::Tdx(TdxGuest::default()),
        }
    }

    /// Returns the TEE.
    #[must_use]
    pub const fn tee(&self) -> Tee {
        match self {
            Self::Plain => Tee::None,
            Self::SevSnp(_) => Tee::SevSnp,
            Self::Tdx(_) => Tee::Tdx,
        }
    }
}
