//! Adds and deletes ports: opens and closes their interfaces, and orders the packet threads to exchange them.

use crate::controller::NO_CONTROLLER;
use crate::desk::Desk;
use crate::order::{PortChange, PortOrder, Work};
use crate::ports::Port;
use crate::vhost::VHOST_USER;
use p4shield_io::afxdp::{InterfacePort, PortPart};
use p4shield_io::ports::{CONTROLLER, DPDK, PCAP};
use p4shield_switch::Share;
use p4shield_text::{chain, printable};
use std::sync::PoisonError;

impl Desk {
    /// Opens an interface as a further port.
    pub(crate) fn add_port(&self, number: u16, interface: &str) -> Result<(), String> {
        // The name comes from a client, and errors show it.
        let interface = printable(interface);
        let _alone = self.ports.change();
        self.ports.check_free(number, &interface)?;
        if interface.starts_with(VHOST_USER) {
            return Err(format!(
                "{interface}: only a switch in a virtual machine has vhost-user ports, which are connected \
                 when it starts; stop it, and give it --port {number}={interface}"
            ));
        }
        if [DPDK, PCAP].iter().any(|kind| interface.starts_with(kind)) {
            return Err(format!(
                "{interface}: DPDK devices and capture files are opened when the switch starts; stop it, and \
                 give it --port {number}={interface}"
            ));
        }
        if interface == CONTROLLER {
            return Err(NO_CONTROLLER.to_owned());
        }
        let first = self.ports.next_first();
        let share = Share { threads: self.threads.count(), first };
        let refused = |error| chain(&error) + &self.interfaces.remedy(number, &interface);
        let parts = self.interfaces.open(&interface, share).map_err(refused)?;
        let index = index_of(&parts);
        self.order_port(number, PortChange::Add, parts)?;
        self.ports.add(Port { number, interface, index, first, ..Port::default() });
        self.nudge.ring();
        Ok(())
    }

    /// Deletes a port, and closes its interface.
    pub(crate) fn delete_port(&self, number: u16) -> Result<(), String> {
        let _alone = self.ports.change();
        self.ports.has(number)?;
        let writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let port = self.order_port(number, PortChange::Delete, Vec::new())?;
        self.ports.delete(number);
        drop(writing);
        // Closing takes a while.
        drop(port);
        Ok(())
    }

    /// Has the packet threads change a port, and returns what they had before.
    pub(crate) fn order_port(
        &self,
        number: u16,
        change: PortChange,
        parts: Vec<PortPart>,
    ) -> Result<Vec<InterfacePort>, String> {
        let mut parts = parts.into_iter();
        let mut before = Vec::new();
        for thread in 0..self.threads.count() {
            let (port, way) = parts.next().map_or((None, None), |part| (part.port, Some(part.way)));
            let order = PortOrder { number, change, port, way };
            match self.order_port_on(thread, order) {
                Ok(port) => before.extend(port),
                Err(why) => {
                    if change == PortChange::Add {
                        self.undo_add(number, thread);
                    }
                    return Err(why);
                }
            }
        }
        Ok(before)
    }

    fn order_port_on(&self, thread: usize, order: PortOrder) -> Result<Option<InterfacePort>, String> {
        let done = self.threads.execute_on(thread, Work::Port(Box::new(order)))?;
        done.result.map_err(|e| e.to_string())?;
        let Work::Port(order) = done.work else { return Err("no port".to_owned()) };
        Ok(order.port)
    }

    /// Deletes a port from the first `threads` of the packet threads.
    fn undo_add(&self, number: u16, threads: usize) {
        for thread in 0..threads {
            let order = PortOrder { number, change: PortChange::Delete, port: None, way: None };
            // A thread that does not answer ends with the switch.
            drop(self.order_port_on(thread, order));
        }
    }
}

/// Returns the index of a port's interface.
pub(crate) fn index_of(parts: &[PortPart]) -> Option<u32> {
    parts.iter().find_map(|part| part.port.as_ref()).map(InterfacePort::index)
}
