//! `p4shield host`.

use std::path::PathBuf;

use clap::Subcommand;
use p4shield_console::{Exit, output};
use p4shield_probe::{Area, Finding, Host, State, probe};

/// Say what this machine can do for P4 Shield
///
/// Example: p4shield host check
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Check(Check),
}

/// Probe KVM, TEEs, IOMMU, virtual functions, huge pages, AF_XDP and DPDK
///
/// Prints for each what was found and, if something is missing, what to do. Changes nothing. Takes a
/// second, or 20 if KVM hangs. Run it as root, like the daemon.
///
/// Examples:
///
///   p4shield host check
///   p4shield host check --require sev-snp --require iommu
///   p4shield host check --json | jq '.[] | select(.state == "missing")'
///
/// Exit code 1 if an area that --require names does not work.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
struct Check {
    /// Fail unless this area works: kvm, qemu, sev-snp, tdx, guest-tee, iommu, sr-iov, huge-pages, af-xdp
    /// or dpdk; may be repeated
    #[arg(long, value_name = "AREA")]
    require: Vec<Area>,
    /// QEMU's program
    #[arg(long, value_name = "FILE", default_value = p4shield_qemu::PROGRAM)]
    qemu: PathBuf,
    /// The firmware of machines with a TEE; default: Debian's
    #[arg(long, value_name = "FILE")]
    firmware: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let Command::Check(check) = self.command;
        check.run()
    }
}

impl Check {
    fn run(self) -> anyhow::Result<Exit> {
        let host = Host { qemu: self.qemu, firmware: self.firmware, ..Host::this() };
        let progress = output::Progress::new(Area::ALL.len());
        let mut findings = Vec::new();
        for area in Area::ALL {
            progress.step(area.name().to_owned());
            findings.push(probe(area, &host));
        }
        drop(progress);
        if self.json {
            output::json(&findings)?;
        } else {
            findings.iter().for_each(show);
        }
        let fails = |f: &&Finding| self.require.contains(&f.area) && f.state != State::Works;
        match findings.iter().find(fails) {
            Some(failed) => {
                anyhow::bail!("{} is required and does not work: {}", failed.area, failed.found)
            }
            None => Ok(Exit::Done),
        }
    }
}

fn show(finding: &Finding) {
    let state = finding.state.name();
    output::line(format_args!("{state:<8} {:<10}  {}", finding.area, finding.found));
    if let Some(remedy) = &finding.remedy {
        output::line(format_args!("{:21}{remedy}", ""));
    }
}
