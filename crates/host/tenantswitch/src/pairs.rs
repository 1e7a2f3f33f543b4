//! The pairs of interfaces between compartments and the NIC switch.

use crate::TopologyError;
use crate::inside::MachinePort;
use macaddr::MacAddr6;
use p4shield_afxdp::ethtool;
use p4shield_links::{
    PairEnd, add_pair, address_of, delete, index_of, inside, limit_merging, move_as, names, start, start_in,
    stop,
};
use p4shield_nicswitch::Sriov;
use p4shield_topology::{Compartment, Link, Plan};
use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::os::fd::BorrowedFd;

/// Returns a compartment's pairs, each with the address of its inner end.
pub(crate) fn of(compartment: &Compartment) -> impl Iterator<Item = (&Link, MacAddr6)> {
    let gateways = compartment.tenants.iter().filter_map(|t| Some((t.gateway.as_ref()?, t.mac)));
    compartment.in_out.iter().map(|link| (link, compartment.mac)).chain(gateways)
}

/// Returns the pairs between a compartment's VMs' wires and their ports.
pub(crate) fn wires(compartment: &Compartment) -> impl Iterator<Item = &Link> {
    compartment.tenants.iter().flat_map(|t| &t.vms).filter_map(|vm| vm.wire.as_ref())
}

/// Makes the pair of a wire, unless it is there. Its outer end is down. Returns whether the pair was made.
pub(crate) fn ensure_wire(link: &Link) -> Result<bool, TopologyError> {
    let Link { outer, inner } = link;
    if index_of(outer).is_ok() && index_of(inner).is_ok() {
        return Ok(false);
    }
    remove(outer)?;
    add_pair(PairEnd { name: outer, mac: None }, PairEnd { name: inner, mac: None })?;
    // Without IPv6 the kernel sends no packets of its own there.
    for name in [outer, inner] {
        let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1");
    }
    start(inner)?;
    Ok(true)
}

/// Makes a pair whose inner end is in a compartment's network namespace, unless it is there. A new
/// compartment has none. Both ends are down. Returns whether the pair was made.
pub(crate) fn ensure(link: &Link, mac: MacAddr6, namespace: BorrowedFd<'_>) -> Result<bool, TopologyError> {
    let on_its_way = on_its_way(link);
    let is_there = |name: &str| index_of(name).is_ok();
    let found = inside(namespace, || is_there(&link.inner))
        .map_err(|e| TopologyError::Process("enter the network namespace of a switch compartment", e))?;
    if found && is_there(&link.outer) && !is_there(&on_its_way) {
        return Ok(false);
    }
    remove(&link.outer)?;
    let inner = PairEnd { name: &on_its_way, mac: Some(mac.into_array()) };
    add_pair(PairEnd { name: &link.outer, mac: None }, inner)?;
    // The kernel receives what XDP sends to it only in NAPI, which merging switches on; Open vSwitch takes
    // packets as they were sent.
    let _ = ethtool::merge_received(&on_its_way);
    limit_merging(&on_its_way)?;
    move_as(namespace, &on_its_way, &link.inner)?;
    Ok(true)
}

/// Moves a port's virtual function into a compartment's network namespace, unless it is there with the
/// address that its card has for it. It is down. Returns whether it was moved.
pub(crate) fn ensure_function(
    card: &Sriov,
    link: &Link,
    mac: MacAddr6,
    namespace: BorrowedFd<'_>,
) -> Result<bool, TopologyError> {
    let found = inside(namespace, || address_of(&link.inner))
        .map_err(|e| TopologyError::Process("enter the network namespace of a switch compartment", e))?;
    if found.is_ok_and(|address| address == mac.into_array()) {
        return Ok(false);
    }
    let interface = card.start_driver(&link.outer)?;
    // As in `ensure`. Older kernels have no such limit.
    let _ = limit_merging(&interface);
    move_as(namespace, &interface, &link.inner)?;
    Ok(true)
}

/// Describes a pair of a compartment that is a virtual machine: on the host until [`hand_over`], with a tap
/// of the inner end, which QEMU has open.
pub(crate) fn machine_port(link: &Link, mac: MacAddr6) -> MachinePort {
    let (interface, tap) = (on_its_way(link), tap_of(link));
    MachinePort { interface, tap, address: mac.into_array(), name: link.inner.clone() }
}

/// Makes the pair of a machine that is to be started, and no tap yet. Both ends are down.
pub(crate) fn make_for_machine(link: &Link) -> Result<(), TopologyError> {
    remove(&link.outer)?;
    let inner = on_its_way(link);
    add_pair(PairEnd { name: &link.outer, mac: None }, PairEnd { name: &inner, mac: None })?;
    // As in `ensure`: the tap takes packets as they were sent.
    let _ = ethtool::merge_received(&inner);
    Ok(limit_merging(&inner)?)
}

/// Returns whether the pair of a machine that runs is there, on its way or in the compartment.
pub(crate) fn is_of_machine(link: &Link, namespace: BorrowedFd<'_>) -> bool {
    let is_there = |name: &str| index_of(name).is_ok();
    let is_inside =
        || inside(namespace, || is_there(&link.inner) && is_there(&tap_of(link))).unwrap_or(false);
    is_there(&link.outer) && ((is_there(&on_its_way(link)) && is_there(&tap_of(link))) || is_inside())
}

