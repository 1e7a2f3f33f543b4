//! Ethernet addresses in plans: as text, since people read them.

use macaddr::MacAddr6;
use p4shield_config::MAC_PREFIX;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

/// The party of P4 Shield that has an address.
#[derive(Clone, Copy)]
#[repr(u8)]
pub(super) enum Kind {
    /// A switch, in the outside network.
    Switch = 1,
    /// A switch, in a tenant's network.
    Gateway = 2,
}

/// Returns the address of a party, whose number is unique among those of its kind.
pub(super) const fn address(kind: Kind, number: u16) -> MacAddr6 {
    let [a, b, c] = MAC_PREFIX;
    let [high, low] = number.to_be_bytes();
    MacAddr6::new(a, b, c, kind as u8, high, low)
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
