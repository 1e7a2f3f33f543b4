//! Virtual machines as compartments of tenants' switches: the keys `compartment` and `image` of `[topology]`.

use super::check::Checker;
use super::compartment::{Compartment, Machine};
use super::file;
use super::levels::{Datapath, Level};
use super::quantity::SizeLimits;
use std::path::PathBuf;

/// Default folder of the image.
const IMAGE: &str = "/usr/lib/p4shield/tenant-switch-image";
/// Default memory of a machine, and the least that Linux and Open vSwitch start in.
pub(super) const MEMORY: SizeLimits = SizeLimits { default: 256 << 20, least: 192 << 20, example: "256MiB" };

/// The parts of the virtual machines of tenants' switches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchMachine {
    /// The folder of the image, made by `p4shield image build --tenant-switch`.
    pub image: PathBuf,
    /// QEMU's program, searched in `PATH` if it has no slash.
    pub qemu: PathBuf,
    /// QEMU's name of the accelerator; `None`: the best that works.
    pub accelerator: Option<&'static str>,
}

impl Checker<'_> {
    /// Checks whether switches are in virtual machines. The table `[machine]` has QEMU.
    pub(super) fn switch_machine(
        &mut self,
        file: &file::File,
        t: &file::Topology,
        level: Level,
        datapath: Datapath,
        machine: &Machine,
    ) -> Option<SwitchMachine> {
        let words = Compartment::ALL.map(|c| (c.name(), c));
        let compartment = self.word("compartment", t.compartment.as_ref(), &words);
        if compartment == Compartment::Process {
            if let Some(image) = &t.image {
                let message = "image: only switches in virtual machines have one; write compartment = \
                               \"vm\", or remove the key";
                self.problem(image.span(), message.to_owned());
            }
            return None;
        }
        let span = t.compartment.as_ref().map_or(0..0, toml::Spanned::span);
        let reason = match (level, datapath) {
            (Level::Baseline, _) => Some(
                "with level = \"baseline\" the switch is on the host, in no compartment; write level = \"2\"",
            ),
            (_, Datapath::Dpdk) => Some(
                "the image has Open vSwitch without DPDK; write level = \"2\" and no datapath, or \
                 compartment = \"process\"",
            ),
            _ => None,
        };
        if let Some(reason) = reason {
            self.problem(span, format!("compartment: \"vm\" does not go with it: {reason}"));
        }
        for table in file.tenant.iter().filter_map(|t| t.controllers.as_ref()) {
            let message = "controllers: the host reaches no port of a switch in a virtual machine; remove \
                           [tenant.controllers], or write compartment = \"process\" in [topology]";
            self.problem(table.private_key.span(), message.to_owned());
        }
        let image = t.image.as_ref().map_or_else(|| IMAGE.into(), |image| self.place(image));
        Some(SwitchMachine { image, qemu: machine.qemu.clone(), accelerator: machine.accelerator })
    }
}
