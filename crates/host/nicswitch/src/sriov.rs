//! The back end in hardware: the switch of a network card whose virtual functions (SR-IOV) are the ports.
//!
//! The card's wire is the uplink, and its physical function's interface is the uplink's name. Each other
//! port has a virtual function ([`Function`]), which a VM or a compartment gets as a PCI device or as a
//! network interface. [`Sriov::apply`] sets, over rtnetlink: MAC address, VLAN (that of the tenant for
//! gateways and VMs, none for a compartment's side to the outside), the check of source addresses, no trust,
//! and the rate.
//!
//! A card enforces less than the policy of [`NicSwitch`]:
//!
//! | rule | by the card |
//! |---|---|
//! | a port's frames stay in its VLAN, and have its MAC address as the source | yes |
//! | a gateway or VM sends no frame with a tag, and its VLAN is no choice of its own | yes |
//! | a port cannot change its MAC address or see frames for another one | yes: it is not trusted |
//! | a compartment sends no frame into a tenant's VLAN | only with [`Sriov::outside_vlan`] |
//! | source IP addresses, ARP and neighbour discovery are the port's own | no: its switch has to check |
//! | only IPv4, IPv6 and ARP pass | no |
//! | a VM reaches its gateway only | no: VMs of one tenant also reach each other |
//! | a compartment reaches the outside only | no: compartments also reach each other there |
//! | no flooding | no: broadcasts reach the whole VLAN and, with its tag, the wire |
//! | drops have reasons | no: [`PortCounters::unexplained_drops`], if the driver counts them |
//!
//! A virtual function without a VLAN may ask the card for VLANs, tenants' included, and Intel's drivers grant
//! them: so may the driver in a compartment that was taken over. [`Sriov::outside_vlan`] gives it a VLAN,
//! after which it is granted none. The wire's other end must not carry tenants' VLANs.
//!
//! It needs from its caller:
//!
//! - The physical function is up. The host gives it no address, since it is in the outside's network, too.
//! - A virtual function's driver is bound, or its device given to a VM, after `apply`: it reads its MAC
//!   address when it starts. After a change of that address it is bound again.
//! - A VM or compartment is gone before its port is: on [`NicSwitch::delete`], and on `apply` with a driver
//!   without link states, its virtual function falls back into the network outside.
//!
//! Drivers make all virtual functions of a card at once. `apply` makes as many as are needed if there are
//! none, and changes one after the other: unlike the policy of [`crate::Software`], a change is not one step.
//! A function that the driver refuses to change is shut off if the driver has link states, and stays as it is
//! otherwise. What was made and which ports there are is kept in a file per card, which goes with the next
//! start of the host, as virtual functions do.

mod device;
mod driver;
mod record;
mod wanted;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use p4shield_links::{Card, FunctionSetting, LinkError, set_function};
use p4shield_topology::Port;
use rustix::io::Errno;

use crate::{Changes, NicError, NicSwitch, PortCounters, check};
use device::Device;
use driver::FunctionDevice;
use record::{Record, Records};
use wanted::{Settings, Wanted};

pub use wanted::Function;

/// The longest wait for a card's link.
const LINK: Duration = Duration::from_secs(10);

/// The NIC switch of a network card, whose physical function is in the network namespace of the thread that
/// calls its functions.
#[derive(Debug)]
pub struct Sriov {
    card: String,
    functions: BTreeMap<String, Function>,
    outside_vlan: u16,
    records: Records,
}

impl Sriov {
    /// The folder of a host's records.
    pub const FOLDER: &str = "/run/p4shield-nic";

    /// Returns the switch of the card whose physical function has this interface. `functions` are the virtual
    /// functions by port, that is by [`Port::interface`]; those of other ports are not touched. `folder` is
    /// for records, is made by the first [`NicSwitch::apply`], and has to be empty after a start of the host.
    #[must_use]
    pub fn new(
        card: impl Into<String>,
        functions: BTreeMap<String, Function>,
        folder: impl Into<PathBuf>,
    ) -> Self {
        Self { card: card.into(), functions, outside_vlan: 0, records: Records::at(folder.into()) }
    }

    /// Puts the compartments' sides to the outside into a VLAN, whose tag the wire carries; 0: no tag.
    #[must_use]
    pub const fn outside_vlan(mut self, vlan: u16) -> Self {
        self.outside_vlan = vlan;
        self
    }

