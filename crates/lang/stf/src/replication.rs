//! Multicast groups, as the reference switch's command line makes them: a group has nodes, and a node is a replica's
//! number and the ports that get it.

use std::collections::BTreeMap;

use crate::script::Replication;

/// The most ports of a node and nodes of a group; a script is hostile, too.
const MAX: usize = 4096;

/// A copy of a packet: its port, and which one it is.
pub type Replica = (u16, u16);

/// Why a command cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplicationError {
    /// What the command needs was not made before.
    #[error("there is no {what} {number}")]
    Unknown {
        /// Group or node.
        what: &'static str,
        /// Its number.
        number: u64,
    },
    /// It is there already.
    #[error("group {0} is there already")]
    Twice(u64),
    /// The command has other numbers.
    #[error("{command} takes {takes}, each up to 65535 and at most {MAX} in all")]
    Numbers {
        /// The command.
        command: String,
        /// What it takes.
        takes: &'static str,
    },
    /// One run of a program makes one packet of one packet.
    #[error("{0}: not supported, programs that clone packets are not either")]
    Mirroring(String),
}

/// The groups of a device.
#[derive(Clone, Debug, Default)]
pub struct Groups {
    /// By the order in which they were made, which is their handle: the copies.
    nodes: Vec<Vec<Replica>>,
    /// By number: handles of nodes.
    groups: BTreeMap<u16, Vec<usize>>,
}

impl Groups {
    /// Carries a command out.
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
                    return Err(ReplicationError::Twice(*group));
                }
            }
            ("mc_node_create", [replica, ports @ ..]) => {
                let takes = || numbers("the number of a replica and its ports");
                let replica = small(replica).ok_or_else(takes)?;
                let copies: Option<Vec<Replica>> = ports.iter().map(|p| Some((small(p)?, replica))).collect();
                let fits = |c: &Vec<Replica>| c.len() <= MAX && self.nodes.len() < MAX;
                self.nodes.push(copies.filter(fits).ok_or_else(takes)?);
            }
            ("mc_node_associate", [group, node]) => {
                let unknown = |what, number: &u64| ReplicationError::Unknown { what, number: *number };
                let nodes = small(group).and_then(|g| self.groups.get_mut(&g));
                let nodes = nodes.ok_or_else(|| unknown("group", group))?;
                let handle = usize::try_from(*node).ok().filter(|n| *n < self.nodes.len());
                nodes.push(handle.filter(|_| nodes.len() < MAX).ok_or_else(|| unknown("node", node))?);
            }
            ("mc_mgrp_create", _) => return Err(numbers("the number of a group")),
            ("mc_node_create", _) => return Err(numbers("the number of a replica and its ports")),
            ("mc_node_associate", _) => return Err(numbers("a group and the handle of a node")),
            (other, _) => return Err(ReplicationError::Mirroring(other.to_owned())),
        }
        Ok(())
    }

    /// The copies that a group asks for, node by node; none if there is no such group.
    #[must_use]
    pub fn copies(&self, group: u32) -> Vec<Replica> {
        let nodes = u16::try_from(group).ok().and_then(|g| self.groups.get(&g));
        let copies = nodes.into_iter().flatten().flat_map(|n| &self.nodes[*n]);
        copies.copied().take(MAX).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(g: &mut Groups, command: &str, numbers: &[u64]) -> Result<(), ReplicationError> {
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
            done(&mut g, command, numbers).expect("a right command");
        }
        assert_eq!(g.copies(7), vec![(3, 401), (1, 400), (2, 400)]);
        assert!(g.copies(8).is_empty() && g.copies(u32::MAX).is_empty());
    }

    #[test]
    fn what_does_not_exist_is_told() {
        let mut g = Groups::default();
        done(&mut g, "mc_mgrp_create", &[7]).expect("a group");
        assert_eq!(done(&mut g, "mc_mgrp_create", &[7]), Err(ReplicationError::Twice(7)));
        let unknown = |what, number| Err(ReplicationError::Unknown { what, number });
        assert_eq!(done(&mut g, "mc_node_associate", &[8, 0]), unknown("group", 8));
        assert_eq!(done(&mut g, "mc_node_associate", &[7, u64::MAX]), unknown("node", u64::MAX));
        assert!(matches!(
            done(&mut g, "mc_node_create", &[1 << 16, 1]),
            Err(ReplicationError::Numbers { .. })
        ));
        assert!(matches!(done(&mut g, "mc_node_create", &[]), Err(ReplicationError::Numbers { .. })));
        assert!(matches!(done(&mut g, "mirroring_add", &[5, 4]), Err(ReplicationError::Mirroring(_))));
    }
}
