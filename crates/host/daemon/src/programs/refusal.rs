//! Log lines about refused programs.

use crate::status::problems::fail_policy;
use p4shield_abi::Direction;
use p4shield_config::{NoProgram, Tenant};

/// What judges the packets of a direction while a refused program does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meanwhile {
    /// The previous program.
    PreviousProgram,
    /// The tenant's `fail` policy.
    Fail,
    /// The tenant's `no_program`.
    NoProgram,
}

/// Logs that a program was refused at a command or a reload, and what happens to packets meanwhile.
/// Programs that are refused at start are problems, which `watch` logs.
pub(crate) fn log(tenant: &Tenant, vm: usize, direction: Direction, meanwhile: Meanwhile, why: &str) {
    tracing::error!(
        event = "program_refused",
        tenant = tenant.name,
        vm = tenant.vms.get(vm).map(|vm| vm.name.as_str()),
        direction = direction.name(),
        reason = why,
        "a program is refused; {}",
        meanwhile.text(tenant)
    );
}

impl Meanwhile {
    fn text(self, tenant: &Tenant) -> &'static str {
        match (self, tenant.no_program) {
            (Self::PreviousProgram, _) => "the previous program still judges the packets",
            (Self::Fail, _) => fail_policy(tenant.fail),
            (Self::NoProgram, NoProgram::Pass) => {
                "no program runs, so its packets pass (no_program = \"pass\")"
            }
            (Self::NoProgram, NoProgram::Drop) => {
                "no program runs, so its packets are dropped (no_program = \"drop\")"
            }
            // A direction that is skipped from the start takes no program by command.
            (Self::NoProgram, NoProgram::Skip) => {
                "no program runs, so its packets are dropped or bypass the P4 VM (no_program = \"skip\")"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use p4shield_config::Config;
    use std::path::Path;

    #[test]
    fn a_refusal_names_the_policy_in_force() {
        let text = "[[tenant]]\nname = \"alice\"\nfail = \"pass\"\nno_program = \"drop\"\n[[tenant.vm]]\n\
                    name = \"web\"\naddresses = [\"10.0.0.1\"]\n";
        let config = Config::parse(Path::new("p4shield.toml"), text).unwrap();
        let says = |meanwhile: Meanwhile| meanwhile.text(&config.tenants[0]);
        assert!(says(Meanwhile::PreviousProgram).contains("previous program"));
        assert!(says(Meanwhile::NoProgram).contains("no_program = \"drop\""));
        assert!(says(Meanwhile::Fail).contains("fail = \"pass\""));
    }
}
