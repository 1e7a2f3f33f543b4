//! Layouts that cross a trust boundary, and their versions.
//!
//! This crate defines every layout that two parties of P4 Shield exchange without sharing code:
//!
//! | module | layout | between |
//! |---|---|---|
//! | [`context`], [`helper`], [`map`], [`meter`] | context, helper numbers, maps, meters | program and engine |
//! | [`object`] | sections of a program's ELF object | compiler and engine |
//! | [`schema`] | names and types of a program's state | compiler and host daemon |
//! | [`channel`] | requests, answers and packet headers | mediator and P4 VM |
//! | [`info_page`], [`info`] | sealed snapshots of in-VM information | user VM and P4 VM |
//! | [`log_page`] | sealed records of the execution log | P4 VM and user VM |
//! | [`sketch`] | the part of a log record that lists differing packets | P4 VM and user VM |
//! | [`handshake_page`] | messages of a handshake | user VM and P4 VM |
//! | [`page`] | header and slots of these pages | user VM and P4 VM |
//! | [`inline`] | C interface of the library for placement `inline` | switch library and inline library |
//!
//! The crate has no dependencies, no I/O and no `unsafe`: it defines where bytes are, and their
//! reader decides what to trust. All integers are little-endian unless a field says otherwise;
//! packets are in network byte order. A layout changes only together with its version constant.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod bytes;
pub mod channel;
pub mod context;
pub mod handshake_page;
pub mod helper;
pub mod info;
pub mod info_page;
pub mod inline;
pub mod log_page;
pub mod map;
pub mod meter;
pub mod object;
pub mod page;
pub mod schema;
pub mod sketch;
mod tenancy;

pub use tenancy::{FailPolicy, UnownedPolicy, VmRef};

/// Direction of a packet, as seen from its user VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Direction {
    /// To the user VM.
    Ingress = 0,
    /// From the user VM.
    Egress = 1,
}

impl Direction {
    /// Both directions, in the order of their numbers.
    pub const ALL: [Self; 2] = [Self::Ingress, Self::Egress];

    /// Returns the direction with a number, or `None`.
    #[must_use]
    pub const fn from_u8(n: u8) -> Option<Self> {
        match n {
            0 => Some(Self::Ingress),
            1 => Some(Self::Egress),
            _ => None,
        }
    }

    /// Returns its name in configuration, metrics and messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        }
    }
}

/// Verdict about a packet. Every number but [`Verdict::Pass`]'s reads as [`Verdict::Drop`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Verdict {
    /// The packet is dropped.
    Drop = 0,
    /// The packet passes.
    Pass = 1,
}

impl Verdict {
    /// Returns the verdict with a number; unknown numbers drop.
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
