//! Checks of compartments and of the table `[machine]`.

use super::Placement;
use super::check::Checker;
use super::compartment::{Compartment, MAX_PROCESSORS, MIN_MEMORY, Machine, Tee};
use super::file::{self, Text};

/// Default folder of the image.
const IMAGE: &str = "/usr/lib/p4shield/image";
/// Default program of QEMU.
const QEMU: &str = "qemu-system-x86_64";

impl Checker<'_> {
    /// Checks the compartment of a tenant, or that of all tenants.
    pub(super) fn compartment(
        &mut self,
        value: Option<&Text>,
        default: Compartment,
        placement: Placement,
    ) -> Compartment {
        let Some(text) = value else { return default };
        let words = Compartment::ALL.map(|c| (c.name(), c));
        let compartment = self.word("compartment", value, &words);
        if compartment == Compartment::Vm && placement == Placement::Inline {
            let message = "compartment: \"vm\" needs P4 VMs, but with placement = \"inline\" programs run \
                           in the switch; write placement = \"p4vm\"";
            self.problem(text.span(), message.to_owned());
        }
        compartment
    }

    /// Checks the TEE of a tenant, or that of all tenants whose P4 VMs are virtual machines.
    pub(super) fn tee(&mut self, value: Option<&Text>, default: Tee, compartment: Compartment) -> Tee {
        let Some(text) = value else {
            return if compartment == Compartment::Vm { default } else { Tee::None };
        };
        let tee = self.word("tee", value, &Tee::ALL.map(|tee| (tee.name(), tee)));
        if tee != Tee::None && compartment != Compartment::Vm {
            let message =
                format!("tee: \"{}\" needs a virtual machine; write compartment = \"vm\"", tee.name());
            self.problem(text.span(), message);
        }
        tee
    }

    /// Checks that the memory of a tenant with a virtual machine suffices.
    pub(super) fn machine_memory(&mut self, t: &file::Tenant, compartment: Compartment, memory: u64) {
        if let Some(value) =
            t.memory.as_ref().filter(|_| compartment == Compartment::Vm && memory < MIN_MEMORY)
        {
            let message = format!(
                "memory: a virtual machine needs at least {}MiB; write memory = \"512MiB\"",
                MIN_MEMORY >> 20
            );
            self.problem(value.span(), message);
        }
    }

    pub(super) fn machine(&mut self, m: &file::Machine) -> Machine {
        let accelerators = [("auto", None), ("kvm", Some("kvm")), ("tcg", Some("tcg"))];
        let qemu = m.qemu.as_ref().map_or_else(
            || QEMU.into(),
            |qemu| {
                let resolved = self.place(qemu);
                // A name without a slash is searched in PATH.
                if qemu.as_ref().components().count() == 1 { qemu.as_ref().clone() } else { resolved }
            },
        );
        let image = m.image.as_ref().map_or_else(|| IMAGE.into(), |image| self.place(image));
        Machine {
            image,
            qemu,
            accelerator: self.word("accelerator", m.accelerator.as_ref(), &accelerators),
            processors: self.number("processors", m.processors.as_ref(), 2, 1, MAX_PROCESSORS),
            firmware: m.firmware.as_ref().map(|firmware| self.place(firmware)),
            processor: self.machine_text("processor", m.processor.as_ref(), (&["EPYC"], "EPYC-v4")),
            quote_service: self.machine_text(
                "quote_service",
                m.quote_service.as_ref(),
                (&["vsock:", "unix:/"], "vsock:2:4050"),
            ),
        }
    }

    /// Checks how a text begins that QEMU reads. The daemon checks the rest when it starts QEMU.
    fn machine_text(
        &mut self,
        key: &str,
        value: Option<&Text>,
        (prefixes, example): (&[&str], &str),
    ) -> Option<String> {
        let text = value?;
        if !prefixes.iter().any(|prefix| text.as_ref().starts_with(prefix)) {
            let message = format!(
                "{key}: {:?} does not begin with {}; write for example {key} = {example:?}",
                text.as_ref(),
                prefixes.join(" or ")
            );
            self.problem(text.span(), message);
        }
        Some(text.as_ref().clone())
    }
}
