//! `p4shield verify`, and the child process that runs the verifier.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Context;
use p4shield_bpf::verify::{Budget, Cache, Isolated, Limits, Refusal, Report, serve_stdio};
use p4shield_bpf::{Linked, Verified};
use serde::Serialize;

use p4shield_console::{Exit, Refused, output};
use p4shield_uservm::objects::load;

/// Verify that a program is safe to run, as a P4 VM does
///
/// The first object holds the program; the others hold the tenant's own functions that it calls. The
/// verifier runs in a child process with limits on time and memory; the result is cached in the user's
/// cache folder.
///
/// Examples:
///
///   p4shield verify guard.o
///   p4shield verify guard.o extern.o    the program calls functions of extern.o
///
/// Exit code 3 if the program is refused; the error names instruction, source line and reason.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// eBPF objects, of `p4shield compile` or `clang -target bpf`
    #[arg(required = true)]
    objects: Vec<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Ignore the cached result
    #[arg(long)]
    no_cache: bool,
}

/// The hidden command that `verify` starts: serves the verifier's protocol on standard input and output.
#[derive(Debug, clap::Args)]
pub(crate) struct Child;

#[derive(Serialize)]
struct Verification<'a> {
    accepted: bool,
    digest: String,
    instructions: usize,
    maps: Vec<&'a str>,
    report: Option<&'a Report>,
    refusal: Option<String>,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let linked = load(&self.objects)?;
        let result = verify(&linked, self.no_cache)?;
        let verification = Verification {
            accepted: result.is_ok(),
            digest: hex::encode(linked.digest()),
            instructions: linked.insns.len(),
            maps: linked.maps.iter().map(|m| m.name.as_str()).collect(),
            report: result.as_ref().ok(),
            refusal: result.as_ref().err().map(ToString::to_string),
        };
        if self.json {
            output::json(&verification)?;
            return Ok(if verification.accepted { Exit::Done } else { Exit::Refused });
        }
        match &result {
            Ok(report) => {
                output::line(format_args!(
                    "accepted: {} instructions, {} maps, verified in {:.0?}",
                    verification.instructions,
                    verification.maps.len(),
                    report.elapsed
                ));
                output::line(format_args!("digest {}", verification.digest));
                Ok(Exit::Done)
            }
            Err(refusal) => Err(Refused(refusal.to_string()).into()),
        }
    }
}

/// Verifies a program in a child process, unless the user's cache knows the result.
pub(super) fn verify(linked: &Linked, no_cache: bool) -> anyhow::Result<Result<Report, Refusal>> {
    let (mut cache, mut isolated) = (cache(no_cache), verifier()?);
    let limits = Limits::default();
    Ok(cache.check(linked, &limits, |linked| isolated.check(linked, &limits, &Budget::default())))
}

/// Verifies a program as `verify` does, to run it.
pub(super) fn prove(linked: Linked) -> anyhow::Result<Verified> {
    let (mut cache, mut isolated) = (cache(false), verifier()?);
    let limits = Limits::default();
    let proven = cache.verify(linked, &limits, |linked| isolated.check(linked, &limits, &Budget::default()));
    Ok(proven.map(|(verified, _)| verified).map_err(|refusal| Refused(refusal.to_string()))?)
}

fn cache(no_cache: bool) -> Cache {
    match cache_folder().filter(|_| !no_cache) {
        Some(folder) => Cache::in_directory(&folder).unwrap_or_else(|_| Cache::in_memory()),
        None => Cache::in_memory(),
    }
}

fn verifier() -> anyhow::Result<Isolated> {
    let exe = std::env::current_exe().context("cannot find the path of this executable")?;
    let mut command = Command::new(exe);
    command.arg("verify-child");
    Isolated::command(command).context("cannot start the verifier")
}

impl Child {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        serve_stdio().context("the parent process violates the verifier's protocol")?;
        Ok(Exit::Done)
    }
}

fn cache_folder() -> Option<PathBuf> {
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let base = base.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))?;
    // The cache creates its own folder with a mode of its own; those above it are ordinary ones.
    let parent = base.join("p4shield");
    std::fs::create_dir_all(&parent).ok()?;
    Some(parent.join("verified"))
}
