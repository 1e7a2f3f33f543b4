//! `p4shield key`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Subcommand;
use p4shield_console::{Exit, Refused, output};
use p4shield_daemon::api::{self, ApiError};
use p4shield_daemon::config::parse_duration;
use p4shield_daemon::{KeyOrder, KeyRotation};
use p4shield_handshake::{Secret, StaticKey};
use p4shield_seal::TenantKey;
use p4shield_uservm::keygen;

use super::socket::Socket;

/// Make, install, compare and rotate keys
///
/// A key is a file of 32 random bytes with mode 0600, which a user VM and its P4 VM share. A rotation
/// needs no restart and loses no packet: the P4 VM accepts both keys for a while, and agent and auditor
/// follow as soon as their key file is replaced. docs/how-to/keys.md has the steps.
///
/// Examples:
///
///   p4shield key generate alice.key          as `p4shield keygen`
///   p4shield key rotate alice                on the host: a new key for the tenant's VMs
///   p4shield key rotate alice/web            the same for a VM with a key of its own
///   p4shield key install new.key alice.key   in the VM: replace the key file in one step
///   p4shield key id alice.key                compare both ends without showing the key
///   p4shield key public agent.key            the public half of an agent's own key, for agent_key
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Generate a key, as `p4shield keygen`
    Generate(keygen::Args),
    /// Replace the key of a tenant or VM on the host; both keys are accepted until the window ends
    Rotate {
        /// The tenant, or a VM with a key of its own
        #[arg(value_name = "TENANT[/VM]")]
        target: String,
        /// Time in which the previous key is accepted, too; 0s ends it at once. Default: the tenant's
        /// `key_window`
        #[arg(long, value_name = "DURATION", value_parser = window)]
        window: Option<Duration>,
        /// A file with the new key, of mode 0600; without it, the daemon makes one
        #[arg(long, value_name = "FILE")]
        key_file: Option<PathBuf>,
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        socket: Socket,
    },
    /// Replace a key file by another key in one step, so that its readers find the old key or the new one
    Install {
        /// The file with the new key
        new: PathBuf,
        /// The file to replace
        path: PathBuf,
    },
    /// Print the public half of an agent's own key for handshakes (X25519): the operator's `agent_key`
    Public {
        /// The key file
        path: PathBuf,
    },
    /// Print the number of a key, which reveals nothing about it
    Id {
        /// The key file
        path: PathBuf,
    },
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        match self.command {
            Command::Generate(args) => return args.run(),
            Command::Install { new, path } => {
                let key = TenantKey::load(&new)?;
                key.replace(&path)?;
                output::line(format_args!("{} has key {} now", path.display(), key.id()));
            }
            Command::Public { path } => {
                let secret = Secret::from_bytes(*TenantKey::load(&path)?.expose());
                output::line(StaticKey::from_secret(secret).public());
            }
            Command::Id { path } => output::line(TenantKey::load(&path)?.id()),
            Command::Rotate { target, window, key_file, json, socket } => {
                let order = order(&target, window, key_file.as_deref())?;
                match api::rotate_key(&socket.socket, order) {
                    Ok(rotation) if json => output::json(&rotation)?,
                    Ok(rotation) => show(&rotation),
                    Err(ApiError::Failed(why)) => return Err(Refused(why).into()),
                    Err(e) => return Err(e.into()),
                }
            }
        }
        Ok(Exit::Done)
    }
}

fn order(target: &str, window: Option<Duration>, new_key: Option<&Path>) -> anyhow::Result<KeyOrder> {
    let (tenant, vm) = match target.split_once('/') {
        Some((tenant, vm)) => (tenant, Some(vm.to_owned())),
        None => (target, None),
    };
    let millis = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
    Ok(KeyOrder {
        tenant: tenant.to_owned(),
        vm,
        new_key: new_key.map(std::path::absolute).transpose()?,
        window_ms: window.map(millis),
    })
}

fn window(text: &str) -> Result<Duration, String> {
    parse_duration(text).ok_or_else(|| "write a number with a unit, such as 10m or 30s".to_owned())
}

/// Shows what has happened, and what is left to do.
fn show(rotation: &KeyRotation) {
    let KeyRotation { tenant, vms, key, previous, key_file, until } = rotation;
    let file = key_file.display();
    output::line(format_args!("{file} has key {key} now; before, {previous}"));
    if vms.is_empty() {
        output::line(format_args!("no VM of tenant {tenant} uses it"));
        return;
    }
    let vms = vms.join(", ");
    match until.map(left) {
        Some(left) => output::line(format_args!(
            "The P4 VM accepts both for {left} s. By then, copy {file} to each VM ({vms}) and install it \
             there:\n  p4shield key install NEW KEY_FILE\n\
             Agent and auditor follow at once; `p4shield status` shows when they have."
        )),
        None => output::line(format_args!(
            "The previous key has ended. Copy {file} to each VM ({vms}) and install it there at once:\n  \
             p4shield key install NEW KEY_FILE"
        )),
    }
}

/// Returns the seconds until a time, in seconds since 1970.
pub(super) fn left(until: u64) -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    until.saturating_sub(now.map_or(0, |now| now.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_tenant_or_its_vm() {
        let of = |target| order(target, None, None).map(|o| (o.tenant, o.vm)).unwrap();
        assert_eq!(of("alice"), ("alice".into(), None));
        assert_eq!(of("alice/web"), ("alice".into(), Some("web".into())));
        assert_eq!(window("10m"), Ok(Duration::from_secs(600)));
        assert_eq!(window("0s"), Ok(Duration::ZERO));
        assert!(window("10").is_err());
    }
}
