//! Multicast groups as in the reference switch's command line: a group has nodes, and a node has the number
//! of a replica and its ports.

use p4shield_tables::write::GroupCopy;
use std::collections::BTreeMap;

/// Maximum number of ports per node, of nodes per group, and of nodes; commands are hostile input.
const MAX_MEMBERS: usize = 4096;

/// The reason why a command fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MulticastError {
    /// The command refers to an object that was not created.
    #[error("unknown {what} {number}")]
    Unknown {
        /// Group or node.
        what: &'static str,
        /// Its number.
        number: u64,
    },
    /// The group exists already.
    #[error("group {0} exists already")]
    Exists(u64),
    /// The command has invalid arguments.
    #[error("{command} takes {takes}, each at most 65535 and at most {MAX_MEMBERS} in total")]
    Numbers {
        /// The command.
        command: String,
        /// Its arguments.
        takes: &'static str,
    },
    /// There is no such command.
    #[error("{0} is not supported: it changes no multicast group")]
    Command(String),
}

/// A node: its number in commands is its handle.
#[derive(Clone, Debug)]
struct Node {
    replica: u16,
    ports: Vec<u16>,
}

/// Groups and nodes, as a sequence of commands makes them.
#[derive(Clone, Debug, Default)]
pub struct MulticastGroups {
    /// By handle: nodes are numbered in the order of their creation. A destroyed one is `None`.
    nodes: Vec<Option<Node>>,
    /// Handles of the nodes, by group number.
    groups: BTreeMap<u16, Vec<usize>>,
}

impl MulticastGroups {
    /// Executes a command, and returns the groups that it changes.
    ///
    /// # Errors
    /// [`MulticastError`]; nothing has changed.
    pub fn command(&mut self, command: &str, numbers: &[u64]) -> Result<Vec<u16>, MulticastError> {
        let takes = |takes| MulticastError::Numbers { command: command.to_owned(), takes };
        match (command, numbers) {
            ("mc_mgrp_create", [group]) => {
                let small = u16::try_from(*group).ok().filter(|n| *n > 0);
                let number = small.ok_or_else(|| takes("the number of a group"))?;
                if self.groups.contains_key(&number) {
                    return Err(MulticastError::Exists(*group));
                }
                self.groups.insert(number, Vec::new());
                Ok(vec![number])
            }
            ("mc_mgrp_destroy", [group]) => {
                let number = self.group(*group)?;
                self.groups.remove(&number);
                Ok(vec![number])
            }
            ("mc_node_create", [replica, ports @ ..]) => {
                let node = node(*replica, ports).filter(|_| self.nodes.len() < MAX_MEMBERS);
                self.nodes.push(Some(node.ok_or_else(|| takes("the number of a replica and its ports"))?));
                Ok(Vec::new())
            }
            ("mc_node_update", [handle, ports @ ..]) => {
                let at = self.node(*handle)?;
                let replica = self.nodes[at].as_ref().map_or(0, |n| n.replica);
                let node = node(replica.into(), ports);
                self.nodes[at] = Some(node.ok_or_else(|| takes("the handle of a node and its ports"))?);
                Ok(self.groups_of(at))
            }
            ("mc_node_associate", [group, handle]) => {
                let (number, at) = (self.group(*group)?, self.node(*handle)?);
                let nodes = self.groups.entry(number).or_default();
                if nodes.len() >= MAX_MEMBERS {
                    return Err(takes("a group and the handle of a node"));
                }
                nodes.push(at);
                Ok(vec![number])
            }
            ("mc_node_dissociate", [group, handle]) => {
                let (number, at) = (self.group(*group)?, self.node(*handle)?);
                self.groups.entry(number).or_default().retain(|n| *n != at);
                Ok(vec![number])
            }
            ("mc_node_destroy", [handle]) => {
                let at = self.node(*handle)?;
                let changed = self.groups_of(at);
                self.groups.values_mut().for_each(|nodes| nodes.retain(|n| *n != at));
                self.nodes[at] = None;
                Ok(changed)
            }
            ("mc_mgrp_create" | "mc_mgrp_destroy", _) => Err(takes("the number of a group")),
            ("mc_node_create", _) => Err(takes("the number of a replica and its ports")),
            ("mc_node_update", _) => Err(takes("the handle of a node and its ports")),
            ("mc_node_associate" | "mc_node_dissociate", _) => Err(takes("a group and the handle of a node")),
            ("mc_node_destroy", _) => Err(takes("the handle of a node")),
            (other, _) => Err(MulticastError::Command(other.to_owned())),
        }
    }

