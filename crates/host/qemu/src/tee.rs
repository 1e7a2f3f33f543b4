//! The TEEs of the configuration.

use crate::version::QemuVersion;
use std::fmt;
use std::str::FromStr;

/// What keeps a virtual machine's memory from its host: the values of the configuration's key `tee`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tee {
    /// No TEE: the host can read the machine's memory.
    None,
    /// AMD Secure Encrypted Virtualization with Secure Nested Paging.
    SevSnp,
    /// Intel Trust Domain Extensions.
    Tdx,
}

impl Tee {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::None, Self::SevSnp, Self::Tdx];

    /// Returns the name in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::SevSnp => "sev-snp",
            Self::Tdx => "tdx",
        }
    }

    /// Returns the first release of QEMU that starts such machines.
    #[must_use]
    pub const fn first_qemu(self) -> QemuVersion {
        match self {
            Self::None => QemuVersion::new(7, 0, 0),
            Self::SevSnp => QemuVersion::new(9, 1, 0),
            Self::Tdx => QemuVersion::new(10, 1, 0),
        }
    }

    /// Returns Debian's firmware for such machines, and its package. A machine without a TEE needs none.
    /// `OVMF.inteltdx.ms.fd` would boot only what Microsoft's keys verify, and no kernel of Debian's.
    #[must_use]
    pub const fn firmware(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::None => None,
            Self::SevSnp => Some(("/usr/share/ovmf/OVMF.amdsev.fd", "ovmf-amdsev")),
            Self::Tdx => Some(("/usr/share/ovmf/OVMF.fd", "ovmf-generic")),
        }
    }
}

impl fmt::Display for Tee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is no TEE's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no TEE is named `{0}`; write none, sev-snp or tdx")]
pub struct UnknownTee(pub String);

impl FromStr for Tee {
    type Err = UnknownTee;

    fn from_str(name: &str) -> Result<Self, UnknownTee> {
        let found = Self::ALL.into_iter().find(|tee| tee.name() == name);
        found.ok_or_else(|| UnknownTee(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for tee in Tee::ALL {
            assert_eq!(tee.to_string().parse(), Ok(tee));
        }
        assert!("SNP".parse::<Tee>().unwrap_err().to_string().contains("write none, sev-snp or tdx"));
    }
}
