//! The host's own interfaces that are ports, of the switch at the baseline or of the NIC switch: uplink and
//! VMs' interfaces. Switches take packets as they were sent, not merged.

use crate::TopologyError;
use p4shield_afxdp::ethtool;
use p4shield_config::NicSwitchKind;
use p4shield_links::{allow_merging, index_of, limit_merging};
use p4shield_topology::{Compartment, Plan, Role, SwitchPort};
use std::collections::BTreeSet;

/// The ports of a switch.
pub(crate) struct Ports {
    /// Those that the switch can have.
    pub(crate) present: Vec<SwitchPort>,
    /// Interfaces of the host that do not exist.
    pub(crate) absent: Vec<String>,
}

/// Returns a switch's ports.
pub(crate) fn of(plan: &Plan, compartment: &Compartment) -> Result<Ports, TopologyError> {
    let ports = compartment.switch_ports(&plan.uplink);
    if compartment.in_out.is_some() {
        return Ok(Ports { present: ports, absent: Vec::new() });
    }
    let (mut present, mut absent) = (Vec::new(), Vec::new());
    for port in ports {
        match unmerge(&port.interface)? {
            true => present.push(port),
            false => absent.push(port.interface),
        }
    }
    Ok(Ports { present, absent })
}

/// Has an interface receive packets as they were sent. Returns false if it does not exist: it can be removed
/// at any time.
fn unmerge(interface: &str) -> Result<bool, TopologyError> {
    match limit_merging(interface) {
        Err(_) if index_of(interface).is_err() => Ok(false),
        limited => Ok(limited.map(|()| true)?),
    }
}

/// Has ports of the NIC switch in traffic control, which comes after merging, receive packets as they were
/// sent. XDP and a network card come before it, and a bridge sends merged packets as they were.
pub(crate) fn keep_unmerged(plan: &Plan) -> Result<(), TopologyError> {
    for interface in behind_merging(plan) {
        if unmerge(&interface)? {
            // Few drivers can, and none of the virtual ones.
            let _ = ethtool::receive_divided(&interface);
        }
    }
    Ok(())
}

fn behind_merging(plan: &Plan) -> BTreeSet<String> {
    if plan.nic_switch != NicSwitchKind::Tc {
        return BTreeSet::new();
    }
    let ports = plan.ports().into_iter();
    let own = ports.filter(|port| matches!(port.role, Role::Uplink | Role::Vm { .. }));
    own.map(|port| port.interface).collect()
}

/// Has the interfaces that were such ports, and are none any more, merge packets again.
pub(crate) fn release(previous: Option<&Plan>, plan: Option<&Plan>) {
    let unmerged = |plan: Option<&Plan>| {
        let behind = plan.map(behind_merging).unwrap_or_default();
        behind.into_iter().chain(on_host(plan)).collect::<BTreeSet<_>>()
    };
    let kept = unmerged(plan);
    for interface in unmerged(previous).difference(&kept) {
        // It may be gone; and merging only saves time.
        let _ = allow_merging(interface);
    }
}

/// Returns the interfaces that are ports of a switch on the host.
pub(crate) fn on_host(plan: Option<&Plan>) -> BTreeSet<String> {
    let Some(plan) = plan else { return BTreeSet::new() };
    let switches = plan.compartments.iter().filter(|c| c.in_out.is_none());
    switches.flat_map(|c| c.switch_ports(&plan.uplink)).map(|port| port.interface).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use p4shield_links::{PairEnd, add_pair, delete};
    use p4shield_testbed::NetNs;

    #[test]
    fn an_interface_may_be_removed_while_it_is_made_a_port() {
        if let Err(why) = p4shield_testbed::usable() {
            return p4shield_need::skip("machine", why);
        }
        let host = NetNs::create("host-ports").unwrap();
        for _ in 0..30 {
            host.inside(|| add_pair(PairEnd { name: "p0", mac: None }, PairEnd { name: "p1", mac: None }))
                .unwrap();
            std::thread::scope(|scope| {
                let removed = scope.spawn(|| host.inside(|| delete("p0")));
                host.inside(|| while unmerge("p0").unwrap() {});
                removed.join().unwrap().unwrap();
            });
        }
    }
}
