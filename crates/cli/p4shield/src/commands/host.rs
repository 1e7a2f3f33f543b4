//! `p4shield run`, `status`, `metrics` and `program`: the host daemon and its clients.

use std::io::Read;
use std::path::PathBuf;

use anyhow::Context;
use clap::Subcommand;
use p4shield_control::MAX_OBJECTS;
use p4shield_daemon::api::{Answer, Command as Request, ObjectBytes};
use p4shield_daemon::config::{Config, ConfigError};
use p4shield_daemon::status::{DirectionStatus, HandshakeStatus, IngressRule, KeyStatus, State, Status};
use p4shield_daemon::view::What;
use p4shield_daemon::{ProgramSource, SwitchStatus, api};

use p4shield_console::{Exit, Refused, output};

use super::program_state::Show;
use super::{history, key, verify};

/// Run the host daemon
///
/// Runs a P4 VM for each tenant, serves the wires and the switches that load P4 Shield's library, and
/// answers `p4shield status`, `metrics`, `program` and `reload`. SIGTERM and SIGINT stop it; at SIGHUP it
/// applies what changed in the configuration.
///
/// Examples:
///
///   p4shield run --check --config p4shield.toml    check all that it would use, then exit
///   p4shield run --check --live                    compare it with the running daemon and switches, too
///   p4shield run --config p4shield.toml
///
/// Exit code 3 if the configuration is refused, 1 if --live finds a problem.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Run {
    /// The configuration file
    #[arg(long, value_name = "FILE", default_value = "/etc/p4shield/p4shield.toml")]
    config: PathBuf,
    /// Check the configuration and all files that it names, then exit: keys, programs, pages, folders
    #[arg(long)]
    check: bool,
    /// With --check: open none of the files that the configuration names
    #[arg(long, requires = "check")]
    text_only: bool,
    /// With --check: also compare the configuration with the running daemon, its switches and their
    /// database, and show what a reload would change
    #[arg(long, requires = "check")]
    live: bool,
}

/// The daemon's socket.
#[derive(Debug, clap::Args)]
pub(super) struct Socket {
    /// The daemon's socket: `daemon.socket` of the configuration
    #[arg(long, value_name = "PATH", default_value = "/run/p4shield/p4shield.sock")]
    pub(super) socket: PathBuf,
}

/// Show the status of the daemon and its P4 VMs
///
/// Lists what runs, each problem and its remedy.
///
/// Examples:
///
///   p4shield status
///   p4shield status --json | jq .problems
///
/// Exit code 1 if there is a problem.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct ShowStatus {
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    socket: Socket,
}

/// Print Prometheus metrics
///
/// docs/reference/metrics.md explains each metric. With `daemon.metrics` in the configuration the daemon
/// also serves them over HTTP.
///
/// Example: p4shield metrics | grep dropped
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Metrics {
    #[command(flatten)]
    socket: Socket,
}

/// Replace programs while traffic flows, and show their counters, registers and tables
///
/// The old program runs until the new one is linked, verified and compiled; no packet is lost. A
/// program that is loaded here replaces the configuration's, also after a reload or restart, until
/// `revert`; `p4shield status` shows it.
/// Showing a program's state disturbs no packet.
///
/// Examples:
///
///   p4shield program load alice web ingress guard.o
///   p4shield program load alice web both web.bundle
///   p4shield program load --temporary alice web ingress trace.o
///   p4shield program check alice web ingress guard.o --socket /run/p4shield/tenants/alice.sock
///   p4shield program unload alice web egress
///   p4shield program revert alice web ingress
///   p4shield program history alice web ingress
///   p4shield program counters web --watch
///   p4shield program tables web --direction ingress --json
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Program {
    #[command(subcommand)]
    command: ProgramCommand,
}

