//! `p4shield program`.

use std::io::Read;
use std::path::PathBuf;

use anyhow::Context;
use clap::Subcommand;
use p4shield_console::{Exit, Refused, output};
use p4shield_control::MAX_OBJECTS;
use p4shield_daemon::api::{self, Answer, Command as Request, ObjectBytes};
use p4shield_tables::view::What;

use super::history;
use super::program_state::Show;
use super::socket::Socket;

/// Replace programs while traffic flows, and show their counters, registers and tables
///
/// The old program runs until the new one is linked, verified and compiled; no packet is lost. A
/// program that is loaded here replaces the configuration's, also after a reload or restart, until
/// `revert`; `p4shield status` shows it.
/// Showing a program's state disturbs no packet.
///
/// Examples:
///
///   p4shield program load alice web ingress guard.o
///   p4shield program load alice web both web.bundle
///   p4shield program load --temporary alice web ingress trace.o
///   p4shield program check alice web ingress guard.o --socket /run/p4shield/tenants/alice.sock
///   p4shield program unload alice web egress
///   p4shield program revert alice web ingress
///   p4shield program history alice web ingress
///   p4shield program counters web --watch
///   p4shield program tables web --direction ingress --json
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Link, verify and load objects; the old program runs until the new one is ready
    Load {
        /// The tenant
        tenant: String,
        /// The user VM
        vm: String,
        /// ingress (towards the VM) or egress (from it); both for a bundle
        #[arg(value_parser = ["ingress", "egress", "both"])]
        direction: String,
        /// eBPF objects: the program's first, then those of its C functions; or one bundle
        #[arg(required = true)]
        objects: Vec<PathBuf>,
        /// Return to the previous program at the next reload or restart of the daemon
        #[arg(long)]
        temporary: bool,
        #[command(flatten)]
        socket: Socket,
    },
    /// Link and verify objects in the tenant's P4 VM without loading them; prints the digest
    Check {
        /// The tenant
        tenant: String,
        /// The user VM
        vm: String,
        /// ingress (towards the VM) or egress (from it); both for a bundle
        #[arg(value_parser = ["ingress", "egress", "both"])]
        direction: String,
        /// eBPF objects: the program's first, then those of its C functions; or one bundle
        #[arg(required = true)]
        objects: Vec<PathBuf>,
        #[command(flatten)]
        socket: Socket,
    },
    /// Remove a program; the tenant's `no_program` then applies (with `skip` packets are dropped until
    /// the program is removed from the configuration and `p4shield reload` has run)
    Unload {
        /// The tenant
        tenant: String,
        /// The user VM
        vm: String,
        /// ingress or egress; both for a bundle
        #[arg(value_parser = ["ingress", "egress", "both"])]
        direction: String,
        #[command(flatten)]
        socket: Socket,
    },
    /// Return to the configuration's program
    Revert {
        /// The tenant
        tenant: String,
        /// The user VM
        vm: String,
        /// ingress or egress; both for a bundle
        #[arg(value_parser = ["ingress", "egress", "both"])]
        direction: String,
        #[command(flatten)]
        socket: Socket,
    },
    /// List the commands that changed a program: when, by which user, from which files
    History {
        /// The tenant
        tenant: String,
        /// The user VM
        vm: String,
        /// ingress or egress; both for a bundle
        #[arg(value_parser = ["ingress", "egress", "both"])]
        direction: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        socket: Socket,
    },
    /// Show the counters of a VM's programs, also those in the entries of tables
    Counters {
        #[command(flatten)]
        show: Show,
        #[command(flatten)]
        socket: Socket,
    },
    /// Show the registers and meters of a VM's programs, and the arrays of their C functions
    Registers {
        #[command(flatten)]
        show: Show,
        #[command(flatten)]
        socket: Socket,
    },
    /// Show the tables of a VM's programs with entries and default actions, and the maps of their C functions
    Tables {
        #[command(flatten)]
        show: Show,
        #[command(flatten)]
        socket: Socket,
    },
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let (request, socket) = match self.command {
            Command::Load { tenant, vm, direction, objects, temporary, socket } => {
                let contents = read(&objects)?;
                let objects = objects.iter().map(std::path::absolute).collect::<Result<_, _>>()?;
                (Request::Load { tenant, vm, direction, objects, contents, temporary }, socket)
            }
            Command::Check { tenant, vm, direction, objects, socket } => {
                (Request::Check { tenant, vm, direction, contents: read(&objects)? }, socket)
            }
            Command::Unload { tenant, vm, direction, socket } => {
                let (objects, contents) = (Vec::new(), Vec::new());
                (Request::Load { tenant, vm, direction, objects, contents, temporary: false }, socket)
            }
            Command::Revert { tenant, vm, direction, socket } => {
                (Request::Revert { tenant, vm, direction }, socket)
            }
            Command::History { tenant, vm, direction, json, socket } => {
                return history::show(&socket.socket, Request::History { tenant, vm, direction }, json);
            }
            Command::Counters { show, socket } => {
                return show.run(What::Counters, &socket.socket).map(|()| Exit::Done);
            }
            Command::Registers { show, socket } => {
                return show.run(What::Registers, &socket.socket).map(|()| Exit::Done);
            }
            Command::Tables { show, socket } => {
                return show.run(What::Tables, &socket.socket).map(|()| Exit::Done);
            }
        };
        match api::ask(&socket.socket, &request) {
            Ok(Answer::Checked(program)) => output::line(program),
            Ok(Answer::Loaded { program, warning }) => {
                output::line(program);
                warning.iter().for_each(output::note);
            }
            Ok(_) => return Err(api::ApiError::Unexpected.into()),
            Err(api::ApiError::Failed(why)) => return Err(Refused(why).into()),
            Err(e) => return Err(e.into()),
        }
        Ok(Exit::Done)
    }
}

/// Reads objects for a request: a tenant's files are not the daemon's.
fn read(objects: &[PathBuf]) -> anyhow::Result<Vec<ObjectBytes>> {
    let read = |path: &PathBuf| {
        let limit = MAX_OBJECTS as u64 + 1;
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        file.take(limit)
            .read_to_end(&mut bytes)
            .with_context(|| format!("cannot read {}", path.display()))?;
        Ok(ObjectBytes(bytes))
    };
    let contents = objects.iter().map(read).collect::<anyhow::Result<Vec<_>>>()?;
    if contents.iter().map(|ObjectBytes(bytes)| bytes.len()).sum::<usize>() > MAX_OBJECTS {
        anyhow::bail!("the objects of a program have at most {MAX_OBJECTS} bytes");
    }
    Ok(contents)
}
