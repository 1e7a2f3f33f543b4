//! What ARCHITECTURE.md says of crates, against the tree.

use crate::tree;
use std::collections::{BTreeMap, BTreeSet};

fn page() -> String {
    tree::read(&tree::root().join("ARCHITECTURE.md"))
}

/// The groups of crates, lowest first; groups of the same height stand together.
pub(crate) fn groups() -> Vec<Vec<String>> {
    let page = page();
    let order = page.lines().find(|line| line.starts_with("base < ")).expect("a line has the groups' order");
    let height = |groups: &str| groups.split(", ").map(str::to_owned).collect();
    order.split(" < ").map(height).collect()
}

/// The crates that a table lists, by folder below `crates`: names of those that it depends on.
fn listed(page: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut listed = BTreeMap::new();
    let mut group = None;
    for line in page.lines() {
        if line.starts_with('#') {
            group = line.strip_prefix("### `crates/").and_then(|rest| rest.split('`').next());
        }
        let (Some(group), Some(row)) = (group, line.strip_prefix("| `")) else { continue };
        let cells: Vec<_> = row.trim_end_matches(" |").split(" | ").collect();
        let [name, _, depends] = cells[..] else { panic!("a row of crates has three cells: {line}") };
        let depends = depends.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        listed.insert(format!("{group}/{}", name.trim_end_matches('`')), depends);
    }
    listed
}

/// Crates that are in no table, rows without a crate, and rows with other dependencies than the crate.
pub(crate) fn wrong_rows() -> Vec<String> {
    let crates = tree::crates();
    let mut listed = listed(&page());
    let mut found = Vec::new();
    for c in &crates {
        let own = crates.iter().filter(|d| c.dependencies.contains(&d.name));
        let own: BTreeSet<_> = own.map(|d| d.folder_name().to_owned()).collect();
        match listed.remove(&c.path()) {
            None => found.push(format!("{} is in no table", c.path())),
            Some(stated) if stated != own => {
                let differing: Vec<_> = stated.symmetric_difference(&own).cloned().collect();
                found.push(format!("{}: table and Cargo.toml differ in {}", c.path(), differing.join(", ")));
            }
            Some(_) => {}
        }
    }
    found.extend(listed.into_keys().map(|row| format!("{row} is in a table and is no crate")));
    found
}