#[derive(Debug, Subcommand)]
enum ProgramCommand {
    /// Link, verify and load objects; the old program runs until the new one is ready
    Load {
        /// The tenant
        tenant: String,
        /// The user VM
        vm: String,
        /// ingress (towards the VM) or egress (from it); both for a bundle
        #[arg(value_parser = ["ingress", "egress", "both"])]
        direction: String,
        /// eBPF objects: the program's first, then those of its C functions; or one bundle
        #[arg(required = true)]
        objects: Vec<PathBuf>,
        /// Return to the previous program at the next reload or restart of the daemon
        #[arg(long)]
        temporary: bool,
        #[command(flatten)]
        socket: Socket,
    },
    /// Link and verify objects in the tenant's P4 VM without loading them; prints the digest
    Check {
        /// The tenant
        tenant: String,
        /// The user VM
        vm: String,
        /// ingress (towards the VM) or egress (from it); both for a bundle
        #[arg(value_parser = ["ingress", "egress", "both"])]
        direction: String,
        /// eBPF objects: the program's first, then those of its C functions; or one bundle
        #[arg(required = true)]
        objects: Vec<PathBuf>,
        #[command(flatten)]
        socket: Socket,
    },
    /// Remove a program; the tenant's `no_program` then applies (with `skip` packets are dropped until
    /// the program is removed from the configuration and `p4shield reload` has run)
    Unload {
        /// The tenant
        tenant: String,
        /// The user VM
        vm: String,
        /// ingress or egress; both for a bundle
        #[arg(value_parser = ["ingress", "egress", "both"])]
        direction: String,
        #[command(flatten)]
        socket: Socket,
    },
    /// Return to the configuration's program
    Revert {
        /// The tenant
        tenant: String,
        /// The user VM
        vm: String,
        /// ingress or egress; both for a bundle
        #[arg(value_parser = ["ingress", "egress", "both"])]
        direction: String,
        #[command(flatten)]
        socket: Socket,
    },
    /// List the commands that changed a program: when, by which user, from which files
    History {
        /// The tenant
        tenant: String,
        /// The user VM
        vm: String,
        /// ingress or egress; both for a bundle
        #[arg(value_parser = ["ingress", "egress", "both"])]
        direction: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        socket: Socket,
    },
    /// Show the counters of a VM's programs, also those in the entries of tables
    Counters {
        #[command(flatten)]
        show: Show,
        #[command(flatten)]
        socket: Socket,
    },
    /// Show the registers and meters of a VM's programs, and the arrays of their C functions
    Registers {
        #[command(flatten)]
        show: Show,
        #[command(flatten)]
        socket: Socket,
    },
    /// Show the tables of a VM's programs with entries and default actions, and the maps of their C functions
    Tables {
        #[command(flatten)]
        show: Show,
        #[command(flatten)]
        socket: Socket,
    },
}

impl Run {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        if self.check {
            let config = Config::load(&self.config).map_err(|e| Refused::because(&e))?;
            if !self.text_only {
                check_files(&config)?;
            }
            output::line(format_args!(
                "{} is valid: {} tenants, {} wires, {} ports",
                self.config.display(),
                config.tenants.len(),
                config.wires.len(),
                config.ports.len()
            ));
            return if self.live { compare_live(&config) } else { Ok(Exit::Done) };
        }
        match p4shield_daemon::run(&self.config) {
            Err(p4shield_daemon::DaemonError::Config(e)) => Err(Refused::because(&e).into()),
            other => other.map(|()| Exit::Done).map_err(Into::into),
        }
    }
}

/// Shows what the running daemon says of the configuration.
fn compare_live(config: &Config) -> anyhow::Result<Exit> {
    let file = std::path::absolute(&config.file)?;
    match api::ask(&config.daemon.socket, &Request::Preview { file }) {
        Ok(Answer::Reloaded(report)) => {
            output::line(&report);
            Ok(if report.problems.is_empty() { Exit::Done } else { Exit::Failed })
        }
        Ok(_) => Err(api::ApiError::Unexpected.into()),
        Err(api::ApiError::Failed(why)) => Err(Refused(why).into()),
        Err(e) => Err(e.into()),
    }
}

/// Refuses a configuration that names files which `run` could not use.
fn check_files(config: &Config) -> anyhow::Result<()> {
    let problems = p4shield_daemon::preflight(config, &mut |objects| {
        let verified = verify::load(objects).and_then(|linked| verify::verify(&linked, false));
        verified.map_err(|e| format!("{e:#}"))?.map(drop).map_err(|refusal| refusal.to_string())
    });
    if problems.is_empty() {
        return Ok(());
    }
    Err(Refused::because(&ConfigError::Refused { file: config.file.clone(), problems }).into())
}

