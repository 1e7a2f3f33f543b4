//! What an interface in Open vSwitch's database means for its port.

use p4shield_ovsdb::{Interface, Kind};

/// Open vSwitch's types of tunnels, besides those that attachments decapsulate.
const TUNNELS: [&str; 9] = ["gre", "ip6gre", "erspan", "ip6erspan", "lisp", "stt", "bareudp", "gtpu", "srv6"];

/// Returns the names that a library may use for the interface.
pub(super) fn names_of(interface: &Interface) -> impl Iterator<Item = &str> {
    let others = [interface.dpdk_device(), interface.vhost_path.as_deref()];
    std::iter::once(interface.name.as_str()).chain(others.into_iter().flatten())
}

/// Returns whether this is a vhost-user interface without a guest: the library sees it once a guest connects.
pub(super) fn awaits_guest(interface: &Interface) -> bool {
    matches!(interface.kind, Kind::VhostUser | Kind::VhostUserClient) && interface.link_up != Some(true)
}

/// Returns whether Open vSwitch has this interface for itself: a bridge's local port, an internal port, a
/// patch or a tunnel, which no operator configures.
pub(super) fn is_switchs_own(interface: &Interface) -> bool {
    match &interface.kind {
        Kind::Internal | Kind::Patch | Kind::Vxlan | Kind::Geneve => true,
        Kind::Other(kind) => TUNNELS.contains(&kind.as_str()),
        _ => interface.bridge.as_deref() == Some(interface.name.as_str()),
    }
}
