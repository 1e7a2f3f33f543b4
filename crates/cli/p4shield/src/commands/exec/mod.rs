//! `p4shield exec`: a command in a tenant's switch compartment.

mod relay;

use std::ffi::OsString;
use std::path::PathBuf;

use p4shield_console::{Exit, Refused};
use p4shield_tenantswitch::ErrandError;

use super::topology;

/// Run a command in a tenant's switch compartment
///
/// The command can do what the compartment's switch can do, and no more: it has the same namespaces, user,
/// capabilities, limits and system calls. It sees the host's /usr, and of the environment only TERM. Its
/// input and outputs are pipes; what it prints reaches a terminal without control characters. SIGHUP,
/// SIGINT, SIGQUIT and SIGTERM are passed on to it and its children, which end with it. At level "baseline"
/// it is beside the one switch, in its sandbox.
///
/// In a virtual machine it is one of Open vSwitch's tools, runs for 30 s at most, prints at its end, and has
/// input only if one of its arguments is `-`.
///
/// Examples:
///
///   p4shield exec alice -- ovs-vsctl show
///   p4shield exec alice -- ovs-ofctl dump-flows br0
///   p4shield exec alice -- ip -stats link
///   p4shield exec alice -- ovs-ofctl add-flows br0 - < rules.txt
///
/// The exit code is the command's, or 128 plus the number of the signal that ended it; 126 if it cannot be
/// started, 127 if there is no such program. Before that: exit code 1 if no topology was applied or the
/// compartment does not run, 3 if the tenant is unknown.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// The configuration file
    #[arg(long, value_name = "FILE", default_value = "/etc/p4shield/p4shield.toml")]
    config: PathBuf,
    /// The tenant whose switch it is about
    tenant: String,
    /// The program and its arguments
    #[arg(required = true, last = true)]
    command: Vec<OsString>,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let host = topology::host(self.config)?;
        let child = host.start_command(&self.tenant, &self.command).map_err(|e| match e {
            ErrandError::Unknown { .. } | ErrandError::P4 { .. } => Refused::because(&e).into(),
            e => anyhow::Error::from(e),
        })?;
        Ok(Exit::Code(relay::until_end(child)?))
    }
}
