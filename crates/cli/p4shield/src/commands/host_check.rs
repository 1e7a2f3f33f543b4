//! `p4shield host`.

use std::path::PathBuf;

use clap::Subcommand;
use p4shield_console::{Exit, output};
use p4shield_probe::{Area, Finding, Host, State, probe};
use p4shield_vmm::{Ground, Proof, Verdict, prove};

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

/// Probe KVM, TEEs, IOMMU, virtual functions, huge pages, AF_XDP, tcx and DPDK
///
/// Prints for each what was found and, if something is missing, what to do. Changes nothing. Takes a
/// second, or 20 if KVM hangs. Run it as root, like the daemon.
///
/// With --prove, it shows what only hardware can show: it starts a machine without a TEE and one for each
/// TEE that works here, and searches their memory for the guest's kernel, for two minutes each at most. A
/// claim is proven, refuted, or open where nothing could be shown.
///
/// Examples:
///
///   p4shield host check
///   p4shield host check --prove
///   p4shield host check --require sev-snp --require iommu
///   p4shield host check --json | jq '.[] | select(.state == "missing")'
///
/// Exit code 1 if an area that --require names does not work; with --prove, if a claim about it is not
/// proven, or any claim is refuted.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
struct Check {
    /// Fail unless this area works: kvm, qemu, sev-snp, tdx, guest-tee, iommu, sr-iov, huge-pages, af-xdp,
    /// tcx or dpdk; may be repeated
    #[arg(long, value_name = "AREA")]
    require: Vec<Area>,
    /// Start machines, and show what holds of them on this hardware
    #[arg(long)]
    prove: bool,
    /// With --prove: the folder of the image
    #[arg(long, value_name = "FOLDER", default_value = "/usr/lib/p4shield/image", requires = "prove")]
    image: PathBuf,
    /// With --prove: QEMU's model of the processor for sev-snp, `processor` of the configuration
    #[arg(long, value_name = "MODEL", requires = "prove")]
    processor: Option<String>,
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
        let host = Host { qemu: self.qemu.clone(), firmware: self.firmware.clone(), ..Host::this() };
        if self.prove {
            return self.prove(host);
        }
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

    fn prove(self, host: Host) -> anyhow::Result<Exit> {
        let ground = Ground { host, image: self.image, processor: self.processor };
        let mut proofs = Vec::new();
        prove(&ground, &mut |proof| {
            if !self.json {
                show_proof(&proof);
            }
            proofs.push(proof);
        });
        if self.json {
            output::json(&proofs)?;
        }
        let fails = |p: &&Proof| {
            p.verdict == Verdict::Refuted || p.verdict == Verdict::Open && self.require.contains(&p.area)
        };
        match proofs.iter().find(fails) {
            Some(Proof { area, claim, verdict, found }) => {
                anyhow::bail!("{area}: the claim that {claim} is {}: {found}", verdict.name())
            }
            None => Ok(Exit::Done),
        }
    }
}

fn show_proof(proof: &Proof) {
    output::line(format_args!("{:<8} {:<10}  {}", proof.verdict.name(), proof.area, proof.claim));
    output::line(format_args!("{:21}{}", "", proof.found));
}

fn show(finding: &Finding) {
    let state = finding.state.name();
    output::line(format_args!("{state:<8} {:<10}  {}", finding.area, finding.found));
    if let Some(remedy) = &finding.remedy {
        output::line(format_args!("{:21}{remedy}", ""));
    }
}
