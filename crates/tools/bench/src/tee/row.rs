//! A row: what is started, and what it is called.

use std::time::Duration;

use p4shield_switch::Ticks;

use super::fit::Measured;
use super::options::{Pair, Ports};
use super::place::Place;
use super::report::RowName;
use crate::fixture::product::{self, Program};
use crate::fixture::programs::{self, Case};
use crate::name;

/// The extent of a measurement.
#[derive(Clone, Copy)]
pub(super) struct Extent<'a> {
    /// Rounds of each figure.
    pub(super) rounds: u32,
    /// The length of a round.
    pub(super) length: Duration,
    /// The clock.
    pub(super) ticks: &'a Ticks,
    /// The interfaces of rows on this machine's.
    pub(super) interfaces: Option<&'a Pair>,
}

/// A row.
pub(super) struct Row {
    pub(super) place: Place,
    /// The kind of the switch's ports.
    pub(super) ports: Ports,
    /// Bytes of a packet.
    pub(super) bytes: usize,
    /// Packet threads.
    pub(super) threads: usize,
}

/// Rows that are measured side by side, one round of each by turns.
pub(super) struct Group {
    pub(super) rows: Vec<Row>,
    /// Starts the switches, and returns the batches and rates of each.
    pub(super) start: fn(&[Row], &Extent<'_>) -> anyhow::Result<Vec<Measured>>,
}

impl Row {
    /// Returns the names of the row.
    pub(super) fn name(&self) -> RowName {
        let Self { place, bytes, threads, .. } = *self;
        RowName { placement: place.name, ports: name(self.ports), bytes, threads }
    }

    /// Returns the program.
    pub(super) const fn program(&self) -> &'static Case {
        if self.place.calls { &programs::TEE_CALL } else { &programs::TEE }
    }

    /// Returns the program as the product gets it.
    pub(super) const fn source(&self) -> &'static Program {
        if self.place.calls { &product::TEE_CALL } else { &product::TEE }
    }
}
