//! Table of input ports, by index.
//!
//! A held packet needs its [`PortSpec`] (20 bytes) only if it is rewritten, so its flight stores an
//! index into this table. An entry is reused once no flight refers to it, so the table never has more
//! entries than the attachment has ports, or than packets are held.

use crate::config::PortSpec;

/// Entries allocated in advance: more than an attachment has ports at a time.
const PREALLOCATED: usize = 256;

/// Table of input ports.
#[derive(Debug)]
pub(crate) struct Ports {
    specs: Vec<PortSpec>,
    /// Index of the port of the last lookup.
    last: u32,
}

impl Ports {
    pub(crate) fn new() -> Self {
        Self { specs: Vec::with_capacity(PREALLOCATED), last: 0 }
    }

    /// Returns the index of a port, which is added if necessary; `in_use` returns whether a flight
    /// refers to an index.
    #[inline]
    pub(crate) fn index(&mut self, port: &PortSpec, in_use: impl Fn(u32) -> bool) -> u32 {
        if self.specs.get(self.last as usize) != Some(port) {
            self.last = self.find(port, in_use);
        }
        self.last
    }

    #[inline(never)]
    fn find(&mut self, port: &PortSpec, in_use: impl Fn(u32) -> bool) -> u32 {
        if let Some(known) = self.specs.iter().position(|p| p == port) {
            return known as u32;
        }
        let full = self.specs.len() == self.specs.capacity();
        let count = self.specs.len() as u32;
        if let Some(free) = (0..count).find(|n| full && !in_use(*n)) {
            self.specs[free as usize] = *port;
            return free;
        }
        self.specs.push(*port);
        count
    }

    /// Takes the entries of another table, to which flights refer.
    pub(crate) fn copy_from(&mut self, other: &Self) {
        self.specs.clone_from(&other.specs);
        self.last = other.last;
    }

    /// Returns the port with an index.
    #[inline]
    pub(crate) fn get(&self, index: u32) -> &PortSpec {
        &self.specs[index as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{AllowedSources, Network, Stages, UnownedPolicy};

    fn port(number: u32) -> PortSpec {
        PortSpec {
            number,
            stages: Stages::Both,
            unowned: UnownedPolicy::Pass,
            source: AllowedSources::Any,
            network: Network::Unknown,
        }
    }

    #[test]
    fn a_port_has_one_index_and_entries_are_reused() {
        let mut ports = Ports::new();
        for n in 0..10_000 {
            let index = ports.index(&port(n), |other| other < 3);
            assert_eq!(ports.index(&port(n), |_| true), index);
            assert_eq!(ports.get(index), &port(n));
        }
        assert!(ports.specs.len() <= PREALLOCATED);
        for n in 0..3 {
            assert_eq!(ports.get(n), &port(n), "in use");
        }
    }

    #[test]
    fn the_table_grows_while_all_ports_are_in_use() {
        let mut ports = Ports::new();
        for n in 0..1000 {
            assert_eq!(ports.index(&port(n), |_| true), n);
        }
    }
}
