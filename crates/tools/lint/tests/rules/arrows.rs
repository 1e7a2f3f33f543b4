//! Arrows between crates: which crate may depend on which.

use crate::tree;
use std::collections::BTreeSet;

/// The layers, lowest first. A crate may depend on crates of lower layers only.
///
/// A new crate takes the lowest layer above all that it needs; ARCHITECTURE.md says what each layer is for.
pub(crate) const LAYERS: [&[&str]; 9] = [
    &["abi", "attest", "frame", "image", "mailbox", "need", "plot", "ovsdb", "qemu", "log", "lint"],
    &["testbed", "bundle"],
    &["console", "channel", "seal", "handshake", "bpf", "p4", "afxdp", "control", "demo", "measure", "probe"],
    &["mediator", "runtime", "agent", "stf", "xsk-relay", "line"],
    &["config", "vmm", "p4vm"],
    &["attach", "compartment", "install"],
    &["attach-wire", "attach-dpdk", "attach-xsk", "attach-inline"],
    &["daemon", "bench"],
    &["p4shield", "dev"],
];

/// Crates that are preloaded into a cloud's switch.
pub(crate) const SWITCH_LIBRARIES: [&str; 2] = ["attach-dpdk", "attach-xsk"];

/// Crates with a compiler, a verifier, a JIT, a sandbox or attestation in them, which no switch library
/// contains.
pub(crate) const HEAVY: [&str; 6] = ["attest", "p4", "bpf", "runtime", "stf", "daemon"];

/// The crates of `p4vm`, the one program in a virtual machine that is a P4 VM: what a tenant has to trust
/// there.
pub(crate) const GUEST_PROGRAM: [&str; 12] = [
    "abi",
    "attest",
    "bpf",
    "bundle",
    "channel",
    "control",
    "frame",
    "handshake",
    "line",
    "mailbox",
    "runtime",
    "seal",
];

/// Dependencies that do not point to a lower layer.
pub(crate) fn upward() -> Vec<String> {
    let layer = |name: &str| LAYERS.iter().position(|layer| layer.contains(&name));
    let mut found = Vec::new();
    for c in tree::crates() {
        let Some(own) = layer(&c.name) else {
            found.push(format!("{} is in no layer of crates/tools/lint/tests/rules/arrows.rs", c.name));
            continue;
        };
        let upward = c.dependencies.iter().filter(|d| layer(d).is_none_or(|theirs| theirs >= own));
        found.extend(upward.map(|d| format!("{} -> {d} does not point to a lower layer", c.name)));
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
