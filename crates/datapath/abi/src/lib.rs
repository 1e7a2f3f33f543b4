//! Layouts that cross a trust boundary, and their versions.
//!
//! Every byte that two parties of P4 Shield exchange without a copy of each other's code is laid out here and
//! nowhere else: what a program sees ([`context`], [`helper`], [`map`], [`object`]), what a mediator and a P4 VM
//! share ([`channel`]), what a user VM and a P4 VM share ([`info`], [`log`], [`page`]).
//!
//! The crate has no dependency, does no I/O and holds no `unsafe`: it says where bytes are. Whoever reads them
//! decides what to believe. All integers are little-endian unless a field says otherwise; packets are, as always,
//! in network byte order. A layout changes only together with its version constant.

#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod bytes;
pub mod channel;
pub mod context;
pub mod helper;
pub mod info;
pub mod inline;
pub mod log;
pub mod map;
pub mod meter;
pub mod object;
pub mod page;
mod tenancy;

pub use tenancy::{FailPolicy, UnownedPolicy, VmRef};

/// Direction of a packet, as seen from the user VM it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Direction {
    /// Towards the user VM.
    Ingress = 0,
    /// From the user VM.
    Egress = 1,
}

impl Direction {
    /// Both directions, in the order of their numbers.
    pub const ALL: [Self; 2] = [Self::Ingress, Self::Egress];

    /// The direction of this number, or `None`.
    #[must_use]
    pub const fn from_u8(n: u8) -> Option<Self> {
        match n {
            0 => Some(Self::Ingress),
            1 => Some(Self::Egress),
            _ => None,
        }
    }

    /// The word for it in configuration, metrics and messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        }
    }
}

/// What is to happen to a packet. Every number but [`Verdict::Pass`]'s reads as [`Verdict::Drop`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Verdict {
    /// The packet goes no further.
    Drop = 0,
    /// The packet goes on.
    Pass = 1,
}

impl Verdict {
    /// The verdict of this number; what is unknown is dropped.
    #[must_use]
    pub const fn from_u64(n: u64) -> Self {
        if n == Self::Pass as u64 { Self::Pass } else { Self::Drop }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_verdicts_drop() {
        for n in [0, 2, 3, u64::from(u32::MAX) + 1, u64::MAX] {
            assert_eq!(Verdict::from_u64(n), Verdict::Drop);
        }
        assert_eq!(Verdict::from_u64(1), Verdict::Pass);
    }

    #[test]
    fn directions_read_back() {
        for d in Direction::ALL {
            assert_eq!(Direction::from_u8(d as u8), Some(d));
        }
        assert_eq!(Direction::from_u8(2), None);
    }
}
