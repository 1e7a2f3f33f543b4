//! `p4shield completions` and `p4shield man`, generated from the definition of the command line.

use std::path::PathBuf;

use anyhow::Context;
use clap::CommandFactory;
use clap_complete::env::Shells;
use clap_complete::{CompleteEnv, Shell};

use crate::Cli;
use p4shield_console::Exit;

/// Print shell completions
///
/// The shell runs p4shield to complete a word: commands, options, and the names of the program of a switch
/// that runs, such as its tables, their keys and actions.
///
/// Example: p4shield completions bash > /etc/bash_completion.d/p4shield
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

/// The variable by which a shell asks for completions; its value is the shell's name.
const VARIABLE: &str = "P4SHIELD_COMPLETE";

impl Completions {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let (shells, name) = (Shells::builtins(), "p4shield");
        let shell = shells.completer(&self.shell.to_string()).context("no completions for this shell")?;
        shell.write_registration(VARIABLE, name, name, name, &mut std::io::stdout())?;
        Ok(Exit::Done)
    }
}

/// Answers a shell that asks for completions, and ends the process.
pub(crate) fn answer_shell() {
    CompleteEnv::with_factory(Cli::command).var(VARIABLE).complete();
}

/// Write man pages into a folder
///
/// One for each command.
///
/// Example: p4shield man /usr/local/share/man/man1
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Man {
    /// The folder; created if it does not exist
    folder: PathBuf,
}

impl Man {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let failed = || format!("cannot write man pages into {}", self.folder.display());
        std::fs::create_dir_all(&self.folder).with_context(failed)?;
        clap_mangen::generate_to(Cli::command(), &self.folder).with_context(failed)?;
        Ok(Exit::Done)
    }
}
