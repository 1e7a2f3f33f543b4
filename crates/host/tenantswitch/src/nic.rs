//! The NIC switch of this host's topology: the back end that the plan names.

use crate::TopologyError;
use crate::apply::Host;
use p4shield_config::NicSwitchKind;
use p4shield_nicswitch::{Bridge, NicSwitch, Xdp};
use p4shield_topology::Plan;

impl Host {
    /// Returns the NIC switch of a plan.
    pub(crate) fn nic_switch(&self, plan: &Plan) -> Result<Box<dyn NicSwitch>, TopologyError> {
        self.back_end(plan.nic_switch)
    }

    /// Removes the back ends that are not the plan's; all of them without one. The new back end of a change
    /// serves the ports before: whichever drops a frame, it passes neither.
    pub(crate) fn remove_other_nic_switches(&self, plan: Option<&Plan>) -> Result<(), TopologyError> {
        let others = NicSwitchKind::ALL.into_iter().filter(|kind| plan.is_none_or(|p| p.nic_switch != *kind));
        others.map(|kind| Ok(self.back_end(kind)?.delete()?)).fold(Ok(()), Result::and)
    }

    /// Returns a back end, whose parts in the kernel have names of this topology's own.
    fn back_end(&self, kind: NicSwitchKind) -> Result<Box<dyn NicSwitch>, TopologyError> {
        let number = self.users.start;
        Ok(match kind {
            NicSwitchKind::Xdp => Box::new(Xdp::open(format!("{}-{number}", Xdp::FOLDER))?),
            NicSwitchKind::Bridge => {
                Box::new(Bridge::new(format!("p4sn{number}"), format!("{}-{number}", Bridge::FOLDER)))
            }
        })
    }
}
