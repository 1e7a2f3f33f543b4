//! Ethernet addresses in plans: as text, since people read them.

use macaddr::MacAddr6;
use p4shield_config::{MAC_PREFIX, MAX_HOST};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

/// Highest number that an address has room for.
pub(super) const MAX_NUMBER: u16 = 0xfff;
/// Stands for the number of the host in tenants' networks, which no other host is in.
const HERE: u16 = MAX_HOST + 1;

/// Returns a switch's address in the outside network, where other hosts have switches, too: the prefix, 12
/// bits for the host, 12 for the switch.
pub(super) const fn of_switch(host: u16, number: u16) -> MacAddr6 {
    let [a, b, c] = MAC_PREFIX;
    let [_, high, middle, low] = ((host as u32) << 12 | number as u32).to_be_bytes();
    MacAddr6::new(a, b, c, high, middle, low)
}

/// Returns a switch's address in a tenant's network.
pub(super) const fn of_gateway(number: u16) -> MacAddr6 {
    of_switch(HERE, number)
}

/// Serialises an address as text, such as `02:50:34:01:00:01`.
pub(super) fn serialize<S: Serializer>(mac: &MacAddr6, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&text(*mac))
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<MacAddr6, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(|_| D::Error::custom(format!("{text:?} is not an Ethernet address")))
}

/// Returns the form of an address that Linux and Open vSwitch print.
pub(super) fn text(mac: MacAddr6) -> String {
    mac.to_string().to_lowercase()
}
