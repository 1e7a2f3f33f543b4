//! Switches off what an interface does to packets that AF_XDP hands over without.

use p4shield_afxdp::ethtool;

use crate::interfaces::Interface;
use crate::program::XdpProgram;

/// Switches off the offloads that `program` cannot handle, on its interface and on its veth peer, if that is
/// in this namespace. Where a driver cannot, longer packets are dropped and counted, and tags are lost.
pub fn switch_off(program: &XdpProgram, interface: &Interface, peer: Option<&Interface>) {
    if !program.restores_tags() {
        let _ = ethtool::keep_received_tags(&interface.name);
        if let Some(peer) = peer {
            let _ = ethtool::keep_sent_tags(&peer.name);
        }
    }
    if !program.native() {
        // Merged packets are longer than frames.
        let _ = ethtool::receive_unmerged(&interface.name);
    }
}
