//! The checks, each of which returns findings with remedies.

mod database;
mod host;
mod program;

pub(crate) use host::Host;
pub(crate) use program::program;

use crate::dropin::{DropIn, Installed};
use crate::finding::Finding;
use crate::systemd::{NoService, Service};
use crate::{PreloadedAttachment, Root};

/// The dynamic linker's variable.
pub(crate) const PRELOAD: &str = "LD_PRELOAD";

/// Checks that the unit exists, and that no other attachment or foreign drop-in is installed for it.
pub(crate) fn unit(
    root: &Root,
    kind: PreloadedAttachment,
    name: &str,
    findings: &mut Vec<Finding>,
) -> Option<Service> {
    const CHECK: &str = "unit";
    let service = match Service::find(root, name) {
        Ok(service) => {
            findings.push(Finding::good(CHECK, format!("{name} is {}", service.file.display())));
            Some(service)
        }
        Err(NoService::Missing) => {
            let remedy = format!(
                "install the switch's package (Debian: openvswitch-switch-dpdk), name another unit with \
                 --unit, or print \
                 the command line: `p4shield attach {} -- PROGRAM ARGUMENTS`",
                kind.word()
            );
            findings.push(Finding::problem(CHECK, format!("there is no unit {name}"), remedy));
            None
        }
        Err(NoService::Masked) => {
            let remedy = format!("run `systemctl unmask {name}`");
            findings.push(Finding::problem(CHECK, format!("{name} is masked"), remedy));
            None
        }
    };
    let path = DropIn::path(name);
    match DropIn::installed(root, name) {
        Installed::Ours { kind: other, .. } if other != kind => {
            let what = format!("{name} already loads the attachment {}", other.word());
            let remedy = format!("remove it first: `p4shield detach {} --apply`", other.word());
            findings.push(Finding::problem(CHECK, what, remedy));
        }
        Installed::Foreign => {
            let what = format!("{} exists but was not written by P4 Shield", path.display());
            findings.push(Finding::problem(CHECK, what, "move or rename it"));
        }
        Installed::Nothing | Installed::Ours { .. } => {}
    }
    service
}
