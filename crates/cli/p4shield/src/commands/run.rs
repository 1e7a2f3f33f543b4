//! `p4shield run`.

use std::path::PathBuf;

use p4shield_console::{Exit, Refused, output};
use p4shield_daemon::api::{self, Answer, Command as Request};
use p4shield_daemon::config::{Config, ConfigError};

use super::verify;

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
pub(crate) struct Args {
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

impl Args {
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
        let verified =
            p4shield_uservm::objects::load(objects).and_then(|linked| verify::verify(&linked, false));
        verified.map_err(|e| format!("{e:#}"))?.map(drop).map_err(|refusal| refusal.to_string())
    });
    if problems.is_empty() {
        return Ok(());
    }
    Err(Refused::because(&ConfigError::Refused { file: config.file.clone(), problems }).into())
}
