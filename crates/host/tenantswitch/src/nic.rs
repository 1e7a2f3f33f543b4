//! The NIC switch of this host's topology: the back end that the plan names.

use crate::apply::{Applied, Host};
use crate::{TopologyError, host_ports, pairs};
use p4shield_config::{Datapath, NicSwitchKind};
use p4shield_nicswitch::{Bridge, Changes, Function, Hook, HostGuard, NicSwitch, Software, Sriov};
use p4shield_topology::Plan;
use std::path::PathBuf;

impl Host {
    /// Returns the NIC switch of a plan.
    pub(crate) fn nic_switch(&self, plan: &Plan) -> Result<Box<dyn NicSwitch>, TopologyError> {
        Ok(match plan.nic_switch {
            NicSwitchKind::Tc => Box::new(self.in_traffic_control(plan.datapath)?),
            NicSwitchKind::Xdp => Box::new(self.in_xdp()?),
            NicSwitchKind::Bridge => Box::new(self.bridge()),
            NicSwitchKind::Sriov => Box::new(self.sriov(plan)),
        })
    }

    /// Makes the ports of a plan those of its NIC switch. Compartments that the plan does not have may still
    /// run, and do not reach the host's own stack.
    pub(crate) fn apply_nic_switch(&self, plan: &Plan) -> Result<Changes, TopologyError> {
        host_ports::keep_unmerged(plan)?;
        let others = pairs::others(Some(plan))?;
        let ports = plan.ports();
        Ok(match plan.nic_switch {
            NicSwitchKind::Tc => self.in_traffic_control(plan.datapath)?.with_ends(others).apply(&ports)?,
            NicSwitchKind::Xdp => self.in_xdp()?.with_ends(others).apply(&ports)?,
            NicSwitchKind::Bridge | NicSwitchKind::Sriov => {
                pairs::stop_others(Some(plan))?;
                self.nic_switch(plan)?.apply(&ports)?
            }
        })
    }

    /// Returns the network card of a plan whose ports are its virtual functions.
    pub(crate) fn card(&self, plan: &Plan) -> Option<Sriov> {
        (plan.nic_switch == NicSwitchKind::Sriov).then(|| self.sriov(plan))
    }

    /// Prepares the network card of a plan, if it has one, before compartments get their virtual functions.
    /// The compartments that have these otherwise end first: one that was taken over would be in the network
    /// outside when its function is reset.
    pub(crate) fn prepare_card(&self, plan: &Plan, done: &mut Applied) -> Result<(), TopologyError> {
        let Some(mut card) = self.card(plan) else { return Ok(()) };
        done.removed = self.remove_others(Some(plan))?;
        let changes = card.apply(&plan.ports())?;
        done.ports = [changes.added, changes.changed, changes.removed].concat();
        Ok(())
    }

    /// Removes the back ends that are not the plan's; all of them without one. The new back end of a change
    /// serves the ports before: whichever drops a frame, it passes neither. The host's stack then gets the
    /// frames of their ports: ends of compartments that may still run are down before.
    pub(crate) fn remove_other_nic_switches(&self, plan: Option<&Plan>) -> Result<(), TopologyError> {
        let kind = plan.map(|plan| plan.nic_switch);
        let mut result = Ok(());
        let delete = |switch: Result<Software, TopologyError>| Ok(switch?.delete()?);
        if kind != Some(NicSwitchKind::Tc) {
            result = result.and(delete(self.in_traffic_control(Datapath::default())));
        }
        if kind != Some(NicSwitchKind::Xdp) {
            result = result.and(delete(self.in_xdp()));
        }
        if kind != Some(NicSwitchKind::Bridge) {
            result = result.and(self.bridge().delete().map_err(Into::into));
        }
        let folder = self.folder_of_cards();
        let kept = plan.filter(|plan| plan.nic_switch == NicSwitchKind::Sriov).map(|plan| &plan.uplink);
        for card in Sriov::cards(&folder)?.into_iter().filter(|card| Some(card) != kept) {
            let deleted = Sriov::new(card, [].into(), &folder).delete();
            result = result.and(deleted.map_err(Into::into));
        }
        result
    }

    /// Returns what keeps the host's stack off the ports of a switch on the host.
    pub(crate) fn guard(&self) -> HostGuard {
        HostGuard::new(format!("p4shield-host-{}", self.users.start))
    }

    // The parts of each back end in the kernel have names of this topology's own.

    fn in_xdp(&self) -> Result<Software, TopologyError> {
        Ok(Software::open(Hook::Xdp, format!("{}-{}", Software::FOLDER, self.users.start))?)
    }

    /// Switches by packet sockets receive what appears at their ends of pairs. AF_XDP sockets are behind XDP
    /// there, which sees a frame only after it has left by the port.
    fn in_traffic_control(&self, datapath: Datapath) -> Result<Software, TopologyError> {
        let hook = Hook::TrafficControl { are_direct: datapath != Datapath::Afxdp };
        Ok(Software::open(hook, format!("{}-tc-{}", Software::FOLDER, self.users.start))?)
    }

    fn bridge(&self) -> Bridge {
        let number = self.users.start;
        Bridge::new(format!("p4sn{number}"), format!("{}-{number}", Bridge::FOLDER))
    }

    fn sriov(&self, plan: &Plan) -> Sriov {
        let function = |number: u16| Function { number: number.into(), rate: None };
        let functions = plan.functions.iter().map(|(port, number)| (port.clone(), function(*number)));
        let card = Sriov::new(&*plan.uplink, functions.collect(), self.folder_of_cards());
        card.outside_vlan(plan.outside_vlan)
    }

    fn folder_of_cards(&self) -> PathBuf {
        format!("{}-{}", Sriov::FOLDER, self.users.start).into()
    }
}
