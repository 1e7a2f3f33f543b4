//! Layouts that cross a trust boundary, and their versions.
//!
//! This crate defines every layout that two parties of P4 Shield exchange without sharing code:
//!
//! | module | layout | between |
//! |---|---|---|
//! | [`context`], [`helper`], [`map`], [`meter`] | context, helper numbers, maps, meters | program and engine |
//! | [`division`] | requests and block of a divided program | program and switch |
//! | [`call`] | calls of functions in a compartment | program, switch and P4 VM |
//! | [`digest`] | messages to the control plane | program and switch |
//! | [`trace`] | events of a traced run | program and switch |
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
pub mod call;
pub mod channel;
pub mod context;
pub mod digest;
pub mod division;
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
pub mod trace;

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

/// A limit of programs that a packet met. The program returns its number, which drops the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ProgramLimit {
    /// A loop has more iterations for the packet than the program has code for.
    Loop = 2,
    /// The packet cannot become as long or as short as the program makes it.
    Size = 3,
    /// The program computes a checksum over the payload, and does not see every byte of it.
    Payload = 4,
}

impl ProgramLimit {
    /// All limits, by number.
    pub const ALL: [Self; 3] = [Self::Loop, Self::Size, Self::Payload];

    /// Returns the limit that a program's return value stands for.
    #[must_use]
    pub const fn from_u64(n: u64) -> Option<Self> {
        match n {
            2 => Some(Self::Loop),
            3 => Some(Self::Size),
            4 => Some(Self::Payload),
            _ => None,
        }
    }

    /// Returns its index in [`Self::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize - Self::Loop as usize
    }

    /// Returns its name in status and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Loop => "loop",
            Self::Size => "size",
            Self::Payload => "payload",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_read_back_and_drop() {
        for (i, limit) in ProgramLimit::ALL.into_iter().enumerate() {
            assert_eq!((ProgramLimit::from_u64(limit as u64), limit.index()), (Some(limit), i));
            assert_eq!(Verdict::from_u64(limit as u64), Verdict::Drop);
        }
        for verdict in [0, 1, 5, u64::MAX] {
            assert_eq!(ProgramLimit::from_u64(verdict), None);
        }
    }

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
