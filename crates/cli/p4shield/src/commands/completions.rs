//! `p4shield completions` and `p4shield man`, generated from the definition of the command line.

use std::path::PathBuf;

use anyhow::Context;
use clap::CommandFactory;
use clap_complete::Shell;

use crate::Cli;
use p4shield_console::Exit;

/// Print shell completions
///
/// Example: p4shield completions bash > /etc/bash_completion.d/p4shield
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        clap_complete::generate(self.shell, &mut Cli::command(), "p4shield", &mut std::io::stdout());
        Ok(Exit::Done)
    }
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
