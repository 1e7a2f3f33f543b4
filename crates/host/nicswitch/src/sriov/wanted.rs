//! The settings that ports want of their virtual functions.

use std::collections::BTreeMap;
use std::num::NonZero;

use macaddr::MacAddr6;
use p4shield_links::{FunctionLink, FunctionSetting, LinkError, VirtualFunction};
use p4shield_topology::{Port, Role};
use rustix::io::Errno;

use crate::NicError;
use crate::check::{mac, vlan};

/// The virtual function of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its number, from 0, as in `ip link set CARD vf NUMBER`.
    pub number: u32,
    /// The rate that it may send at most, in Mbit/s; `None`: no limit.
    pub rate: Option<NonZero<u32>>,
}

/// A port, and what its virtual function has to be like.
#[derive(Debug)]
pub(super) struct Wanted<'a> {
    pub(super) port: &'a str,
    pub(super) settings: Settings,
}

impl Wanted<'_> {
    /// Returns the error of a setting that was refused.
    pub(super) fn failure(&self, card: &str, source: LinkError) -> NicError {
        let errno = source.source.raw_os_error().map(Errno::from_raw_os_error);
        let remedy = match errno {
            Some(Errno::OPNOTSUPP) => ": its driver has no such setting; use another card, or no rate",
            Some(Errno::PERM) => ": CAP_NET_ADMIN is needed",
            Some(Errno::INVAL) => ": a rate needs the card's link, and is at most the link's",
            _ => "",
        };
        NicError::Function { card: card.to_owned(), port: self.port.to_owned(), remedy, source }
    }
}

/// The settings of a virtual function that ports differ in. Source addresses are always checked, and no
/// function is trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    mac: [u8; 6],
    vlan: u16,
    max_rate: u32,
    link: FunctionLink,
}

impl Settings {
    /// Those that a function has when it was just made.
    pub(super) const RESET: Self = Self { mac: [0; 6], vlan: 0, max_rate: 0, link: FunctionLink::Auto };
    /// Those of a function that is no port any more.
    pub(super) const CLOSED: Self = Self { link: FunctionLink::Down, ..Self::RESET };

    /// Returns what to set of a function, in order. While it changes, its link is down, if the driver can.
    pub(super) fn changes(&self, now: &VirtualFunction) -> Vec<FunctionSetting> {
        let mut changes = Vec::new();
        let mut set = |is_needed: bool, setting| {
            if is_needed {
                changes.push(setting);
            }
        };
        set(now.trusted == Some(true), FunctionSetting::Trust(false));
        set(now.spoof_check == Some(false), FunctionSetting::SpoofCheck(true));
        set(now.mac != self.mac, FunctionSetting::Mac(self.mac));
        let is_other_tag = now.has_service_tag && now.vlan != 0;
        let is_other_vlan = now.vlan != self.vlan || now.priority != 0 || is_other_tag;
        set(is_other_vlan, FunctionSetting::Vlan(self.vlan));
        if !changes.is_empty() {
            changes.insert(0, FunctionSetting::Link(FunctionLink::Down));
        }
        if now.max_rate != self.max_rate || now.min_rate != 0 {
            changes.push(FunctionSetting::MaxRate(self.max_rate));
        }
        if now.link != self.link || changes.first() == Some(&FunctionSetting::Link(FunctionLink::Down)) {
            changes.push(FunctionSetting::Link(self.link));
        }
        changes
    }

    /// Returns what has to be set each time, since the driver does not say how it is.
    pub(super) fn unseen(now: &VirtualFunction) -> Option<FunctionSetting> {
        // A driver that does not tell about trust has no such setting.
        now.spoof_check.is_none().then_some(FunctionSetting::SpoofCheck(true))
    }
}

/// Returns what checked ports want, by virtual function.
///
/// # Errors
/// [`NicError::Ports`] if a port has no function, two have the same, or the uplink is not the card.
pub(super) fn of<'a>(
    card: &str,
    functions: &BTreeMap<String, Function>,
    outside_vlan: u16,
    ports: &'a [Port],
) -> Result<BTreeMap<u32, Wanted<'a>>, NicError> {
    let refusal = |text: String| NicError::Ports(text);
    if outside_vlan > 4094 {
        return Err(refusal(format!("the outside has the VLAN {outside_vlan}; VLANs are 1 to 4094")));
    }
    let mut wanted: BTreeMap<u32, Wanted<'a>> = BTreeMap::new();
    let mut has_uplink = ports.is_empty();
    for port in ports {
        let name = &port.interface;
        let Some(mac) = mac(port).map(MacAddr6::into_array) else {
            if name != card {
                return Err(refusal(format!("{name} is the uplink, but the card's wire is that of {card}")));
            }
            has_uplink = true;
            continue;
        };
        let Some(function) = functions.get(name) else {
            return Err(refusal(format!("{name} has no virtual function of {card}; give it one")));
        };
        if function.number >= u32::from(u16::MAX) {
            return Err(refusal(format!(
                "{name} has the virtual function {}: no card has it",
                function.number
            )));
        }
        let vlan = match port.role {
            Role::InOut { .. } if ports_use(ports, outside_vlan) => {
                return Err(refusal(format!("a tenant has the VLAN of the outside, {outside_vlan}")));
            }
            Role::InOut { .. } => outside_vlan,
            _ => vlan(port).unwrap_or(0),
        };
        let max_rate = function.rate.map_or(0, NonZero::get);
        let settings = Settings { mac, vlan, max_rate, link: FunctionLink::Auto };
        if let Some(other) = wanted.insert(function.number, Wanted { port: name, settings }) {
            let number = function.number;
            return Err(refusal(format!(
                "{} and {name} have the same virtual function {number}",
                other.port
            )));
        }
    }
    if !has_uplink {
        return Err(refusal(format!(
            "there is no uplink, but the wire of {card} cannot be cut off; add the uplink {card}"
        )));
    }
    Ok(wanted)
}

/// Returns whether a tenant has a VLAN.
fn ports_use(ports: &[Port], number: u16) -> bool {
    ports.iter().any(|port| vlan(port) == Some(number))
}

#[cfg(test)]
mod tests;
