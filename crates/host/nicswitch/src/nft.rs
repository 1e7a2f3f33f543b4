//! The program `nft`, whose input and output are JSON (`man 5 libnftables-json`). It is run, not linked: the
//! libraries of nftables are under the GPL.

use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::NicError;

/// Where distributions have it. The search path may be a user's.
const FOLDERS: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];
/// Its standard input, for which it takes `/dev/stdin` by itself, a link that not each host has.
const INPUT: &str = "/proc/self/fd/0";
/// The longest part of an error message that is passed on, in characters.
const LONGEST: usize = 400;

/// The program, for one table.
#[derive(Debug)]
pub(crate) struct Nft<'a> {
    table: &'a str,
    program: PathBuf,
}

impl<'a> Nft<'a> {
    pub(crate) fn find(table: &'a str) -> Result<Self, NicError> {
        let found = FOLDERS.iter().map(|folder| Path::new(folder).join("nft")).find(|path| path.exists());
        let program = found.ok_or_else(|| NicError::Rules {
            table: table.to_owned(),
            reason: "there is no program nft; install the package nftables".to_owned(),
        })?;
        Ok(Self { table, program })
    }

    /// Executes commands, all or none.
    pub(crate) fn execute(&self, commands: Vec<Value>) -> Result<(), NicError> {
        if commands.is_empty() {
            return Ok(());
        }
        let text = json!({"nftables": commands}).to_string();
        self.run(&["-j", "-f", INPUT], &text).map(drop)
    }

    /// Returns the objects that a command lists, as pairs of kind and properties.
    pub(crate) fn list(&self, words: &[&str]) -> Result<Vec<(String, Value)>, NicError> {
        let output = self.run(&[&["-j", "list"], words].concat(), "")?;
        let strange = || self.refusal("it answers with what is no list; use nftables 1.0.6 or newer");
        let answer: Value = serde_json::from_slice(&output.stdout).map_err(|_| strange())?;
        let objects = answer.get("nftables").and_then(Value::as_array).ok_or_else(strange)?;
        let pairs = objects.iter().filter_map(Value::as_object).flatten();
        Ok(pairs.map(|(kind, object)| (kind.clone(), object.clone())).collect())
    }

    fn run(&self, words: &[&str], input: &str) -> Result<Output, NicError> {
        let failed = |error: std::io::Error| self.refusal(&error.to_string());
        let mut command = Command::new(&self.program);
        command.args(words).env_clear().current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let written = child.stdin.take().map_or(Ok(()), |mut pipe| pipe.write_all(input.as_bytes()));
        let output = child.wait_with_output().map_err(failed)?;
        // It may end without reading everything, and then says why.
        written
            .or_else(|e| if e.kind() == ErrorKind::BrokenPipe { Ok(()) } else { Err(e) })
            .map_err(failed)?;
        if output.status.success() {
            return Ok(output);
        }
        let said: String = String::from_utf8_lossy(&output.stderr).trim().chars().take(LONGEST).collect();
        Err(self.refusal(&said))
    }

    fn refusal(&self, said: &str) -> NicError {
        let program = self.program.display();
        let reason = format!(
            "{program} fails: {said:?}; the kernel needs nf_tables with rules of network devices in both \
             directions (Linux 5.16), and the caller CAP_NET_ADMIN"
        );
        NicError::Rules { table: self.table.to_owned(), reason }
    }
}
