//! `p4shield topology`: the tenants' switches.

mod made;
mod usage;

use std::path::PathBuf;

pub(crate) use made::show_switches;

use anyhow::Context;
use clap::Subcommand;
use p4shield_console::{Exit, Refused, output};
use p4shield_daemon::config::Config;
use p4shield_daemon::tenant_switches_host;
use p4shield_tenantswitch::{Host, TopologyError};
use p4shield_topology::{Plan, Port};
use serde::Serialize;

/// Divide the host's switch among tenants
///
/// With level = "1" or "2" in the configuration, a stock Open vSwitch runs in a compartment for all tenants,
/// or in one for each tenant or zone, and a NIC switch mediates all packets between VMs, compartments and the
/// outside.
///
/// Example: p4shield topology plan; p4shield topology apply; p4shield topology status
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Plan(PlanArgs),
    Apply(made::Apply),
    Diff(made::Diff),
    Status(made::Status),
    Usage(usage::Usage),
    Delete(made::Delete),
}

/// The configuration that an action is about.
#[derive(Debug, clap::Args)]
struct Source {
    /// The configuration file
    #[arg(long, value_name = "FILE", default_value = "/etc/p4shield/p4shield.toml")]
    config: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A configuration, and the host that it is for.
struct Planned {
    config: Config,
    host: Host,
}

impl Source {
    fn read(&self) -> anyhow::Result<Planned> {
        let config = Config::load(&self.config).map_err(|e| Refused::because(&e))?;
        let missing = "the configuration has no table [topology]: write it with uplink and gateway_mac";
        let binary = std::env::current_exe().context("cannot find this program")?;
        let host = tenant_switches_host(&config, &binary).ok_or_else(|| Refused(missing.to_owned()))?;
        Ok(Planned { config, host })
    }
}

/// Returns the host that a configuration file is for.
pub(crate) fn host(config: PathBuf) -> anyhow::Result<Host> {
    Ok(Source { config, json: false }.read()?.host)
}

impl Planned {
    /// Plans what the configuration says, with the numbers of what was applied.
    fn plan(&self) -> anyhow::Result<Plan> {
        self.host.plan(&self.config).map_err(|e| match e {
            TopologyError::Plan(e) => Refused::because(&e).into(),
            e => e.into(),
        })
    }
}

/// Print what the configuration's level means on this host, without changing anything
///
/// Lists the switches with their cores, memory and addresses, the tenants with their VLANs and gateways,
/// the VMs with their ports, and how many virtual functions SR-IOV would need.
///
/// Examples:
///
///   p4shield topology plan
///   p4shield topology plan --config p4shield.toml --svg plan.svg
///   p4shield topology plan --json | jq -r '.ports[].interface'
///
/// Exit code 3 if the configuration is refused, or this host has too few cores for it.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
struct PlanArgs {
    #[command(flatten)]
    source: Source,
    /// Draw the plan into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// The plan and what follows from it.
#[derive(Serialize)]
struct Report<'p> {
    #[serde(flatten)]
    plan: &'p Plan,
    virtual_functions: usize,
    ports: Vec<Port>,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        match self.command {
            Command::Plan(a) => a.run(),
            Command::Apply(a) => a.run(),
            Command::Diff(a) => a.run(),
            Command::Status(a) => a.run(),
            Command::Usage(a) => a.run(),
            Command::Delete(a) => a.run(),
        }
    }
}

impl PlanArgs {
    fn run(self) -> anyhow::Result<Exit> {
        let plan = self.source.read()?.plan()?;
        if let Some(file) = &self.svg {
            std::fs::write(file, plan.picture()).with_context(|| {
                format!("cannot write {}; name a file in a folder that exists", file.display())
            })?;
        }
        if self.source.json {
            output::json(&Report { virtual_functions: plan.vfs(), ports: plan.ports(), plan: &plan })?;
        } else {
            output::text(&plan.to_string());
        }
        Ok(Exit::Done)
    }
}
