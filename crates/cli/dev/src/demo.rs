//! `p4shield-dev demo`, and `p4shield-dev traffic`, which it runs in guests.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::ValueEnum;
use p4shield_console::{Exit, output, signals};
use p4shield_demo::{DemoResult, Options, guests};
use p4shield_install::{PreloadedAttachment, Root, find_library};

use crate::image;

/// Show a P4 program guarding live traffic, and attack it
///
/// Builds a client, a cloud host and a user VM with a switch between them, starts daemon, P4 VM, agent
/// and auditor, opens connections, fills TCP memory with real sockets, then acts as a malicious cloud.
/// Writes an HTML report and removes everything it made. Needs root.
///
/// Client and user VM are network namespaces, and the switch is Open vSwitch or a bridge with a wire
/// beside it. With --user-vms guests, the default with --compartment vm, they are virtual machines at
/// vhost-user ports of Open vSwitch over DPDK, with P4 Shield's library preloaded.
///
/// Examples:
///
///   p4shield-dev demo
///   p4shield-dev demo --quick --report /tmp/report
///   p4shield-dev demo --compartment vm               client, user VM and P4 VM are virtual machines
///   p4shield-dev demo --compartment vm --user-vms namespaces     the P4 VM only
///
/// Exit code 1 if a claim does not hold.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Shorter phases: under 30 seconds with namespaces, under two minutes with guests
    #[arg(long)]
    quick: bool,
    /// What isolates the P4 VM; `vm` boots a virtual machine, by emulation where KVM runs no guest
    #[arg(long, value_enum, default_value_t = Compartment::Process)]
    compartment: Compartment,
    /// Machines of client and user VM; default: guests with --compartment vm, or else namespaces
    #[arg(long, value_enum)]
    user_vms: Option<UserVms>,
    /// With guests: libp4shield_dpdk.so; default: the one beside this binary
    #[arg(long, value_name = "FILE")]
    #[arg(default_value_os_t = find_library(&Root::new("/"), PreloadedAttachment::Dpdk))]
    library: PathBuf,
    /// Folder of the report
    #[arg(long, value_name = "FOLDER", default_value = "report")]
    report: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Compartment {
    Process,
    Vm,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum UserVms {
    /// Network namespaces
    Namespaces,
    /// QEMU guests
    Guests,
}

const PROGRAM: &str = include_str!("../../../../examples/programs/tcp_guard.p4");

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let by_default =
            if self.compartment == Compartment::Vm { UserVms::Guests } else { UserVms::Namespaces };
        let user_vms = self.user_vms.unwrap_or(by_default);
        let usable = match user_vms {
            UserVms::Namespaces => p4shield_testbed::usable(),
            UserVms::Guests => guests::usable(&self.library)
                .map_err(|why| format!("{why}; --user-vms namespaces needs none of it")),
        };
        if let Err(why) = usable {
            anyhow::bail!("the demo cannot run on this machine: {why}");
        }
        let options = Options {
            quick: self.quick,
            report: self.report,
            image: (self.compartment == Compartment::Vm).then(image::of_machines).transpose()?,
            program: PROGRAM.into(),
            interrupted: signals::stop_flag()?,
            say: |line| output::line(line),
        };
        let DemoResult { held, page } = match user_vms {
            UserVms::Namespaces => p4shield_demo::run(&options)?,
            UserVms::Guests => {
                let [server, client] = ["traffic server", "traffic client"];
                guests::run(&options, &guests::Parts { library: self.library, server, client })?
            }
        };
        output::line(format_args!("report: {}", page.display()));
        output::line(if held { "every claim held" } else { "a claim FAILED" });
        Ok(if held { Exit::Done } else { Exit::Failed })
    }
}

/// Serve or open the demonstration's connections in one of its guests
#[derive(Debug, clap::Args)]
pub(crate) struct TrafficArgs {
    /// Which end of the connections
    #[arg(value_enum)]
    end: End,
    /// The server's address
    address: IpAddr,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum End {
    Server,
    Client,
}

impl TrafficArgs {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        match self.end {
            End::Server => guests::serve(self.address)?,
            End::Client => guests::connect(self.address)?,
        }
        Ok(Exit::Done)
    }
}
