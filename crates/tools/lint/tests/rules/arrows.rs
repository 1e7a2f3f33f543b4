//! Arrows between crates: which crate may depend on which.

use crate::{architecture, tree};
use std::collections::BTreeSet;

/// Crates that are preloaded into a cloud's switch.
pub(crate) const SWITCH_LIBRARIES: [&str; 2] = ["attach-dpdk", "attach-xsk"];

/// Crates with a compiler, a verifier, a JIT, a sandbox or attestation in them, which no switch library
/// contains.
pub(crate) const HEAVY: [&str; 6] = ["attest", "p4", "bpf", "runtime", "stf", "daemon"];

/// The crates of `p4vm`, the one program in a virtual machine that is a P4 VM: what a tenant has to trust
/// there.
pub(crate) const GUEST_PROGRAM: [&str; 16] = [
    "abi",
    "attest",
    "boot",
    "bpf",
    "bundle",
    "channel",
    "control",
    "frame",
    "handshake",
    "line",
    "mailbox",
    "runtime",
    "sandbox",
    "seal",
    "text",
    "toml-problem",
];

/// Dependencies that point to a higher group, or to another group of the same height.
pub(crate) fn upward() -> Vec<String> {
    let order = architecture::groups();
    let crates = tree::crates();
    let height = |group: &str| order.iter().position(|groups| groups.iter().any(|g| g == group));
    let mut found = Vec::new();
    for c in &crates {
        let Some(own) = height(c.group()) else {
            found.push(format!("ARCHITECTURE.md does not say how high the group {} is", c.group()));
            continue;
        };
        for d in crates.iter().filter(|d| c.dependencies.contains(&d.name) && d.group() != c.group()) {
            if height(d.group()).is_none_or(|theirs| theirs >= own) {
                found.push(format!("{} -> {} does not point to a lower group", c.path(), d.path()));
            }
        }
    }
    found
}

/// Switch libraries that depend on a heavy crate, directly or through others.
pub(crate) fn heavy() -> Vec<String> {
    let mut found = Vec::new();
    for library in SWITCH_LIBRARIES {
        let contained = contained(library);
        let heavy = contained.iter().filter(|d| HEAVY.contains(&d.as_str()));
        found.extend(heavy.map(|d| format!("{library} contains {d}")));
    }
    found
}

/// Crates that a program in a virtual machine contains, or lacks, against [`GUEST_PROGRAM`].
pub(crate) fn unlisted_in_the_guest() -> Vec<String> {
    let listed: BTreeSet<_> = GUEST_PROGRAM.map(str::to_owned).into();
    let contained = contained("p4vm");
    let differing = contained.symmetric_difference(&listed);
    differing.map(|name| format!("{name}: `p4vm` and GUEST_PROGRAM differ")).collect()
}

/// Crates of this workspace that a crate depends on, directly or through others.
fn contained(name: &str) -> BTreeSet<String> {
    let crates = tree::crates();
    let (mut seen, mut todo) = (BTreeSet::new(), vec![name.to_owned()]);
    while let Some(name) = todo.pop() {
        let of_this = crates.iter().filter(|c| c.name == name).flat_map(|c| &c.dependencies);
        todo.extend(of_this.filter(|d| seen.insert((*d).clone())).cloned());
    }
    seen
}