    fn group(&self, number: u64) -> Result<u16, MulticastError> {
        let known = u16::try_from(number).ok().filter(|g| self.groups.contains_key(g));
        known.ok_or(MulticastError::Unknown { what: "group", number })
    }

    fn node(&self, number: u64) -> Result<usize, MulticastError> {
        let handle = usize::try_from(number).ok();
        let known = handle.filter(|n| self.nodes.get(*n).is_some_and(Option::is_some));
        known.ok_or(MulticastError::Unknown { what: "node", number })
    }

    fn groups_of(&self, node: usize) -> Vec<u16> {
        self.groups.iter().filter(|(_, nodes)| nodes.contains(&node)).map(|(number, _)| *number).collect()
    }

    /// Returns true if a group exists.
    #[must_use]
    pub fn has(&self, group: u16) -> bool {
        self.groups.contains_key(&group)
    }

    /// Returns the copies of a group, node by node; none if the group does not exist.
    #[must_use]
    pub fn copies(&self, group: u32) -> Vec<GroupCopy> {
        let nodes = u16::try_from(group).ok().and_then(|g| self.groups.get(&g));
        let nodes = nodes.into_iter().flatten().filter_map(|n| self.nodes[*n].as_ref());
        let copies =
            nodes.flat_map(|n| n.ports.iter().map(|port| GroupCopy { port: *port, replica: n.replica }));
        copies.take(MAX_MEMBERS).collect()
    }
}

/// Returns a node, if its numbers are small enough.
fn node(replica: u64, ports: &[u64]) -> Option<Node> {
    let small = |n: &u64| u16::try_from(*n).ok();
    let ports = ports.iter().map(small).collect::<Option<Vec<_>>>().filter(|p| p.len() <= MAX_MEMBERS)?;
    Some(Node { replica: small(&replica)?, ports })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(commands: &[(&str, &[u64])]) -> MulticastGroups {
        let mut groups = MulticastGroups::default();
        for (command, numbers) in commands {
            groups.command(command, numbers).expect("a valid command");
        }
        groups
    }

    fn copy(port: u16, replica: u16) -> GroupCopy {
        GroupCopy { port, replica }
    }

    const TWO_NODES: [(&str, &[u64]); 5] = [
        ("mc_mgrp_create", &[7]),
        ("mc_node_create", &[400, 1, 2]),
        ("mc_node_create", &[401, 3]),
        ("mc_node_associate", &[7, 1]),
        ("mc_node_associate", &[7, 0]),
    ];

    #[test]
    fn nodes_come_in_the_order_of_their_association() {
        let groups = after(&TWO_NODES);
        assert_eq!(groups.copies(7), vec![copy(3, 401), copy(1, 400), copy(2, 400)]);
        assert!(groups.copies(8).is_empty() && groups.copies(u32::MAX).is_empty());
    }

    #[test]
    fn changed_nodes_change_their_groups() {
        let mut groups = after(&TWO_NODES);
        assert_eq!(groups.command("mc_node_update", &[0, 9]), Ok(vec![7]));
        assert_eq!(groups.copies(7), vec![copy(3, 401), copy(9, 400)]);
        assert_eq!(groups.command("mc_node_dissociate", &[7, 1]), Ok(vec![7]));
        assert_eq!(groups.copies(7), vec![copy(9, 400)]);
        assert_eq!(groups.command("mc_node_destroy", &[0]), Ok(vec![7]));
        assert_eq!(groups.copies(7), vec![]);
        assert_eq!(groups.command("mc_mgrp_destroy", &[7]), Ok(vec![7]));
        assert!(!groups.has(7));
    }

    #[test]
    fn missing_groups_and_nodes_are_reported() {
        let mut groups = after(&TWO_NODES[..1]);
        assert_eq!(groups.command("mc_mgrp_create", &[7]), Err(MulticastError::Exists(7)));
        let unknown = |what, number| Err(MulticastError::Unknown { what, number });
        assert_eq!(groups.command("mc_node_associate", &[8, 0]), unknown("group", 8));
        assert_eq!(groups.command("mc_node_associate", &[7, u64::MAX]), unknown("node", u64::MAX));
        for (command, numbers) in [("mc_node_create", &[1 << 16, 1][..]), ("mc_node_create", &[])] {
            assert!(matches!(groups.command(command, numbers), Err(MulticastError::Numbers { .. })));
        }
        assert!(matches!(groups.command("mc_dump", &[]), Err(MulticastError::Command(_))));
    }
}
