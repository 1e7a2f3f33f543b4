//! The host's interfaces that are ports of the switch at the baseline: uplink and VMs' interfaces.

use crate::TopologyError;
use p4shield_links::{allow_merging, index_of, limit_merging};
use p4shield_topology::{Compartment, Plan, SwitchPort};
use std::collections::BTreeSet;

/// The ports of a switch.
pub(crate) struct Ports {
    /// Those that the switch can have.
    pub(crate) present: Vec<SwitchPort>,
    /// Interfaces of the host that do not exist.
    pub(crate) absent: Vec<String>,
}

/// Returns a switch's ports. The host's interfaces among them pass packets on as they came: Open vSwitch
/// takes no merged ones.
pub(crate) fn of(plan: &Plan, compartment: &Compartment) -> Result<Ports, TopologyError> {
    let ports = compartment.switch_ports(&plan.uplink);
    if compartment.in_out.is_some() {
        return Ok(Ports { present: ports, absent: Vec::new() });
    }
    let (present, absent): (Vec<_>, Vec<_>) =
        ports.into_iter().partition(|port| index_of(&port.interface).is_ok());
    present.iter().try_for_each(|port| limit_merging(&port.interface))?;
    Ok(Ports { present, absent: absent.into_iter().map(|port| port.interface).collect() })
}

/// Has the interfaces that were ports of a switch on the host, and are none any more, merge packets again.
pub(crate) fn release(previous: Option<&Plan>, plan: Option<&Plan>) {
    let kept = on_host(plan);
    for interface in on_host(previous).difference(&kept) {
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
