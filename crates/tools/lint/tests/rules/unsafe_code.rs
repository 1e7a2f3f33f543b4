//! Crates that may contain `unsafe`.

use crate::tree;

/// The crates that may; every other crate forbids it. ARCHITECTURE.md has the same list, with the modules.
pub(crate) const ALLOWED: [&str; 17] = [
    "afxdp",
    "agent",
    "attach",
    "attach-dpdk",
    "attach-ethdev",
    "attach-inline",
    "attach-xsk",
    "bpf",
    "channel",
    "demo",
    "dpdk-ports",
    "runtime",
    "sandbox",
    "seal",
    "testbed",
    "xdp",
    "xsk-relay",
];

/// Crates that neither stand in the list nor forbid `unsafe`, and entries of the list that are out of date.
pub(crate) fn findings() -> Vec<String> {
    let mut found = Vec::new();
    let crates = tree::crates();
    for c in &crates {
        let roots = ["src/lib.rs", "src/main.rs"].map(|file| c.folder.join(file));
        let roots: Vec<_> = roots.iter().filter(|file| file.is_file()).collect();
        let forbids = roots.iter().all(|file| tree::read(file).contains("#![forbid(unsafe_code)]"));
        match (ALLOWED.contains(&c.name.as_str()), forbids) {
            (false, false) => found.push(format!("{} neither forbids `unsafe` nor may contain it", c.name)),
            (true, true) => found.push(format!("{} forbids `unsafe`: take it off the list", c.name)),
            _ => {}
        }
    }
    let unknown = |name: &&&str| !crates.iter().any(|c| c.name == **name);
    found.extend(ALLOWED.iter().filter(unknown).map(|name| format!("{name} is on the list and is no crate")));
    let architecture = tree::read(&tree::root().join("ARCHITECTURE.md"));
    let listed = listed(&architecture);
    let missing = ALLOWED.iter().filter(|name| !listed.contains(name));
    found.extend(missing.map(|name| format!("ARCHITECTURE.md does not say that `{name}` contains unsafe")));
    let surplus = listed.iter().filter(|name| !ALLOWED.contains(name));
    found.extend(surplus.map(|name| format!("ARCHITECTURE.md says that `{name}` contains unsafe")));
    found
}

/// Returns the crates of ARCHITECTURE.md's table: the first cells of its rows.
fn listed(architecture: &str) -> Vec<&str> {
    let section = architecture.split("\n## ").find(|section| section.starts_with("`unsafe`"));
    let rows = section.unwrap_or_default().lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| row.split(" | ").next()).flat_map(|cell| cell.split('`').step_by(2)).collect()
}
