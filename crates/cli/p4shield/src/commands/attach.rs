//! `p4shield attach` and `detach`: installs and removes an attachment's library in a switch's service.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::ValueEnum;
use p4shield_install::{
    DEFAULT_CONFIG, Finding, HostChanges, InstallError, OVS_UNIT, PreloadedAttachment, Report, Request, Root,
    Severity, Target,
};
use serde::Serialize;

use p4shield_console::{Exit, Refused, output};

/// Load P4 Shield's library into an unmodified DPDK or AF_XDP switch
///
/// Checks the switch and its host, reports each problem with its remedy, also where packets could
/// bypass the library, and prints the systemd drop-in that the switch's service needs: it sets
/// LD_PRELOAD and P4SHIELD_CONFIG and starts the daemon first. Changes files only with --apply and
/// restarts the switch only with --restart. Never changes a package's files; `p4shield detach`
/// removes the drop-in.
///
/// Examples:
///
///   p4shield attach dpdk --check             check the host, change nothing
///   p4shield attach dpdk --apply             install; the switch's next start loads the library
///   p4shield attach dpdk --apply --restart   restart the switch, too: traffic stops for seconds
///   p4shield attach dpdk -- dpdk-testpmd -a 0000:01:00.0   print the command line to start by hand
///   p4shield attach xsk --unit my-switch.service --program /opt/switch/bin/switch
///
/// Exit code 3 if a check finds a problem.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Attach {
    /// How the switch reads packets
    attachment: Attachment,
    /// Check only; do not print the drop-in
    #[arg(long, conflicts_with = "apply")]
    check: bool,
    /// Install the drop-in
    #[arg(long)]
    apply: bool,
    /// Restart the switch after the installation
    #[arg(long, requires = "apply")]
    restart: bool,
    #[command(flatten)]
    service: Service,
    /// The switch's executable, if its unit does not name it
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// P4 Shield's library; default: the one installed with this binary
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// The configuration of daemon and library
    #[arg(long, value_name = "FILE", default_value = DEFAULT_CONFIG)]
    config: PathBuf,
    /// The socket of Open vSwitch's database
    #[arg(long, value_name = "SOCKET", default_value = p4shield_ovsdb::DEFAULT_SOCKET)]
    ovsdb: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// A switch started by hand or by another service manager, with its arguments
    #[arg(last = true, value_name = "PROGRAM", conflicts_with_all = ["apply", "unit", "program", "root"])]
    command: Vec<String>,
}

/// Remove P4 Shield's library from a switch
///
/// Prints what it would remove; with --apply, removes it. The library stays in the running switch
/// until the switch restarts.
///
/// Example: p4shield detach dpdk --apply --restart
#[derive(Debug, clap::Args)]
pub(crate) struct Detach {
    /// The attachment to remove
    attachment: Attachment,
    /// Remove the drop-in
    #[arg(long)]
    apply: bool,
    /// Restart the switch after the removal
    #[arg(long, requires = "apply")]
    restart: bool,
    #[command(flatten)]
    service: Service,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The switch's service and its host.
#[derive(Debug, clap::Args)]
struct Service {
    /// The systemd unit of the switch
    #[arg(long, value_name = "UNIT", default_value = OVS_UNIT, value_parser = unit)]
    unit: String,
    /// A folder in place of /, for images and packages; the running host is not checked
    #[arg(long, value_name = "FOLDER", default_value = "/", value_parser = folder)]
    root: PathBuf,
}

/// The attachments that are libraries.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Attachment {
    /// DPDK: Open vSwitch with DPDK, testpmd, and any other that links DPDK dynamically
    Dpdk,
    /// AF_XDP sockets: Open vSwitch with type=afxdp, and others
    Xsk,
}

impl From<Attachment> for PreloadedAttachment {
    fn from(attachment: Attachment) -> Self {
        match attachment {
            Attachment::Dpdk => Self::Dpdk,
            Attachment::Xsk => Self::Xsk,
        }
    }
}

/// Parses a service's name; as for systemctl, `.service` is optional.
fn unit(text: &str) -> Result<String, String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || ":-_.\\@".contains(c);
    match text.rsplit_once('.') {
        _ if text.is_empty() || text.starts_with('.') || !text.chars().all(allowed) => {
            Err("this is not the name of a systemd unit".into())
        }
        Some((_, "service")) => Ok(text.into()),
        Some((_, "socket" | "target" | "timer" | "mount")) => Err("this unit is not a service".into()),
        _ => Ok(format!("{text}.service")),
    }
}

fn folder(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if path.is_dir() { Ok(path) } else { Err("the folder does not exist".into()) }
}

/// What `attach --json` prints.
#[derive(Serialize)]
struct Attached<'a> {
    attachment: &'static str,
    switch: &'a str,
    program: Option<&'a Path>,
    library: &'a Path,
    config: &'a Path,
    environment: std::collections::BTreeMap<&'a str, &'a str>,
    /// For a switch that is started by hand.
    command: Option<String>,
    /// For a service.
    drop_in: Option<File<'a>>,
    installed: bool,
    findings: &'a [Finding],
    #[serde(flatten)]
    change: HostChanges,
}

#[derive(Serialize)]
struct File<'a> {
    path: &'a Path,
    text: &'a str,
}

/// What `detach --json` prints.
#[derive(Serialize)]
struct Detached<'a> {
    attachment: &'static str,
    switch: &'a str,
    drop_in: Option<PathBuf>,
    #[serde(flatten)]
    change: HostChanges,
}