impl ShowStatus {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let status = api::status(&self.socket.socket)?;
        if self.json {
            output::json(&status)?;
        } else {
            show(&status);
        }
        Ok(if status.advice.is_empty() { Exit::Done } else { Exit::Failed })
    }
}

impl Metrics {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        output::text(&api::metrics(&self.socket.socket)?);
        Ok(Exit::Done)
    }
}

impl Program {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let (request, socket) = match self.command {
            ProgramCommand::Load { tenant, vm, direction, objects, temporary, socket } => {
                let contents = read(&objects)?;
                let objects = objects.iter().map(std::path::absolute).collect::<Result<_, _>>()?;
                (Request::Load { tenant, vm, direction, objects, contents, temporary }, socket)
            }
            ProgramCommand::Check { tenant, vm, direction, objects, socket } => {
                (Request::Check { tenant, vm, direction, contents: read(&objects)? }, socket)
            }
            ProgramCommand::Unload { tenant, vm, direction, socket } => {
                let (objects, contents) = (Vec::new(), Vec::new());
                (Request::Load { tenant, vm, direction, objects, contents, temporary: false }, socket)
            }
            ProgramCommand::Revert { tenant, vm, direction, socket } => {
                (Request::Revert { tenant, vm, direction }, socket)
            }
            ProgramCommand::History { tenant, vm, direction, json, socket } => {
                return history::show(&socket.socket, Request::History { tenant, vm, direction }, json);
            }
            ProgramCommand::Counters { show, socket } => {
                return show.run(What::Counters, &socket.socket).map(|()| Exit::Done);
            }
            ProgramCommand::Registers { show, socket } => {
                return show.run(What::Registers, &socket.socket).map(|()| Exit::Done);
            }
            ProgramCommand::Tables { show, socket } => {
                return show.run(What::Tables, &socket.socket).map(|()| Exit::Done);
            }
        };
        match api::ask(&socket.socket, &request) {
            Ok(Answer::Checked(program)) => output::line(program),
            Ok(Answer::Loaded { program, warning }) => {
                output::line(program);
                warning.iter().for_each(output::note);
            }
            Ok(_) => return Err(api::ApiError::Unexpected.into()),
            Err(api::ApiError::Failed(why)) => return Err(Refused(why).into()),
            Err(e) => return Err(e.into()),
        }
        Ok(Exit::Done)
    }
}

/// Reads objects for a request: a tenant's files are not the daemon's.
fn read(objects: &[PathBuf]) -> anyhow::Result<Vec<ObjectBytes>> {
    let read = |path: &PathBuf| {
        let limit = MAX_OBJECTS as u64 + 1;
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        file.take(limit)
            .read_to_end(&mut bytes)
            .with_context(|| format!("cannot read {}", path.display()))?;
        Ok(ObjectBytes(bytes))
    };
    let contents = objects.iter().map(read).collect::<anyhow::Result<Vec<_>>>()?;
    if contents.iter().map(|ObjectBytes(bytes)| bytes.len()).sum::<usize>() > MAX_OBJECTS {
        anyhow::bail!("the objects of a program have at most {MAX_OBJECTS} bytes");
    }
    Ok(contents)
}

fn show(s: &Status) {
    output::line(format_args!(
        "p4shield {} (process {}), {}; cgroup: {}",
        s.version, s.pid, s.config, s.cgroup
    ));
    for t in &s.tenants {
        let state = match (t.state, t.pid) {
            (State::Running, Some(pid)) if t.compartment == "vm" => {
                let tee = if t.tee == "none" { "" } else { &format!(" with {}", t.tee) };
                format!("P4 VM runs as virtual machine{tee}, process {pid}")
            }
            (State::Running, Some(pid)) => format!("P4 VM runs as process {pid}"),
            (State::Starting, _) => "P4 VM starts".into(),
            (State::Restarting, _) => "P4 VM restarts".into(),
            _ => "P4 VM does not run".into(),
        };
        output::line(format_args!("\ntenant {}: {state}, {} restarts", t.name, t.restarts));
        if let Some(error) = &t.error {
            output::line(format_args!("  last error: {error}"));
        }
        for vm in &t.vms {
            output::line(format_args!(
                "  VM {}: information {} ({} snapshots, {} forged, {} replayed, {} times stale), \
                 {} log records; ingress is judged {}",
                vm.name,
                vm.info.status,
                vm.info.accepted,
                vm.info.forged,
                vm.info.replayed,
                vm.info.stale,
                vm.log_records,
                match vm.ingress_rule {
                    IngressRule::OwnPort => "at the VM's own port",
                    IngressRule::Arrival => "by address, where packets arrive",
                }
            ));
            vm.handshake.iter().for_each(show_handshake);
            vm.keys.iter().for_each(show_keys);
            show_direction("ingress", &vm.ingress);
            show_direction("egress", &vm.egress);
        }
    }
    for switch in &s.switches {
        show_switch(switch);
    }
    for advice in &s.advice {
        output::line(format_args!("\n! {advice}"));
    }
}

