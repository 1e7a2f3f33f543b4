//! The rows of the report. A further placement of the product is a further line of [`PLACEMENTS`].

use super::options::{Options, Ports};
use super::row::{Group, Row};
use super::{fed, veth};
use crate::fixture::programs::{TEE, TEE_CALL};

/// The placements that rows on veth measure side by side, and what follows `--placement` for each. The others
/// are compared with the first.
const PLACEMENTS: [(&str, &[&str]); 3] =
    [("bare", &["inline"]), ("secure pipeline, process", &["pipeline"]), ("extern, process", &["extern"])];
/// Those with a virtual machine.
const MACHINES: [(&str, &[&str]); 2] =
    [("secure pipeline, vm", &["pipeline", VM, "vm"]), ("extern, vm", &["extern", VM, "vm"])];
const VM: &str = "--compartment";

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
                let machines = if options.machines { &MACHINES[..] } else { &[] };
                let (placements, program) = match ports {
                    // The product compiles one source for each.
                    Ports::Veth => ([&PLACEMENTS, machines].concat(), &TEE_CALL),
                    _ => (PLACEMENTS[..1].to_vec(), &TEE),
                };
                let row = |&(placement, words): &(&'static str, &'static [&'static str])| Row {
                    placement,
                    words,
                    ports: *ports,
                    program,
                    bytes: usize::from(*bytes),
                    threads: usize::from(*threads),
                };
                groups.push(Group { rows: placements.iter().map(row).collect(), start });
            }
        }
    }
    groups
}
