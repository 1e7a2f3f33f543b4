//! `p4shield attach` and `detach`: has a switch load the library of an attachment, or no longer.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::ValueEnum;
use p4shield_install::{
    Change, DEFAULT_CONFIG, Finding, InstallError, Kind, OVS_UNIT, Outcome, Report, Request, Root, Target,
};
use serde::Serialize;

use p4shield_console::output;
use p4shield_console::{Exit, Refused};

/// Have an unmodified DPDK or AF_XDP switch load P4 Shield's library
///
/// Looks whether that can work and whether packets could go round it, says what to do about what it finds, and
/// prints the file that the switch's service needs: a systemd drop-in that sets LD_PRELOAD and P4SHIELD_CONFIG and
/// starts the daemon first. Nothing is changed without --apply, and no switch is restarted without --restart.
/// No file of a package is touched; `p4shield detach` takes it all away again.
///
/// Examples:
///
///   p4shield attach dpdk --check             whether it would work, and whether it does
///   p4shield attach dpdk --apply             install it; the next start of the switch loads it
///   p4shield attach dpdk --apply --restart   and restart the switch now: packets stop for seconds
///   p4shield attach dpdk -- dpdk-testpmd -a 0000:01:00.0   the command line for a program that is no service
///   p4shield attach xsk --unit my-switch.service --program /opt/switch/bin/switch
///
/// Exit code 3 if something stands in the way.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Attach {
    /// What the switch uses
    attachment: Word,
    /// Only look; print no file
    #[arg(long, conflicts_with = "apply")]
    check: bool,
    /// Install it
    #[arg(long)]
    apply: bool,
    /// Restart the switch when it is installed
    #[arg(long, requires = "apply")]
    restart: bool,
    #[command(flatten)]
    place: Place,
    /// The switch's program, if its unit does not tell
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// P4 Shield's library; found beside this program's installation if left out
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// The daemon's configuration, which the library reads, too
    #[arg(long, value_name = "FILE", default_value = DEFAULT_CONFIG)]
    config: PathBuf,
    /// The socket of Open vSwitch's database
    #[arg(long, value_name = "SOCKET", default_value = p4shield_ovsdb::DEFAULT_SOCKET)]
    ovsdb: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// A program that is started by hand or by another service manager, with its arguments
    #[arg(last = true, value_name = "PROGRAM", conflicts_with_all = ["apply", "unit", "program", "root"])]
    command: Vec<String>,
}

/// Have a switch no longer load P4 Shield's library
///
/// Says what would be removed; removes it with --apply. Afterwards nothing of it is left. The library stays in the
/// running switch until that is restarted.
///
/// Example: p4shield detach dpdk --apply --restart
#[derive(Debug, clap::Args)]
pub(crate) struct Detach {
    /// What was attached
    attachment: Word,
    /// Remove it
    #[arg(long)]
    apply: bool,
    /// Restart the switch when it is removed
    #[arg(long, requires = "apply")]
    restart: bool,
    #[command(flatten)]
    place: Place,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Which service, on which host.
#[derive(Debug, clap::Args)]
struct Place {
    /// The systemd unit of the switch
    #[arg(long, value_name = "UNIT", default_value = OVS_UNIT, value_parser = unit)]
    unit: String,
    /// A folder in place of /, for images and packages; what runs on this host is not asked then
    #[arg(long, value_name = "FOLDER", default_value = "/", value_parser = folder)]
    root: PathBuf,
}

/// The attachments that are libraries.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Word {
    /// DPDK: Open vSwitch with DPDK, testpmd, and any other that links DPDK dynamically
    Dpdk,
    /// AF_XDP sockets: Open vSwitch with type=afxdp, and others
    Xsk,
}

impl From<Word> for Kind {
    fn from(word: Word) -> Self {
        match word {
            Word::Dpdk => Self::Dpdk,
            Word::Xsk => Self::Xsk,
        }
    }
}

/// A service's name; `.service` may be left out, as systemctl has it.
fn unit(text: &str) -> Result<String, String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || ":-_.\\@".contains(c);
    match text.rsplit_once('.') {
        _ if text.is_empty() || text.starts_with('.') || !text.chars().all(allowed) => {
            Err("this is no name of a unit".into())
        }
        Some((_, "service")) => Ok(text.into()),
        Some((_, "socket" | "target" | "timer" | "mount")) => Err("this unit is no service".into()),
        _ => Ok(format!("{text}.service")),
    }
}

fn folder(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if path.is_dir() { Ok(path) } else { Err("there is no such folder".into()) }
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
    /// For a program that is no service.
    command: Option<String>,
    /// For a service.
    drop_in: Option<File<'a>>,
    installed: bool,
    findings: &'a [Finding],
    #[serde(flatten)]
    change: Change,
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
    change: Change,
}

