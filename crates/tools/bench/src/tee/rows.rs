//! The rows of the report. A further placement of the product is a further line of [`PLACEMENTS`].

use super::options::{Options, Ports};
use super::row::{Group, Row};
use super::{fed, veth};
use crate::fixture::programs::TEE;

/// The placements that rows on veth measure side by side, and the option that `p4shield switch run` has for
/// each. The others are compared with the first.
const PLACEMENTS: [(&str, &str); 2] = [("bare", "inline"), ("secure pipeline, process", "pipeline")];

/// Returns the rows that these options ask for.
pub(super) fn groups(options: &Options) -> Vec<Group> {
    let mut groups = Vec::new();
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
                let placements = if *ports == Ports::Veth { &PLACEMENTS[..] } else { &PLACEMENTS[..1] };
                let row = |(placement, option): &(&'static str, &'static str)| Row {
                    placement,
                    option,
                    ports: *ports,
                    program: &TEE,
                    bytes: usize::from(*bytes),
                    threads: usize::from(*threads),
                };
                groups.push(Group { rows: placements.iter().map(row).collect(), start });
            }
        }
    }
    groups
}