/// Shows the session that a VM's key comes from.
fn show_handshake(handshake: &HandshakeStatus) {
    let Some(s) = &handshake.session else {
        return output::line("    keys from a handshake: no session yet");
    };
    let attested = if s.is_attested { "evidence was presented" } else { "not attested" };
    let agent = if s.is_agent_known { "known agent" } else { "any agent" };
    let transcript = s.transcript.get(..16).unwrap_or_default();
    output::line(format_args!(
        "    keys from a handshake {} s ago, session {transcript}: {attested}, {agent}",
        s.age_s
    ));
}

/// Shows a VM's key, and its rotation while one goes on.
fn show_keys(keys: &KeyStatus) {
    let word = |follows| if follows { "follows" } else { "has the previous one" };
    let Some(until) = keys.window_until else {
        return output::line(format_args!("    key {}", keys.key));
    };
    output::line(format_args!(
        "    key {} rotates, both accepted for {} s more: agent {}, log {}",
        keys.key,
        key::left(until),
        word(keys.agent_follows),
        word(keys.log_follows)
    ));
}

fn show_switch(s: &SwitchStatus) {
    output::line(format_args!(
        "\nswitch {} (process {}, user {}), attachment {}",
        s.application, s.pid, s.uid, s.kind
    ));
    s.notes.iter().for_each(|note| output::line(format_args!("  {note}")));
    for p in &s.ports {
        let name = match &p.interface {
            Some(interface) if *interface != p.name => format!("{interface} ({})", p.name),
            _ => p.name.clone(),
        };
        let owner = match (&p.tenant, &p.vm) {
            (Some(tenant), Some(vm)) => format!("of tenant {tenant}, VM {vm}"),
            _ => p.role.clone(),
        };
        let state = match &p.why {
            None if p.transmit_queues > 0 => {
                format!("mediated, {} receive and {} transmit queues", p.queues, p.transmit_queues)
            }
            None => format!("mediated, {} queues", p.queues),
            Some(why) => format!("NOT mediated: {why}"),
        };
        output::line(format_args!("  port {name}, {owner}: {state}"));
        if p.zero_copy_queues > 0 {
            let queues = p.zero_copy_queues;
            output::line(format_args!(
                "    zero-copy on {queues} of them: the P4 VM reads headers in the switch's packet memory"
            ));
        }
        p.bypasses.iter().for_each(|b| output::line(format_args!("    BYPASS: {b}")));
        p.notes.iter().for_each(|n| output::line(format_args!("    {n}")));
    }
}

fn show_direction(name: &str, d: &DirectionStatus) {
    if d.skipped {
        output::line(format_args!(
            "    {name:<7} no program: packets bypass the P4 VM (no_program = \"skip\")"
        ));
        return;
    }
    let program = d.program.as_deref().map_or("no program", |digest| &digest[..digest.len().min(12)]);
    let reasons =
        |list: &[(String, u64)]| -> String { list.iter().map(|(why, n)| format!(", {n} {why}")).collect() };
    let dropped: u64 = d.dropped.iter().map(|r| r.1).sum();
    output::line(format_args!(
        "    {name:<7} {program}: {} packets, {} passed, {dropped} dropped{}{}",
        d.packets,
        d.passed,
        reasons(&d.dropped),
        reasons(&d.let_through)
    ));
    if let ProgramSource::Command(record) = &d.source {
        output::line(format_args!("            {}", history::line(record)));
    }
    if let Some(error) = &d.error {
        output::line(format_args!("            {error}"));
    }
}
