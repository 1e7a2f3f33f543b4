//! `p4shield switch table load`, and the files that `p4shield switch run` loads.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context;
use p4shield_console::{Exit, Refused, output};
use p4shield_p4switch::EntriesFile;
use p4shield_p4switch::api::{self, ApiError, Format, MAX_FILE};

use super::Socket;

/// Load entries, default actions and multicast groups from a file: all of it, or nothing
///
/// Formats:
///
///   commands  of the reference switch (s1-commands.txt): table_add, table_set_default, mc_mgrp_create, ...
///   runtime   JSON as in the P4 tutorials (s1-runtime.json): table_entries, multicast_group_entries
///   csv       one table, --table; the first line names the columns: keys, action, parameters, and priority
///
/// In a file of commands the smallest priority comes first, as in the reference switch; elsewhere the
/// greatest.
///
/// Examples:
///
///   p4shield switch table load s1-commands.txt
///   p4shield switch table load s1-runtime.json --replace
///   p4shield switch table load routes.csv --table routes
///
/// Exit code 3, and the first wrong line, if the switch refuses the file; everything is then as before.
/// Packets that pass meanwhile may see a part of the file.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Load {
    /// The file, at most 16 MiB; - is standard input
    file: PathBuf,
    #[command(flatten)]
    form: Form,
    /// Replace entries that match the same; otherwise one refuses the file
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    socket: Socket,
}

/// How to read a file.
#[derive(Debug, clap::Args)]
struct Form {
    /// The format; without it, .json is runtime, .csv is csv, and everything else commands
    #[arg(long, value_enum)]
    format: Option<FormatName>,
    /// The table, for CSV
    #[arg(long)]
    table: Option<String>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum FormatName {
    Commands,
    Runtime,
    Csv,
}

impl Form {
    fn of(self, file: &Path) -> Result<Format, Refused> {
        let format = self.format.unwrap_or_else(|| by_extension(file));
        match (format, self.table) {
            (FormatName::Csv, Some(table)) => Ok(Format::Csv { table }),
            (FormatName::Csv, None) => {
                Err(Refused("CSV has the entries of one table: name it with --table".to_owned()))
            }
            (_, Some(_)) => Err(Refused("--table is for CSV: this file names its tables itself".to_owned())),
            (FormatName::Commands, None) => Ok(Format::Commands),
            (FormatName::Runtime, None) => Ok(Format::Runtime),
        }
    }
}

fn by_extension(file: &Path) -> FormatName {
    match file.extension().and_then(|e| e.to_str()) {
        Some("json") => FormatName::Runtime,
        Some("csv") => FormatName::Csv,
        _ => FormatName::Commands,
    }
}

/// Reads a file of commands or of the tutorials' JSON, for a switch that starts.
pub(super) fn entries_file(file: &Path) -> anyhow::Result<EntriesFile> {
    let format = Form { format: None, table: None }.of(file)?;
    Ok(EntriesFile { name: file.display().to_string(), format, text: text(file)? })
}

/// Reads a file that is no longer than a switch accepts.
fn text(file: &Path) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    let mut read = |source: &mut dyn Read| source.take(MAX_FILE + 1).read_to_end(&mut bytes);
    let read = match file.as_os_str() == "-" {
        true => read(&mut std::io::stdin().lock()),
        false => std::fs::File::open(file).and_then(|mut source| read(&mut source)),
    };
    read.with_context(|| format!("cannot read {}", file.display()))?;
    let name = file.display();
    if bytes.len() as u64 > MAX_FILE {
        return Err(Refused(format!("{name} has more than {MAX_FILE} bytes; divide it")).into());
    }
    let text = String::from_utf8(bytes);
    Ok(text.map_err(|e| {
        Refused(format!("{name} is no text: byte {} is not UTF-8", e.utf8_error().valid_up_to()))
    })?)
}

impl Load {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let format = self.form.of(&self.file)?;
        match api::load(&self.socket.socket, format, text(&self.file)?, self.replace) {
            Ok(writes) => {
                output::note(format_args!("{writes} writes"));
                Ok(Exit::Done)
            }
            Err(ApiError::Refused { line, why }) => {
                Err(Refused(format!("{}:{line}: {why}; nothing was changed", self.file.display())).into())
            }
            Err(ApiError::Failed(why)) => Err(Refused(why).into()),
            Err(e) => Err(e.into()),
        }
    }
}