/// Moves the pair's inner end and its tap into the network namespace of the compartment, with which they end,
/// and sets them up there. Returns false if they were there.
pub(crate) fn hand_over(link: &Link, namespace: BorrowedFd<'_>) -> Result<bool, TopologyError> {
    let (interface, tap) = (on_its_way(link), tap_of(link));
    let is_new = index_of(&interface).is_ok();
    if index_of(&tap).is_ok() {
        move_as(namespace, &tap, &tap)?;
    }
    if is_new {
        move_as(namespace, &interface, &link.inner)?;
    }
    start_in(namespace, &link.inner)?;
    start_in(namespace, &tap)?;
    Ok(is_new)
}

/// The name of the tap of a machine's pair.
fn tap_of(link: &Link) -> String {
    format!("{}t", link.outer)
}

/// Sets the inner ends up. The switch has to know them: it changes an interface's flags when it opens one,
/// and would undo a change that was made meanwhile.
pub(crate) fn open_inner(compartment: &Compartment, namespace: BorrowedFd<'_>) -> Result<(), TopologyError> {
    for (link, _) in of(compartment) {
        start_in(namespace, &link.inner)?;
    }
    // The switch listens there for its controllers.
    if compartment.controllers.is_some() {
        start_in(namespace, "lo")?
    }
    Ok(())
}

/// The host's own stack behind an outer end, by setting: it forwards nothing from there, takes no packet
/// whose sender has no route to there, which none has, answers no ARP, and has no IPv6 there.
///
/// A second line behind traffic control, which does not see every packet: the kernel passes by all that is
/// there once if the sender redirected the packet before, by an IFB.
const STACK: [(&str, &str); 4] = [
    ("ipv4/conf/{}/forwarding", "0"),
    ("ipv4/conf/{}/rp_filter", "1"),
    ("ipv4/conf/{}/arp_ignore", "8"),
    ("ipv6/conf/{}/disable_ipv6", "1"),
];

/// Has the host's own stack refuse what comes from an interface.
fn refuse(interface: &str) -> Result<(), TopologyError> {
    for (setting, value) in STACK {
        let path = format!("/proc/sys/net/{}", setting.replace("{}", interface));
        let is_set = || fs::read_to_string(&path).is_ok_and(|found| found.trim() == value);
        match fs::write(&path, value) {
            // The kernel has no IPv6, or it is so in a container that may not change it.
            Err(e) if e.kind() != ErrorKind::NotFound && !is_set() => {
                return Err(TopologyError::file("write", path)(e));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Sets the outer ends up. Before the NIC switch serves them, a compartment would reach the host's own stack.
pub(crate) fn open_outer(compartment: &Compartment) -> Result<(), TopologyError> {
    for link in of(compartment).map(|(link, _)| link).chain(wires(compartment)) {
        refuse(&link.outer)?;
        start(&link.outer)?;
    }
    Ok(())
}

/// Returns the outer ends that are there and not in the plan; all of them without one. The compartments
/// behind them may run until they are removed.
pub(crate) fn others(plan: Option<&Plan>) -> Result<BTreeSet<String>, TopologyError> {
    let planned: BTreeSet<&str> = plan
        .iter()
        .filter(|plan| plan.functions.is_empty())
        .flat_map(|plan| &plan.compartments)
        .flat_map(|c| of(c).map(|(link, _)| link).chain(wires(c)))
        .map(|link| &*link.outer)
        .collect();
    let is_other = |name: &String| is_ours(name) && !planned.contains(&**name);
    Ok(names()?.into_iter().filter(is_other).collect())
}

/// Sets the outer ends down that are not in the plan: nothing that is sent there arrives.
pub(crate) fn stop_others(plan: Option<&Plan>) -> Result<(), TopologyError> {
    for name in others(plan)? {
        match stop(&name) {
            Err(e) if index_of(&name).is_ok() => return Err(e.into()),
            _ => {}
        }
    }
    Ok(())
}

/// Deletes the pairs that are not in the plan; all of them without one.
pub(crate) fn delete_others(plan: Option<&Plan>) -> Result<(), TopologyError> {
    // The other end of a wire goes with its port.
    others(plan)?.iter().try_for_each(|name| remove(name))
}

/// Deletes a pair, if it is there: one end takes the other along, and so does the end of a compartment's
/// network namespace, which may come meanwhile.
fn remove(name: &str) -> Result<(), TopologyError> {
    match delete(name) {
        Err(e) if index_of(name).is_ok() => Err(e.into()),
        _ => Ok(()),
    }
}

/// The name of a pair's inner end until it is in its compartment.
fn on_its_way(link: &Link) -> String {
    format!("{}p", link.outer)
}

/// Returns whether an interface has a name that plans give.
fn is_ours(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if let Some(hash) = name.strip_prefix("p4sw") {
        return hash.len() == 8 && hash.bytes().all(|b| b.is_ascii_hexdigit());
    }
    let Some(rest) = name.strip_prefix("p4s") else { return false };
    let rest = rest.strip_suffix(['p', 't']).unwrap_or(rest);
    rest.strip_suffix("io").is_some_and(is_number)
        || rest.split_once("gw").is_some_and(|(switch, tenant)| is_number(switch) && is_number(tenant))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_interfaces_of_plans_are_taken_for_ours() {
        assert!(
            ["p4s1io", "p4s17iop", "p4s2gw3", "p4s2gw3p", "p4s2gw3t", "p4sw0a1b2c3d"]
                .into_iter()
                .all(is_ours)
        );
        assert!(
            !["p4s1gw", "p4sgw1", "p4sxio", "eth0", "p4s1br", "p4shield0", "p4sw0a1b2c3di"]
                .into_iter()
                .any(is_ours)
        );
    }
}