impl Attach {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let report = p4shield_install::examine(&self.request()?);
        let problems = report.problems().count();
        let change = if self.apply && problems == 0 {
            p4shield_install::apply(&report, self.restart).map_err(refused)?
        } else {
            HostChanges::default()
        };
        if self.json {
            output::json(&json(&report, change))?;
        } else {
            self.show(&report, change);
        }
        Ok(if problems == 0 { Exit::Done } else { Exit::Refused })
    }

    fn request(&self) -> anyhow::Result<Request> {
        let root = Root::new(&self.service.root);
        let absolute = |path: &Path| {
            std::path::absolute(path).with_context(|| format!("{} is not a path", path.display()))
        };
        let ask_database = root.is_host() || self.ovsdb != Path::new(p4shield_ovsdb::DEFAULT_SOCKET);
        Ok(Request {
            kind: self.attachment.into(),
            target: match &self.command[..] {
                [] => Target::Unit(self.service.unit.clone()),
                words => Target::Command(words.to_vec()),
            },
            program: self.program.clone(),
            library: self.library.as_deref().map(absolute).transpose()?,
            config: absolute(&self.config)?,
            database: ask_database.then(|| self.ovsdb.clone()),
            root,
        })
    }

    fn show(&self, report: &Report, change: HostChanges) {
        report.findings.iter().for_each(show_finding);
        if report.problems().next().is_some() {
            let result =
                if self.apply { "\nNothing was installed." } else { "\nFix the problems above first." };
            output::line(result);
        } else if self.apply {
            show_change(
                "installed",
                &report.target,
                report.drop_in.as_ref().map(|d| d.path.as_path()),
                change,
            );
        } else if !self.check {
            show_need(report);
        }
    }
}

impl Detach {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let (root, kind) = (Root::new(&self.service.root), PreloadedAttachment::from(self.attachment));
        let unit = self.service.unit;
        let drop_in = p4shield_install::installed(&root, kind, &unit);
        let change = if self.apply {
            p4shield_install::remove(&root, kind, &unit, self.restart).map_err(refused)?
        } else {
            HostChanges::default()
        };
        if self.json {
            output::json(&Detached { attachment: kind.word(), switch: &unit, drop_in, change })?;
        } else if self.apply {
            show_change("removed", &Target::Unit(unit), drop_in.as_deref(), change);
        } else {
            match drop_in {
                Some(path) => output::line(format_args!("--apply removes {}", path.display())),
                None => output::line(format_args!("{unit} does not load the attachment {}", kind.word())),
            }
        }
        Ok(Exit::Done)
    }
}

/// An error that the host's configuration causes is a refusal; any other is a failure.
fn refused(error: InstallError) -> anyhow::Error {
    match error {
        InstallError::Refused(_) | InstallError::NoService | InstallError::NotOurs { .. } => {
            Refused(error.to_string()).into()
        }
        other => other.into(),
    }
}

fn json(report: &Report, change: HostChanges) -> Attached<'_> {
    Attached {
        attachment: report.kind.word(),
        switch: report.target.name(),
        program: report.program.as_deref(),
        library: &report.library,
        config: &report.config,
        environment: report.environment.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect(),
        command: report.command(),
        drop_in: report.drop_in.as_ref().map(|d| File { path: &d.path, text: &d.text }),
        installed: report.installed || change.changed,
        findings: &report.findings,
        change,
    }
}

fn show_finding(f: &Finding) {
    let outcome = match f.outcome {
        Severity::Good => "ok",
        Severity::Note => "note",
        Severity::Problem => "PROBLEM",
    };
    output::line(format_args!("{outcome:<8} {}: {}", f.check, f.what));
    if let Some(remedy) = &f.remedy {
        output::line(format_args!("         -> {remedy}"));
    }
}

/// Shows the drop-in or the command line, for an operator who installs it by other means.
fn show_need(report: &Report) {
    if let Some(command) = report.command() {
        output::line(format_args!("\nStart the switch with:\n\n{command}"));
    }
    let Some(drop_in) = &report.drop_in else { return };
    let path = drop_in.path.display();
    if report.installed {
        output::line(format_args!("\n{path} is installed and up to date."));
        return;
    }
    output::line(format_args!("\nContents of {path}:\n\n{}", drop_in.text));
    output::line("--apply installs it; the switch's next start loads the library.");
}

fn show_change(what: &str, target: &Target, path: Option<&Path>, change: HostChanges) {
    let unit = target.name();
    match path {
        Some(path) if change.changed => output::line(format_args!("\n{what}: {}", path.display())),
        _ => output::line(format_args!("\nnothing to do: already {what}")),
    }
    if change.restarted {
        output::line(format_args!("{unit} was restarted"));
    } else if change.changed {
        let reload = if change.reloaded { "" } else { "`systemctl daemon-reload`, then " };
        output::line(format_args!(
            "The change takes effect at the switch's next start: {reload}`systemctl restart {unit}`"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::unit;

    #[test]
    fn unit_names_are_parsed_as_by_systemctl() {
        assert_eq!(unit("ovs-vswitchd").unwrap(), "ovs-vswitchd.service");
        assert_eq!(unit("switch@1.2.service").unwrap(), "switch@1.2.service");
        for wrong in ["", "..", "../x", "a/b", "x.socket", "a b"] {
            unit(wrong).unwrap_err();
        }
    }
}
