//! Identity of a user VM: arguments that agent and auditor share.

use std::path::PathBuf;

use p4shield_agent::config::VmConfig;

#[derive(Debug, clap::Args)]
pub(crate) struct Identity {
    /// The tenant's name
    #[arg(long)]
    tenant: String,
    /// This VM's name
    #[arg(long)]
    vm: String,
    /// This VM's key, a file of mode 0600 (see `p4shield key`); it may be replaced at any time
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
}

impl From<Identity> for VmConfig {
    fn from(i: Identity) -> Self {
        Self { tenant: i.tenant, name: i.vm, key: i.key }
    }
}
