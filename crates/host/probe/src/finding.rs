//! What a probe found.

use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// What is probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Area {
    /// KVM runs ordinary guests.
    Kvm,
    /// QEMU is installed.
    Qemu,
    /// Machines with `tee = "sev-snp"` can start.
    SevSnp,
    /// Machines with `tee = "tdx"` can start.
    Tdx,
    /// This machine is itself the guest of a TEE, and can prove it.
    GuestTee,
    /// The IOMMU keeps devices in their memory.
    Iommu,
    /// Network interfaces offer virtual functions.
    SrIov,
    /// Huge pages are reserved, for DPDK.
    HugePages,
    /// AF_XDP and its modes, by network interface.
    AfXdp,
    /// NIC switches run in traffic control.
    Tcx,
    /// DPDK is installed.
    Dpdk,
}

impl Area {
    /// All of them, in the order of a report.
    pub const ALL: [Self; 11] = [
        Self::Kvm,
        Self::Qemu,
        Self::SevSnp,
        Self::Tdx,
        Self::GuestTee,
        Self::Iommu,
        Self::SrIov,
        Self::HugePages,
        Self::AfXdp,
        Self::Tcx,
        Self::Dpdk,
    ];

    /// Returns its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Qemu => "qemu",
            Self::SevSnp => "sev-snp",
            Self::Tdx => "tdx",
            Self::GuestTee => "guest-tee",
            Self::Iommu => "iommu",
            Self::SrIov => "sr-iov",
            Self::HugePages => "huge-pages",
            Self::AfXdp => "af-xdp",
            Self::Tcx => "tcx",
            Self::Dpdk => "dpdk",
        }
    }
}

impl fmt::Display for Area {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Area {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let names = || Self::ALL.map(Self::name).join(", ");
        let found = Self::ALL.into_iter().find(|area| area.name() == name);
        found.ok_or_else(|| format!("no such area; write one of {}", names()))
    }
}

/// Whether an area works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It works.
    Works,
    /// It works with limits.
    Limited,
    /// It does not work.
    Missing,
}

impl State {
    /// Returns its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Works => "works",
            Self::Limited => "limited",
            Self::Missing => "missing",
        }
    }
}

/// What a probe found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was probed.
    pub area: Area,
    /// Whether it works.
    pub state: State,
    /// What there is, or what is missing.
    pub found: String,
    /// What to do about it. `None`: nothing, or nothing on this machine.
    pub remedy: Option<String>,
}

/// A finding without its area.
pub(crate) struct Found(State, String, Option<String>);

impl Found {
    pub(crate) fn works(found: impl Into<String>) -> Self {
        Self(State::Works, found.into(), None)
    }

    pub(crate) fn limited(found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self(State::Limited, found.into(), Some(remedy.into()))
    }

    pub(crate) fn missing(found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self(State::Missing, found.into(), Some(remedy.into()))
    }

    /// Something that this machine cannot get.
    pub(crate) fn absent(found: impl Into<String>) -> Self {
        Self(State::Missing, found.into(), None)
    }

    pub(crate) fn parts(self) -> (State, String, Option<String>) {
        (self.0, self.1, self.2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for area in Area::ALL {
            assert_eq!(area.name().parse(), Ok(area));
            assert_eq!(serde_json::to_value(area).unwrap(), area.name());
        }
        assert!("snp".parse::<Area>().unwrap_err().contains("sev-snp"));
    }
}
