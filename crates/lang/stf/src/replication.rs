//! Multicast groups as in the reference switch's command line: a group has nodes, and a node has the number
//! of a replica and its ports.

use std::collections::BTreeMap;

use crate::script::Replication;

/// Maximum number of ports per node, and of nodes per group; scripts are hostile input.
const MAX_MEMBERS: usize = 4096;

/// A copy of a packet: port and replica number.
pub type Replica = (u16, u16);

/// Reason why a command fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplicationError {
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
    /// The command is about mirroring, which programs do not support either.
    #[error("{0} is not supported: programs cannot clone packets")]
    Mirroring(String),
}

/// The multicast groups of a device.
#[derive(Clone, Debug, Default)]
pub struct Groups {
    /// Copies per node, by the node's handle: nodes are numbered in the order of their creation.
    nodes: Vec<Vec<Replica>>,
    /// Handles of the nodes, by group number.
    groups: BTreeMap<u16, Vec<usize>>,
}

impl Groups {
    /// Executes a command.
    ///
    /// # Errors
    /// [`ReplicationError`].
    pub fn command(&mut self, r: &Replication) -> Result<(), ReplicationError> {
        let numbers = |takes| ReplicationError::Numbers { command: r.command.clone(), takes };
        let small = |n: &u64| u16::try_from(*n).ok();
        match (r.command.as_str(), r.numbers.as_slice()) {
            ("mc_mgrp_create", [group]) => {
                let number =
                    small(group).filter(|n| *n > 0).ok_or_else(|| numbers("the number of a group"))?;
                if self.groups.insert(number, Vec::new()).is_some() {
                    return Err(ReplicationError::Exists(*group));
                }
            }
            ("mc_node_create", [replica, ports @ ..]) => {
                let takes = || numbers("the number of a replica and its ports");
                let replica = small(replica).ok_or_else(takes)?;
                let copies: Option<Vec<Replica>> = ports.iter().map(|p| Some((small(p)?, replica))).collect();
                let fits = |c: &Vec<Replica>| c.len() <= MAX_MEMBERS && self.nodes.len() < MAX_MEMBERS;
                self.nodes.push(copies.filter(fits).ok_or_else(takes)?);
            }
            ("mc_node_associate", [group, node]) => {
                let unknown = |what, number: &u64| ReplicationError::Unknown { what, number: *number };
                let nodes = small(group).and_then(|g| self.groups.get_mut(&g));
                let nodes = nodes.ok_or_else(|| unknown("group", group))?;
                let handle = usize::try_from(*node).ok().filter(|n| *n < self.nodes.len());
                nodes
                    .push(handle.filter(|_| nodes.len() < MAX_MEMBERS).ok_or_else(|| unknown("node", node))?);
            }
            ("mc_mgrp_create", _) => return Err(numbers("the number of a group")),
            ("mc_node_create", _) => return Err(numbers("the number of a replica and its ports")),
            ("mc_node_associate", _) => return Err(numbers("a group and the handle of a node")),
            (other, _) => return Err(ReplicationError::Mirroring(other.to_owned())),
        }
        Ok(())
    }

    /// Returns the copies of a group, node by node; none if the group does not exist.
    #[must_use]
    pub fn copies(&self, group: u32) -> Vec<Replica> {
        let nodes = u16::try_from(group).ok().and_then(|g| self.groups.get(&g));
        let copies = nodes.into_iter().flatten().flat_map(|n| &self.nodes[*n]);
        copies.copied().take(MAX_MEMBERS).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn execute(g: &mut Groups, command: &str, numbers: &[u64]) -> Result<(), ReplicationError> {
        g.command(&Replication { command: command.to_owned(), numbers: numbers.to_vec() })
    }

    #[test]
    fn nodes_come_in_the_order_of_their_association() {
        let mut g = Groups::default();
        for (command, numbers) in [
            ("mc_mgrp_create", &[7_u64][..]),
            ("mc_node_create", &[400, 1, 2]),
            ("mc_node_create", &[401, 3]),
            ("mc_node_associate", &[7, 1]),
            ("mc_node_associate", &[7, 0]),
        ] {
            execute(&mut g, command, numbers).expect("a valid command");
        }
        assert_eq!(g.copies(7), vec![(3, 401), (1, 400), (2, 400)]);
        assert!(g.copies(8).is_empty() && g.copies(u32::MAX).is_empty());
    }

    #[test]
    fn missing_groups_and_nodes_are_reported() {
        let mut g = Groups::default();
        execute(&mut g, "mc_mgrp_create", &[7]).expect("a group");
        assert_eq!(execute(&mut g, "mc_mgrp_create", &[7]), Err(ReplicationError::Exists(7)));
        let unknown = |what, number| Err(ReplicationError::Unknown { what, number });
        assert_eq!(execute(&mut g, "mc_node_associate", &[8, 0]), unknown("group", 8));
        assert_eq!(execute(&mut g, "mc_node_associate", &[7, u64::MAX]), unknown("node", u64::MAX));
        assert!(matches!(
            execute(&mut g, "mc_node_create", &[1 << 16, 1]),
            Err(ReplicationError::Numbers { .. })
        ));
        assert!(matches!(execute(&mut g, "mc_node_create", &[]), Err(ReplicationError::Numbers { .. })));
        assert!(matches!(execute(&mut g, "mirroring_add", &[5, 4]), Err(ReplicationError::Mirroring(_))));
    }
}
