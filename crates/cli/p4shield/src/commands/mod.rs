//! The commands.

mod attach;
mod bundle;
mod compile;
mod completions;
mod conformance;
mod exec;
mod explain;
mod history;
mod host_check;
mod image;
mod key;
mod metrics;
mod p4vm;
mod policy;
mod program;
mod program_state;
mod reload;
mod run;
mod socket;
mod status;
mod switch;
mod switch_inside;
mod tenant_exec;
mod tenant_switch;
mod test;
mod topology;
mod upgrade;
mod verify;
mod vm;
mod vmm;
mod watch;
mod wires;

use clap::Subcommand;

pub(crate) use completions::answer_shell;
use p4shield_console::Exit;
use p4shield_uservm::{agent, audit, keygen};

// No comments on the variants: they would replace the help that each command's own arguments give.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Compile(compile::Compile),
    Check(compile::Check),
    Explain(explain::Args),
    Test(test::Test),
    Conformance(conformance::Conformance),
    Keygen(keygen::Args),
    Key(key::Args),
    Verify(verify::Args),
    Policy(policy::Args),
    Bundle(bundle::Args),
    #[command(hide = true)]
    VerifyChild(verify::Child),
    Run(run::Args),
    Status(status::Args),
    Reload(reload::Reload),
    Upgrade(upgrade::Upgrade),
    Metrics(metrics::Args),
    Attach(attach::Attach),
    Detach(attach::Detach),
    Program(program::Args),
    Switch(switch::Args),
    Image(image::Args),
    Host(host_check::Args),
    Vm(vm::Args),
    #[command(hide = true, name = "p4vm")]
    P4Vm(p4vm::Args),
    #[command(hide = true)]
    SwitchInside(switch_inside::Args),
    #[command(hide = true)]
    Vmm(vmm::Args),
    #[command(hide = true)]
    TenantSwitch(tenant_switch::Args),
    #[command(hide = true)]
    TenantExec(tenant_exec::Args),
    Topology(topology::Args),
    Exec(exec::Args),
    #[command(hide = true)]
    Wires(wires::Args),
    Agent(agent::Args),
    Audit(Box<audit::Args>),
    Completions(completions::Completions),
    Man(completions::Man),
}

impl Command {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        match self {
            Self::Compile(a) => a.run(),
            Self::Check(a) => a.run(),
            Self::Explain(a) => a.run(),
            Self::Test(a) => a.run(),
            Self::Conformance(a) => a.run(),
            Self::Keygen(a) => a.run(),
            Self::Key(a) => a.run(),
            Self::Verify(a) => a.run(),
            Self::Policy(a) => a.run(),
            Self::Bundle(a) => a.run(),
            Self::VerifyChild(a) => a.run(),
            Self::Run(a) => a.run(),
            Self::Status(a) => a.run(),
            Self::Reload(a) => a.run(),
            Self::Upgrade(a) => a.run(),
            Self::Metrics(a) => a.run(),
            Self::Attach(a) => a.run(),
            Self::Detach(a) => a.run(),
            Self::Program(a) => a.run(),
            Self::Switch(a) => a.run(),
            Self::Image(a) => a.run(),
            Self::Host(a) => a.run(),
            Self::Vm(a) => a.run(),
            Self::P4Vm(a) => a.run(),
            Self::SwitchInside(a) => a.run(),
            Self::Vmm(a) => a.run(),
            Self::TenantSwitch(a) => a.run(),
            Self::TenantExec(a) => a.run(),
            Self::Topology(a) => a.run(),
            Self::Exec(a) => a.run(),
            Self::Wires(a) => a.run(),
            Self::Agent(a) => a.run(),
            Self::Audit(a) => a.run(),
            Self::Completions(a) => a.run(),
            Self::Man(a) => a.run(),
        }
    }
}
