//! `p4shield bundle`.

use p4shield_text::printable;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Subcommand;
use p4shield_bundle::author::{Manifest, ManifestError, SigningKey};
use p4shield_bundle::{Bundle, PublicKey, Summary, Unpinned};
use p4shield_console::{Exit, Refused, input, output};
use p4shield_uservm::bundles::{link_digest, linked, open, public_key, refused};

/// Build, sign, show and verify bundles: a VM's programs as one signed file
///
/// A bundle has the programs of both directions with their initial entries, a version, the tenant and VM
/// that it is for, and health checks. A P4 VM whose tenant pins a key loads bundles of that key only.
/// docs/how-to/bundles.md has the steps.
///
/// Examples:
///
///   p4shield bundle key generate alice.bundle.key    writes alice.bundle.pub, too
///   p4shield bundle build web.toml -o web.bundle --key alice.bundle.key
///   p4shield bundle show web.bundle --key alice.bundle.pub
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Key(Key),
    Build(Build),
    Show(Show),
    Verify(Verify),
}

/// Make keys for bundles, and compare them
#[derive(Debug, clap::Args)]
struct Key {
    #[command(subcommand)]
    command: KeyCommand,
}

#[derive(Debug, Subcommand)]
enum KeyCommand {
    /// Generate a private key (mode 0600), and beside it the public key in a file whose name ends in `.pub`
    Generate {
        /// The file of the private key
        path: PathBuf,
    },
    /// Print the number of a key, by its private or its public file
    Id {
        /// The key's file
        path: PathBuf,
    },
}

