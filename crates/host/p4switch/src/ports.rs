//! The ports by number, as the desk knows them.

use crate::api::PortState;
use p4shield_io::ports::{CONTROLLER, DPDK, PCAP};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A port as the desk knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Port {
    /// Its number in the program.
    pub(crate) number: u16,
    /// Its name: see [`p4shield_io::ports::PortsConfig`].
    pub(crate) interface: String,
    /// The index of the interface whose sockets the packet thread has; `None` if it has none.
    pub(crate) index: Option<u32>,
    /// The packet thread of its first queue ([`p4shield_switch::Share`]).
    pub(crate) first: usize,
    pub(crate) state: PortState,
    /// The reason why the state is not `up`, and the remedy; empty if it is.
    pub(crate) why: String,
    /// The last attempt to open the interface.
    pub(crate) tried: Option<Instant>,
}

impl Port {
    /// Returns whether it is an interface. Other ports are neither opened nor closed while the switch runs.
    pub(crate) fn is_interface(&self) -> bool {
        self.interface != CONTROLLER && ![DPDK, PCAP].iter().any(|kind| self.interface.starts_with(kind))
    }

    /// Returns the problem with its remedy, unless the port is up.
    pub(crate) fn problem(&self) -> Option<String> {
        let Self { number, interface, state, why, .. } = self;
        (*state != PortState::Up).then(|| format!("port {number}: {interface} {why}"))
    }
}

/// The ports, in the order in which they were added.
#[derive(Debug, Default)]
pub(crate) struct PortList {
    all: Mutex<Vec<Port>>,
    /// Held while a port is opened or closed, which may take a second: by one thread at a time.
    changing: Mutex<()>,
}

impl PortList {
    pub(crate) fn new(all: Vec<Port>) -> Self {
        Self { all: Mutex::new(all), changing: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Port>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a copy.
    pub(crate) fn all(&self) -> Vec<Port> {
        self.lock().clone()
    }

    /// Returns the names of the interfaces.
    pub(crate) fn interfaces(&self) -> Vec<String> {
        self.lock().iter().filter(|p| p.is_interface()).map(|p| p.interface.clone()).collect()
    }

    /// Returns the packet thread of the first queue of a further port: the ports take turns.
    pub(crate) fn next_first(&self) -> usize {
        self.lock().iter().map(|p| p.first + 1).max().unwrap_or_default()
    }

    /// Lets no other thread open or close a port.
    pub(crate) fn change(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, port: Port) {
        self.lock().push(port);
    }

    pub(crate) fn delete(&self, number: u16) {
        self.lock().retain(|p| p.number != number);
    }

    /// Writes what is known of a port that exists.
    pub(crate) fn set(&self, port: &Port) {
        if let Some(known) = self.lock().iter_mut().find(|p| p.number == port.number) {
            known.clone_from(port);
        }
    }

    /// Returns whether the controller has a port.
    pub(crate) fn have_controller(&self) -> bool {
        self.lock().iter().any(|p| p.interface == CONTROLLER)
    }

    /// Returns an error unless there is a port with this number.
    pub(crate) fn has(&self, number: u16) -> Result<(), String> {
        let all = self.lock();
        if all.iter().any(|p| p.number == number) {
            return Ok(());
        }
        let mut numbers: Vec<_> = all.iter().map(|p| p.number).collect();
        numbers.sort_unstable();
        let numbers: Vec<_> = numbers.iter().map(u16::to_string).collect();
        let has = if numbers.is_empty() { "none".to_owned() } else { numbers.join(", ") };
        Err(format!("the switch has no port {number}; it has {has}"))
    }

    /// Returns an error if there is a port with this number or interface.
    pub(crate) fn check_free(&self, number: u16, interface: &str) -> Result<(), String> {
        let all = self.lock();
        let Some(port) = all.iter().find(|p| p.number == number || p.interface == interface) else {
            return Ok(());
        };
        let Port { number: has, interface: of, .. } = port;
        let what = if *has == number { format!("port {has} is {of}") } else { format!("{of} is port {has}") };
        Err(format!("{what} already; delete it first: p4shield switch port delete {has}"))
    }
}

/// Wakes the thread that keeps the ports.
#[derive(Debug)]
pub(crate) struct Nudge(OwnedFd);

impl Nudge {
    /// # Errors
    /// The system has no descriptor left.
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    pub(crate) fn ring(&self) {
        // A full counter wakes the keeper, too.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Returns the descriptor that is readable once the keeper is to look.
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    pub(crate) fn silence(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports() -> PortList {
        let port = |number, interface: &str| Port { number, interface: interface.into(), ..Port::default() };
        PortList::new(vec![port(7, "veth7"), port(1, "veth1")])
    }

    #[test]
    fn numbers_and_interfaces_are_taken_once() {
        let ports = ports();
        assert_eq!(ports.check_free(2, "veth2"), Ok(()));
        let remedy = "already; delete it first: p4shield switch port delete";
        assert_eq!(ports.check_free(1, "veth2"), Err(format!("port 1 is veth1 {remedy} 1")));
        assert_eq!(ports.check_free(2, "veth7"), Err(format!("veth7 is port 7 {remedy} 7")));
        assert_eq!(ports.has(7), Ok(()));
        assert_eq!(ports.has(3), Err("the switch has no port 3; it has 1, 7".to_owned()));
        assert_eq!(PortList::default().has(3), Err("the switch has no port 3; it has none".to_owned()));
    }

    #[test]
    fn a_port_that_is_not_up_is_a_problem() {
        let port = ports().all().remove(0);
        assert_eq!(port.problem(), None);
        let gone = Port { state: PortState::Gone, why: "is gone".into(), ..port };
        assert_eq!(gone.problem(), Some("port 7: veth7 is gone".to_owned()));
    }
}
