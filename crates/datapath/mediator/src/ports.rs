//! The ports that packets came from, by number.
//!
//! What a port is has twenty bytes that are needed for a held packet only if it is rewritten, so a flight carries a
//! number instead. A place whose port no flight names any more is used again; so there are never more places than the
//! attachment has ports, or than packets are held.

use crate::config::PortSpec;

/// Places that are made at once: an attachment has fewer ports at a time.
const PLACES: usize = 256;

/// The ports.
#[derive(Debug)]
pub(crate) struct Ports {
    specs: Vec<PortSpec>,
    /// The one that was asked for last.
    last: u32,
}

impl Ports {
    pub(crate) fn new() -> Self {
        Self { specs: Vec::with_capacity(PLACES), last: 0 }
    }

    /// The number of a port; `in_use` tells whether any flight has a number.
    #[inline]
    pub(crate) fn number(&mut self, port: &PortSpec, in_use: impl Fn(u32) -> bool) -> u32 {
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

    /// The port of a number.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> &PortSpec {
        &self.specs[number as usize]
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
    fn a_port_has_one_number_and_places_are_used_again() {
        let mut ports = Ports::new();
        for n in 0..10_000 {
            let number = ports.number(&port(n), |other| other < 3);
            assert_eq!(ports.number(&port(n), |_| true), number);
            assert_eq!(ports.get(number), &port(n));
        }
        assert!(ports.specs.len() <= PLACES);
        for n in 0..3 {
            assert_eq!(ports.get(n), &port(n), "in use");
        }
    }

    #[test]
    fn all_ports_in_use_are_more_places() {
        let mut ports = Ports::new();
        for n in 0..1000 {
            assert_eq!(ports.number(&port(n), |_| true), n);
        }
    }
}
