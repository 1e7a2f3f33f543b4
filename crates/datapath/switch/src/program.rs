//! A program as a switch runs it.

use p4shield_abi::schema::Architecture;
use p4shield_bpf::Program;

/// Properties of a program that decide how the switch runs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traits {
    /// The architecture, which decides the port of a packet that passes. A program for `v1model` names it,
    /// one for `ubpf_model` after `REDIRECT` only. Else the packet leaves by the other port of two, or by the
    /// port on which it arrived.
    pub architecture: Architecture,
    /// It may ask the traffic manager for copies or further runs ([`p4shield_abi::division`]).
    pub divided: bool,
    /// It reads how long packets waited, so that they wait before egress.
    pub reads_queues: bool,
}

/// A program that the switch can run in place of its own for a while: compiled for tracing, with the same
/// maps.
#[derive(Debug)]
pub struct Twin {
    /// The program.
    pub program: Program,
    /// How the switch runs it.
    pub traits: Traits,
    /// Maps whose entries it takes.
    pub maps: Vec<String>,
}
