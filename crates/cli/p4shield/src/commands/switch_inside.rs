//! `p4shield switch-inside`: `p4shield switch run --placement pipeline` starts it, never a user.

use p4shield_console::{Exit, signals};
use p4shield_control::Measure;
use p4shield_p4switch::{InsideOptions, serve};

use super::p4vm::measure;

/// The compartment of a P4 switch. `p4shield switch run` starts it and hands ports and clients to it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// User to change to when started as root
    #[arg(long)]
    uid: u32,
    /// A sandbox measure that the kernel may lack; may be repeated
    #[arg(long, value_name = "MEASURE", value_parser = measure)]
    allow_missing: Vec<Measure>,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let stop = signals::stop_flag()?;
        let options = InsideOptions { uid: self.uid, allow_missing: self.allow_missing };
        serve(&options, &stop)?;
        Ok(Exit::Done)
    }
}
