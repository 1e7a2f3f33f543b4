//! The rows of the report. A further placement of the product is a further line of [`PLACES`].

use p4shield_qemu::{Accelerator, PROGRAM};

use super::options::{Options, Ports};
use super::place::{BARE, INLINE, Place};
use super::row::{Group, Row};
use super::{fed, veth};

/// The placements that rows on veth measure side by side.
const PLACES: [Place; 4] = [
    BARE,
    INLINE,
    Place {
        name: "secure pipeline, process",
        words: &["pipeline"],
        calls: false,
        compared_with: Some(BARE.name),
    },
    Place { name: "extern, process", words: &["extern"], calls: true, compared_with: Some(INLINE.name) },
];
/// Those with a virtual machine that KVM runs.
const MACHINES: [Place; 2] = [
    Place {
        name: "secure pipeline, vm",
        words: &["pipeline", VM, "vm", BY, "kvm"],
        calls: false,
        compared_with: Some(BARE.name),
    },
    Place {
        name: "extern, vm",
        words: &["extern", VM, "vm", BY, "kvm"],
        calls: true,
        compared_with: Some(INLINE.name),
    },
];
/// The same by emulation, which says so wherever the row is named.
const EMULATED: [Place; 2] = [
    Place {
        name: "secure pipeline, vm (emulated)",
        words: &["pipeline", VM, "vm", BY, "tcg"],
        ..MACHINES[0]
    },
    Place { name: "extern, vm (emulated)", words: &["extern", VM, "vm", BY, "tcg"], ..MACHINES[1] },
];
const VM: &str = "--compartment";
const BY: &str = "--accelerator";

/// Returns the rows that these options ask for.
pub(super) fn groups(options: &Options) -> Vec<Group> {
    let machines = if options.machines { machines(Accelerator::probe(PROGRAM.as_ref())) } else { &[] };
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
                let places = match ports {
                    Ports::Veth => [&PLACES, machines].concat(),
                    _ => vec![BARE],
                };
                let row = |place: &Place| Row {
                    place: *place,
                    ports: *ports,
                    bytes: usize::from(*bytes),
                    threads: usize::from(*threads),
                };
                groups.push(Group { rows: places.iter().map(row).collect(), start });
            }
        }
    }
    groups
}

/// Returns the placements in virtual machines that are executed so.
fn machines(accelerator: Accelerator) -> &'static [Place] {
    match accelerator {
        Accelerator::Kvm => &MACHINES,
        Accelerator::Tcg => &EMULATED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn emulated_rows_say_so_and_others_do_not() {
        for accelerator in Accelerator::ALL {
            for place in machines(accelerator) {
                let is_emulated = accelerator == Accelerator::Tcg;
                assert_eq!(place.name.contains("emulated"), is_emulated, "{place:?}");
                assert_eq!(place.words.last(), Some(&accelerator.name()), "{place:?}");
            }
        }
    }

    #[test]
    fn placements_are_compared_with_one_of_the_same_program() {
        let all = [&PLACES[..], &MACHINES, &EMULATED].concat();
        for place in &all {
            let Some(other) = place.compared_with else { continue };
            let other = PLACES.iter().find(|p| p.name == other).unwrap();
            assert!(other.calls == place.calls || *other == BARE, "{place:?}");
        }
        assert_eq!(all.iter().filter(|place| place.compared_with.is_none()).count(), 1);
    }
}