/// Build a bundle from a manifest, and sign it
///
/// The manifest is a TOML file; paths in it are relative to it. Prints the digests by which the P4 VM and the
/// auditor name the programs. The same manifest, files and key give the same bytes.
///
/// Examples:
///
///   p4shield bundle build web.toml -o web.bundle --key alice.bundle.key
///   p4shield bundle build web.toml -o web.bundle --key alice.bundle.key --json | jq -r .ingress.digest
///
/// Exit code 3 if the manifest or an object is refused.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
struct Build {
    /// The manifest
    manifest: PathBuf,
    /// The file to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// The private key, a file of mode 0600
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Show what a bundle contains
///
/// Without --key, the signature is compared with the key that the bundle itself names: what is shown may be
/// of any signer, and the output says so.
///
/// Examples:
///
///   p4shield bundle show web.bundle --key alice.bundle.pub
///   p4shield bundle show web.bundle --json | jq .verified
///
/// Exit code 3 if the file is no bundle, was changed, or is signed with another key.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
struct Show {
    /// The bundle
    file: PathBuf,
    /// The public key of the signer that you trust
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Verify the signature of a bundle
///
/// Example: p4shield bundle verify web.bundle --key alice.bundle.pub
///
/// Exit code 3 if the file is no bundle, was changed, or is signed with another key; the error says which.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
struct Verify {
    /// The bundle
    file: PathBuf,
    /// The public key of the signer that you trust
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        match self.command {
            Command::Key(key) => key.run(),
            Command::Build(build) => build.run(),
            Command::Show(show) => show.run(),
            Command::Verify(Verify { file, key }) => {
                let bundle = open(&file, &key)?;
                let owner = owner(&bundle.contents().tenant, bundle.contents().vm.as_deref());
                let (version, key) = (bundle.contents().version, bundle.key().id());
                output::line(format_args!("signed with key {key}: version {version} for {owner}"));
                Ok(Exit::Done)
            }
        }
    }
}

impl Key {
    fn run(self) -> anyhow::Result<Exit> {
        match self.command {
            KeyCommand::Generate { path } => generate(&path)?,
            KeyCommand::Id { path } => output::line(read_key(&path)?.id()),
        }
        Ok(Exit::Done)
    }
}

fn generate(path: &Path) -> anyhow::Result<()> {
    let public = path.with_extension("pub");
    if public == path {
        let why = "the name ends in .pub, as that of the public key will; give the private key another name";
        return Err(Refused(format!("{}: {why}", path.display())).into());
    }
    if public.exists() {
        let why =
            "exists already, and would be overwritten by the new public key; move it or choose another name";
        anyhow::bail!("{} {why}", public.display());
    }
    let key = SigningKey::generate(path)?.public();
    let file = std::fs::File::options().write(true).create_new(true).open(&public);
    let written = file.and_then(|mut file| writeln!(file, "{key}"));
    written.with_context(|| format!("cannot write the public key to {}", public.display()))?;
    output::line(format_args!(
        "wrote {} (keep it secret) and {} with key {}",
        path.display(),
        public.display(),
        key.id()
    ));
    Ok(())
}

/// Reads a public key, or that of a private key's file.
fn read_key(path: &Path) -> anyhow::Result<PublicKey> {
    match public_key(path) {
        Err(refused) if Exit::of(&refused) == Exit::Refused => {
            Ok(SigningKey::load(path).map_err(|_| refused)?.public())
        }
        other => other,
    }
}

impl Build {
    fn run(self) -> anyhow::Result<Exit> {
        let key = SigningKey::load(&self.key)?;
        let contents = Manifest::load(&self.manifest).and_then(Manifest::collect).map_err(|e| match e {
            ManifestError::Read { .. } => anyhow::Error::from(e),
            _ => Refused::because(&e).into(),
        })?;
        for (direction, program) in ["ingress", "egress"].into_iter().zip(&contents.programs) {
            let Some(program) = program else { continue };
            let linked = linked(program).map_err(|why| Refused(format!("{direction}: {why}")))?;
            let missing = program.entries.iter().find(|e| linked.maps.iter().all(|m| m.name != e.map));
            if let Some(entry) = missing {
                let names: Vec<_> = linked.maps.iter().map(|m| &*m.name).collect();
                let why = format!("{direction}: the program has no map {:?}, only {names:?}", entry.map);
                return Err(Refused(why).of(&self.manifest.display().to_string()).into());
            }
        }
        let bytes = key.sign(&contents).map_err(|e| refused(&self.manifest, &e))?;
        // What is written is what a reader accepts.
        let bundle = Bundle::open(&bytes, &key.public()).map_err(|e| refused(&self.output, &e))?;
        std::fs::write(&self.output, &bytes)
            .with_context(|| format!("cannot write {}", self.output.display()))?;
        print(&bundle.summary(link_digest), self.json)?;
        Ok(Exit::Done)
    }
}

impl Show {
    fn run(self) -> anyhow::Result<Exit> {
        let summary = match &self.key {
            Some(key) => open(&self.file, key)?.summary(link_digest),
            None => {
                let bytes = input::bytes(&self.file)?;
                Unpinned::open(&bytes).map_err(|e| refused(&self.file, &e))?.summary(link_digest)
            }
        };
        print(&summary, self.json)?;
        Ok(Exit::Done)
    }
}

fn owner(tenant: &str, vm: Option<&str>) -> String {
    vm.map_or_else(|| format!("any VM of tenant {tenant}"), |vm| format!("VM {vm} of tenant {tenant}"))
}

fn print(summary: &Summary, json: bool) -> anyhow::Result<()> {
    if json {
        return output::json(summary);
    }
    let s = summary;
    let signature = if s.verified { "verified with" } else { "NOT VERIFIED, give --key: signed by" };
    output::line(format_args!("signature     {signature} key {}", s.key));
    output::line(format_args!("for           {}", owner(&s.tenant, s.vm.as_deref())));
    output::line(format_args!("version       {} (format {})", s.version, s.format));
    output::line(format_args!("header bytes  at least {}", s.header_bytes));
    for (direction, program) in s.programs() {
        let Some(program) = program else {
            output::line(format_args!("{direction:<13} no program"));
            continue;
        };
        let digest = program.digest.as_deref().or(program.error.as_deref()).unwrap_or_default();
        // Names and errors may be a stranger's.
        output::line(format_args!("{direction:<13} {}", printable(digest)));
        let bytes: usize = program.objects.iter().map(|o| o.bytes).sum();
        let p4info = program.p4info_bytes.map_or(String::new(), |n| format!(", P4Info of {n} bytes"));
        output::line(format_args!("  {} objects of {bytes} bytes{p4info}", program.objects.len()));
        let mut maps = BTreeMap::<&str, usize>::new();
        program.entries.iter().for_each(|e| *maps.entry(&e.map).or_default() += 1);
        maps.iter().for_each(|(map, n)| output::line(format_args!("  {n} entries of {}", printable(map))));
    }
    for check in &s.checks {
        output::line(format_args!("check         {} ({}): {}", check.name, check.direction, check.expect));
    }
    Ok(())
}
