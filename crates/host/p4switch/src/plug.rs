//! Adds and deletes ports: opens and closes their interfaces, and orders the packet thread to exchange them.

use crate::controller::NO_CONTROLLER;
use crate::desk::Desk;
use crate::order::{PortChange, PortOrder, Work};
use crate::ports::Port;
use p4shield_io::afxdp::{AfxdpConfig, InterfacePort};
use p4shield_io::ports::{CONTROLLER, DPDK, PCAP};
use p4shield_text::{chain, printable};
use std::sync::PoisonError;

impl Desk {
    /// Opens an interface as a further port.
    pub(crate) fn add_port(&self, number: u16, interface: &str) -> Result<(), String> {
        // The name comes from a client, and errors show it.
        let interface = printable(interface);
        let _alone = self.ports.change();
        self.ports.check_free(number, &interface)?;
        if [DPDK, PCAP].iter().any(|kind| interface.starts_with(kind)) {
            return Err(format!(
                "{interface}: DPDK devices and capture files are opened when the switch starts; stop it, and \
                 give it --port {number}={interface}"
            ));
        }
        if interface == CONTROLLER {
            return Err(NO_CONTROLLER.to_owned());
        }
        let port = open(&interface)?;
        let index = Some(port.index());
        self.order_port(number, PortChange::Add, Some(port))?;
        self.ports.add(Port { number, interface, index, ..Port::default() });
        self.nudge.ring();
        Ok(())
    }

    /// Deletes a port, and closes its interface.
    pub(crate) fn delete_port(&self, number: u16) -> Result<(), String> {
        let _alone = self.ports.change();
        self.ports.has(number)?;
        let writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let port = self.order_port(number, PortChange::Delete, None)?;
        self.ports.delete(number);
        drop(writing);
        // Closing takes a while.
        drop(port);
        Ok(())
    }

    /// Has the packet thread change a port, and returns what it had before.
    pub(crate) fn order_port(
        &self,
        number: u16,
        change: PortChange,
        port: Option<InterfacePort>,
    ) -> Result<Option<InterfacePort>, String> {
        let order = PortOrder { number, change, port };
        let done = self.orders.execute(Work::Port(Box::new(order)))?;
        done.result.map_err(|e| e.to_string())?;
        let Work::Port(order) = done.work else { return Err("no port".to_owned()) };
        Ok(order.port)
    }
}

/// Opens an interface as a port.
pub(crate) fn open(interface: &str) -> Result<InterfacePort, String> {
    // The names of interfaces are no part of what this takes from the configuration.
    let config = AfxdpConfig::new(std::iter::empty::<String>());
    InterfacePort::open(&config, interface).map_err(|error| chain(&error))
}
