//! The rows of the report. A further one is a further [`Row`], whose function starts what it measures.

use super::options::{Options, Ports};
use super::row::Row;
use super::{fed, veth};
use crate::fixture::programs::TEE;

/// Returns the rows that these options ask for.
pub(super) fn rows(options: &Options) -> Vec<Row> {
    let mut rows = Vec::new();
    for ports in &options.ports {
        for threads in &options.threads {
            for bytes in &options.bytes {
                let start = match ports {
                    Ports::Memory => fed::memory,
                    Ports::NetNull => fed::net_null,
                    // The sender has the other core, or an interface may have one queue only.
                    Ports::Veth | Ports::Interfaces if *threads > 1 => continue,
                    Ports::Veth => veth::measure,
                    Ports::Interfaces => fed::interfaces,
                };
                rows.push(Row {
                    placement: "bare",
                    ports: *ports,
                    program: &TEE,
                    bytes: usize::from(*bytes),
                    threads: usize::from(*threads),
                    start,
                });
            }
        }
    }
    rows
}
