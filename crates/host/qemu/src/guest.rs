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

    /// Returns a machine with this TEE on this host. SEV-SNP measures the processor's model; the default is
    /// [`SnpGuest`]'s.
    #[must_use]
    pub fn for_this_host(tee: Tee, processor: Option<&str>) -> Self {
        match (tee, processor) {
            (Tee::SevSnp, Some(cpu)) => {
                Self::SevSnp(SnpGuest { cpu: cpu.to_owned(), ..SnpGuest::for_this_host() })
            }
            (Tee::SevSnp, None) => Self::SevSnp(SnpGuest::for_this_host()),
            (Tee::None | Tee::Tdx, _) => Self::new(tee),
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
