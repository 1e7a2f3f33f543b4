//! The switches that the plan makes: `apply`, `diff`, `status`, `delete`.

use p4shield_console::{Exit, output};
use p4shield_tenantswitch::{Applied, FunctionStatus, PortStatus, Status as Found, SwitchStatus};
use p4shield_topology::Diff as Differences;
use serde::Serialize;

use super::{Planned, Source};

/// Make the switches that the plan says, and remove those that it does not say
///
/// Starts a compartment with a stock Open vSwitch for each switch, connects it with the NIC switch, and gives
/// it the rules of its chains; then puts the policy of all ports in force at once. What is there and as
/// planned stays untouched, with its traffic. After an error, or if this command was killed, apply again: it
/// goes on from there.
///
/// Examples:
///
///   p4shield topology apply
///   p4shield topology apply --config p4shield.toml --json | jq .started
///
/// Exit code 1 if a switch could not be made; the others are. Exit code 3 if the configuration is refused.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Apply {
    #[command(flatten)]
    source: Source,
}

impl Apply {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let planned = self.source.read()?;
        let applied = planned.host.apply(&planned.plan()?)?;
        if self.source.json {
            output::json(&applied)?;
        } else {
            report(&applied);
        }
        Ok(Exit::Done)
    }
}

fn report(applied: &Applied) {
    let Applied { started, connected, removed, ports, absent, settings } = applied;
    if [started, connected, removed, ports, settings].into_iter().all(Vec::is_empty) {
        output::line("nothing to change");
    }
    let lists = [
        ("started", started),
        ("removed", removed),
        ("connected", connected),
        ("ports changed", ports),
        ("raised", settings),
    ];
    for (what, names) in lists.into_iter().filter(|(_, names)| !names.is_empty()) {
        output::line(format_args!("{what}: {}", names.join(" ")));
    }
    if !absent.is_empty() {
        let names = absent.join(" ");
        output::note(format_args!("these interfaces do not exist yet: {names}; apply again once they do"));
    }
}

/// Print what apply would change in the plan
///
/// Lists the parts of the plan that were added (+), removed (-) or changed (~) since it was applied.
///
/// Examples:
///
///   p4shield topology diff
///   p4shield topology diff --json | jq '.changes | length'
///
/// Exit code 1 if there are differences.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Diff {
    #[command(flatten)]
    source: Source,
}

impl Diff {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let planned = self.source.read()?;
        let plan = planned.plan()?;
        let differences = differences(&planned, &plan)?;
        if self.source.json {
            output::json(&differences)?;
        } else {
            output::text(&differences.to_string());
        }
        Ok(if differences.is_empty() { Exit::Done } else { Exit::Failed })
    }
}

/// Returns the differences to what was applied; without that, every part is new.
fn differences(planned: &Planned, plan: &p4shield_topology::Plan) -> anyhow::Result<Differences> {
    let applied = planned.host.applied()?;
    let nothing = || p4shield_topology::Plan { compartments: Vec::new(), ..plan.clone() };
    Ok(applied.unwrap_or_else(nothing).diff(plan))
}

/// Say how the switches are, and count each port's packets and drops
///
/// Examples:
///
///   p4shield topology status
///   p4shield topology status --json | jq '.ports[] | select(.dropped != {})'
///
/// Exit code 1 if a switch does not work, or none was applied.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Status {
    #[command(flatten)]
    source: Source,
}

impl Status {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let Some(found) = self.source.read()?.host.status()? else {
            anyhow::bail!("no topology was applied: run p4shield topology apply");
        };
        if self.source.json {
            output::json(&Shown {
                level: found.plan.level.name(),
                switches: &found.switches,
                ports: &found.ports,
            })?;
        } else {
            show(&found);
        }
        let works =
            found.switches.iter().all(|s| s.problem.is_none()) && found.ports.iter().all(|p| p.serves);
        Ok(if works { Exit::Done } else { Exit::Failed })
    }
}

/// The status as JSON.
#[derive(Serialize)]
struct Shown<'f> {
    level: &'static str,
    switches: &'f [SwitchStatus],
    ports: &'f [PortStatus],
}

fn show(found: &Found) {
    show_switches(found.plan.level.name(), &found.switches);
    for p in &found.ports {
        let tenant = p.tenant.as_deref().unwrap_or("-");
        let PortStatus { interface, serves, received_packets, delivered_packets, dropped, function, .. } = p;
        let state = if *serves { "" } else { ", not served: its interface is missing" };
        let drops: Vec<_> = dropped.iter().map(|(reason, n)| format!("{reason} {n}")).collect();
        let drops = if drops.is_empty() { "0".to_owned() } else { drops.join(", ") };
        output::line(format_args!(
            "port {interface} ({tenant}): {received_packets} packets from it, {delivered_packets} to it, \
             dropped {drops}{state}{}",
            function.as_ref().map(shown_function).unwrap_or_default()
        ));
        for (reason, remedy) in p.remedies() {
            output::line(format_args!("  {reason}: {remedy}"));
        }
    }
}

fn shown_function(function: &FunctionStatus) -> String {
    let device = function.device.as_ref().map(|device| format!(" ({device})")).unwrap_or_default();
    format!(", virtual function {}{device}", function.number)
}

/// Shows the tenants' switches.
pub(crate) fn show_switches(level: &str, switches: &[SwitchStatus]) {
    output::line(format_args!("level {level}"));
    for s in switches {
        let state = s.problem.as_deref().unwrap_or("works");
        let sockets = s.sockets.display();
        let restarts = if s.restarts == 0 { String::new() } else { format!(", {} restarts", s.restarts) };
        output::line(format_args!("switch {}: {state}{restarts} ({sockets})", s.name));
    }
}

/// Remove all switches, their interfaces and the policy
///
/// The VMs' interfaces and the uplink stay, connected with nothing. The switches' databases are removed, too.
///
/// Example: p4shield topology delete
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Delete {
    #[command(flatten)]
    source: Source,
}

impl Delete {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let removed = self.source.read()?.host.delete()?;
        if self.source.json {
            output::json(&removed)?;
        } else if removed.is_empty() {
            output::line("nothing to remove");
        } else {
            output::line(format_args!("removed: {}", removed.join(" ")));
        }
        Ok(Exit::Done)
    }
}