impl Attach {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let report = p4shield_install::examine(&self.request()?);
        let problems = report.problems().count();
        let change = if self.apply && problems == 0 {
            p4shield_install::apply(&report, self.restart).map_err(refused)?
        } else {
            Change::default()
        };
        if self.json {
            output::json(&json(&report, change))?;
        } else {
            self.show(&report, change);
        }
        Ok(if problems == 0 { Exit::Done } else { Exit::Refused })
    }

    fn request(&self) -> anyhow::Result<Request> {
        let root = Root::new(&self.place.root);
        let absolute =
            |path: &Path| std::path::absolute(path).with_context(|| format!("{} is no path", path.display()));
        let asked = root.is_host() || self.ovsdb != Path::new(p4shield_ovsdb::DEFAULT_SOCKET);
        Ok(Request {
            kind: self.attachment.into(),
            target: match &self.command[..] {
                [] => Target::Unit(self.place.unit.clone()),
                words => Target::Command(words.to_vec()),
            },
            program: self.program.clone(),
            library: self.library.as_deref().map(absolute).transpose()?,
            config: absolute(&self.config)?,
            database: asked.then(|| self.ovsdb.clone()),
            root,
        })
    }

    fn show(&self, report: &Report, change: Change) {
        report.findings.iter().for_each(show_finding);
        if report.problems().next().is_some() {
            let said = if self.apply { "\nNothing was installed." } else { "\nThis does not work yet." };
            output::line(said);
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
        let (root, kind) = (Root::new(&self.place.root), Kind::from(self.attachment));
        let unit = self.place.unit;
        let drop_in = p4shield_install::installed(&root, kind, &unit);
        let change = if self.apply {
            p4shield_install::remove(&root, kind, &unit, self.restart).map_err(refused)?
        } else {
            Change::default()
        };
        if self.json {
            output::json(&Detached { attachment: kind.word(), switch: &unit, drop_in, change })?;
        } else if self.apply {
            show_change("removed", &Target::Unit(unit), drop_in.as_deref(), change);
        } else {
            match drop_in {
                Some(path) => output::line(format_args!("would be removed: {}", path.display())),
                None => output::line(format_args!("{unit} does not load the attachment {}", kind.word())),
            }
        }
        Ok(Exit::Done)
    }
}

/// What the host's own state forbids is a refusal, what fails is a failure.
fn refused(error: InstallError) -> anyhow::Error {
    match error {
        InstallError::Refused(_) | InstallError::NoService | InstallError::NotOurs { .. } => {
            Refused(error.to_string()).into()
        }
        other => other.into(),
    }
}

fn json(report: &Report, change: Change) -> Attached<'_> {
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
        Outcome::Good => "ok",
        Outcome::Note => "note",
        Outcome::Problem => "PROBLEM",
    };
    output::line(format_args!("{outcome:<8} {}: {}", f.check, f.what));
    if let Some(remedy) = &f.remedy {
        output::line(format_args!("         -> {remedy}"));
    }
}

/// What has to be there, for those who put it there themselves.
fn show_need(report: &Report) {
    if let Some(command) = report.command() {
        output::line(format_args!("\nStart it so:\n\n{command}"));
    }
    let Some(drop_in) = &report.drop_in else { return };
    let path = drop_in.path.display();
    if report.installed {
        output::line(format_args!("\n{path} is installed, and as it has to be."));
        return;
    }
    output::line(format_args!("\n{path} has to be:\n\n{}", drop_in.text));
    output::line("--apply installs it; the next start of the switch loads the library.");
}

fn show_change(what: &str, target: &Target, path: Option<&Path>, change: Change) {
    let unit = target.name();
    match path {
        Some(path) if change.changed => output::line(format_args!("\n{what}: {}", path.display())),
        _ => output::line(format_args!("\nnothing to do: it is {what} already")),
    }
    if change.restarted {
        output::line(format_args!("{unit} was restarted"));
    } else if change.changed {
        let reload = if change.reloaded { "" } else { "`systemctl daemon-reload`, then " };
        output::line(format_args!(
            "It counts from the switch's next start: {reload}`systemctl restart {unit}`"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::unit;

    #[test]
    fn a_unit_is_named_as_for_systemctl() {
        assert_eq!(unit("ovs-vswitchd").unwrap(), "ovs-vswitchd.service");
        assert_eq!(unit("switch@1.2.service").unwrap(), "switch@1.2.service");
        for wrong in ["", "..", "../x", "a/b", "x.socket", "a b"] {
            unit(wrong).unwrap_err();
        }
    }
}