    /// Returns the interfaces of the cards that have a record in this folder, and whose physical functions
    /// are in this network namespace.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn cards(folder: impl Into<PathBuf>) -> Result<Vec<String>, NicError> {
        let addresses = Records::at(folder.into()).cards()?;
        if addresses.is_empty() {
            return Ok(Vec::new());
        }
        let names = p4shield_links::names().map_err(NicError::CardRefused)?;
        let is_card = |name: &String| {
            let card = p4shield_links::card(name).ok();
            card.and_then(|card| card.device).is_some_and(|address| addresses.contains(&address))
        };
        Ok(names.into_iter().filter(is_card).collect())
    }

    /// Returns the PCI address of a port's virtual function, for the definition of a VM that gets the device.
    ///
    /// # Errors
    /// The port has no virtual function, or the card does not have it.
    pub fn device_of(&self, port: &str) -> Result<String, NicError> {
        self.with_device(port, |device| Ok(device.address()))
    }

    /// Starts the driver of a port's virtual function on the host, so that it reads the MAC address that
    /// [`NicSwitch::apply`] set. Returns its network interface, which is new: one that it had before is gone,
    /// whichever namespace it was in.
    ///
    /// # Errors
    /// The port has no virtual function, or no network driver takes it.
    pub fn start_driver(&self, port: &str) -> Result<String, NicError> {
        self.with_device(port, |device| device.restart())
    }

    fn with_device<R>(
        &self,
        port: &str,
        act: impl FnOnce(&FunctionDevice<'_>) -> Result<R, NicError>,
    ) -> Result<R, NicError> {
        let card = self.read()?;
        let device = Device::of(&self.card, &card)?;
        let none = || device.refusal(format_args!("the port {port} has no virtual function"));
        let number = self.functions.get(port).ok_or_else(none)?.number;
        act(&FunctionDevice::of(&device, number)?)
    }

    fn read(&self) -> Result<Card, NicError> {
        p4shield_links::card(&self.card).map_err(NicError::CardRefused)
    }

    /// Returns the card, with at least `needed` virtual functions.
    fn with_functions(&self, needed: u32, record: &mut Record) -> Result<Card, NicError> {
        let card = self.read()?;
        let device = Device::of(&self.card, &card)?;
        if card.count >= needed {
            return Ok(card);
        }
        let most = device.most()?;
        if most < needed {
            return Err(device.refusal(format_args!(
                "{needed} virtual functions are needed, and it has at most {most}; use another card, or \
                 fewer VMs or compartments (`p4shield topology plan` says how many are needed)"
            )));
        }
        if card.count > 0 {
            return Err(device.refusal(format_args!(
                "{needed} virtual functions are needed, and {} were made; a driver makes all at once. When \
                 no VM or compartment uses them, write 0 to {}, and apply again",
                card.count,
                device.count_file().display()
            )));
        }
        // Recorded before: a crash in between must not leave functions that are taken for another's.
        record.made = needed;
        self.records.write(device.name(), record)?;
        if let Err(error) = device.make(needed) {
            record.made = 0;
            self.records.write(device.name(), record)?;
            return Err(error);
        }
        let card = if card.has_link { self.wait_for_link() } else { self.read() }?;
        if card.count < needed {
            let made = card.count;
            return Err(device.refusal(format_args!("its driver made {made} of {needed} virtual functions")));
        }
        Ok(card)
    }

    /// Waits for the card's link: some drivers start the card again to make virtual functions, and take no
    /// rate without a link.
    fn wait_for_link(&self) -> Result<Card, NicError> {
        let end = Instant::now() + LINK;
        loop {
            let card = self.read()?;
            if card.has_link || Instant::now() > end {
                return Ok(card);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn set(&self, number: u32, settings: &[FunctionSetting]) -> Result<(), LinkError> {
        for setting in settings {
            match set_function(&self.card, number, *setting) {
                // Drivers without links of their own: the function has the card's. Reading back shows it.
                Err(error) if matches!(setting, FunctionSetting::Link(_)) && is(&error, Errno::OPNOTSUPP) => {
                }
                result => result?,
            }
        }
        Ok(())
    }

    /// Sets a port's virtual function as wanted. Returns whether it was another way.
    fn serve(&self, card: &Card, number: u32, wanted: &Wanted<'_>) -> Result<bool, NicError> {
        let failed = |source| wanted.failure(&self.card, source);
        let Some(now) = card.functions.iter().find(|function| function.number == number) else {
            let reason = format!("its driver does not tell the settings of virtual function {number}");
            return Err(NicError::Card { card: self.card.clone(), reason });
        };
        if let Some(setting) = Settings::unseen(now) {
            self.set(number, &[setting]).map_err(failed)?;
        }
        let changes = wanted.settings.changes(now);
        self.set(number, &changes).map_err(failed)?;
        Ok(!changes.is_empty())
    }

    /// Takes ports off their virtual functions. Their names stay in `record` until all is done.
    fn close(&self, card: &Card, record: &Record, kept: &BTreeMap<u32, Wanted<'_>>) -> Result<(), NicError> {
        for number in record.ports.keys().filter(|number| !kept.contains_key(number)) {
            if let Some(now) = card.functions.iter().find(|function| function.number == *number) {
                self.reset(now, &Settings::CLOSED)?;
            }
        }
        Ok(())
    }

    fn reset(&self, now: &p4shield_links::VirtualFunction, to: &Settings) -> Result<(), NicError> {
        self.set(now.number, &to.changes(now)).map_err(NicError::CardRefused)
    }

    /// Checks that the card has taken all settings.
    fn verify(&self, wanted: &BTreeMap<u32, Wanted<'_>>) -> Result<(), NicError> {
        let card = self.read()?;
        for (number, wanted) in wanted {
            let now = card.functions.iter().find(|function| function.number == *number);
            let left = now.map(|now| wanted.settings.changes(now));
            if left.as_ref().is_none_or(|left| !left.is_empty()) {
                let reason = format!(
                    "its driver accepted the settings of {} (virtual function {number}) and does not keep \
                     them: {left:?} is left to do",
                    wanted.port
                );
                return Err(NicError::Card { card: self.card.clone(), reason });
            }
        }
        Ok(())
    }
}

impl NicSwitch for Sriov {
    fn apply(&mut self, ports: &[Port]) -> Result<Changes, NicError> {
        check::check(ports)?;
        let wanted = wanted::of(&self.card, &self.functions, self.outside_vlan, ports)?;
        self.records.create()?;
        let _lock = self.records.lock()?;
        let card = self.read()?;
        let device = Device::of(&self.card, &card)?;
        if !card.is_up {
            let card = &self.card;
            return Err(
                device.refusal(format_args!("it is down, and with it all ports; ip link set {card} up"))
            );
        }
        let mut record = self.records.read(device.name())?;
        let before = record.names();
        let needed = wanted.keys().next_back().map_or(0, |last| last + 1);
        let card = self.with_functions(needed, &mut record)?;
        // Functions that were ports lose their addresses before others get these.
        self.close(&card, &record, &wanted)?;
        let mut changes = Changes::default();
        let after: BTreeMap<_, _> = wanted.iter().map(|(number, to)| (*number, to.port.to_owned())).collect();
        changes.removed = before.iter().filter(|name| !after.values().any(|n| n == *name)).cloned().collect();
        record.replace(after);
        self.records.write(device.name(), &record)?;
        let mut failure = None;
        for (number, to) in &wanted {
            match self.serve(&card, *number, to) {
                Ok(_) if !before.contains(to.port) => changes.added.push(to.port.to_owned()),
                Ok(true) => changes.changed.push(to.port.to_owned()),
                Ok(false) => {}
                Err(error) => {
                    // Nothing may pass: where the driver has no links of functions, the error says it all.
                    let _ = self.set(*number, &[FunctionSetting::Link(p4shield_links::FunctionLink::Down)]);
                    failure = failure.or(Some(error));
                }
            }
        }
        changes.added.sort();
        changes.changed.sort();
        changes.policy =
            !(changes.added.is_empty() && changes.changed.is_empty() && changes.removed.is_empty());
        failure.map_or_else(|| self.verify(&wanted), Err)?;
        Ok(changes)
    }

    fn counters(&self) -> Result<Vec<PortCounters>, NicError> {
        let card = self.read()?;
        let record = self.records.read(Device::of(&self.card, &card)?.name())?;
        let mut counters = Vec::new();
        for function in &card.functions {
            let Some(port) = record.ports.get(&function.number).filter(|name| !name.is_empty()) else {
                continue;
            };
            let traffic = function.traffic;
            counters.push(PortCounters {
                interface: port.clone(),
                received_packets: traffic.sent_packets,
                received_bytes: traffic.sent_bytes,
                delivered_packets: traffic.received_packets,
                delivered_bytes: traffic.received_bytes,
                unexplained_drops: traffic.sent_dropped,
                ..PortCounters::default()
            });
        }
        counters.sort_by(|one, other| one.interface.cmp(&other.interface));
        Ok(counters)
    }

    fn delete(&mut self) -> Result<(), NicError> {
        if !self.records.exist() {
            return Ok(());
        }
        let _lock = self.records.lock()?;
        let card = self.read()?;
        let device = Device::of(&self.card, &card)?;
        let record = self.records.read(device.name())?;
        for function in card.functions.iter().filter(|found| record.ports.contains_key(&found.number)) {
            self.reset(function, &Settings::RESET)?;
        }
        // Another number of functions is another's work.
        if record.made > 0 && record.made == card.count {
            device.make(0)?;
        }
        self.records.remove(device.name())
    }
}

fn is(error: &LinkError, errno: Errno) -> bool {
    error.source.raw_os_error() == Some(errno.raw_os_error())
}
