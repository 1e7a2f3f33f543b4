//! The words of the keys `level`, `cores`, `switch`, `datapath` and `nic_switch`.

use serde::{Deserialize, Serialize};

/// How switches are divided among tenants: the security levels of the MTS paper.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// One switch on the host, for all tenants.
    #[default]
    Baseline,
    /// One switch in a compartment, for all tenants.
    #[serde(rename = "1")]
    One,
    /// A switch in a compartment for each tenant, or for each zone.
    #[serde(rename = "2")]
    Two,
    /// As [`Self::Two`], and the switches forward in user space, with DPDK or AF_XDP.
    #[serde(rename = "3")]
    Three,
}

impl Level {
    /// Returns its name in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
            Self::One => "1",
            Self::Two => "2",
            Self::Three => "3",
        }
    }
}

/// Which processor cores the switches have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cores {
    /// All share one.
    #[default]
    Shared,
    /// Each has one of its own.
    Isolated,
}

impl Cores {
    /// Returns its name in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Isolated => "isolated",
        }
    }
}

/// The switch of a compartment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SwitchKind {
    /// A stock Open vSwitch.
    #[default]
    Ovs,
    /// A P4 switch (`p4shield switch`).
    P4,
}

impl SwitchKind {
    /// Returns its name in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ovs => "ovs",
            Self::P4 => "p4",
        }
    }
}

/// How switches receive and send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Datapath {
    /// By packet sockets, woken by the kernel.
    #[default]
    Sockets,
    /// By DPDK, in threads that poll.
    Dpdk,
    /// By AF_XDP sockets: P4 switches.
    Afxdp,
}

impl Datapath {
    /// Returns its name in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sockets => "sockets",
            Self::Dpdk => "dpdk",
            Self::Afxdp => "afxdp",
        }
    }
}

/// The back end of the NIC switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NicSwitchKind {
    /// A program of P4 Shield's on each port, in traffic control.
    #[default]
    Tc,
    /// A program of P4 Shield's on each port, in XDP.
    Xdp,
    /// The kernel's bridge, with rules of nftables at its ports.
    Bridge,
    /// A network card's switch between its virtual functions.
    Sriov,
}

impl NicSwitchKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Tc, Self::Xdp, Self::Bridge, Self::Sriov];

    /// Returns its name in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tc => "tc",
            Self::Xdp => "xdp",
            Self::Bridge => "bridge",
            Self::Sriov => "sriov",
        }
    }
}
