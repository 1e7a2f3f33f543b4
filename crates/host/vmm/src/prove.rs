//! The proofs of `p4shield host check --prove`: machines start here, and a TEE keeps their memory from the
//! host. Most of it only hardware can show.
//!
//! Each claim is attacked as far as a program can: a machine starts as a tenant's would, and the host
//! searches its memory for text of the guest's kernel. A machine without a TEE is the control: there the
//! search must find it.

use crate::command::Machine;
use crate::error::VmmError;
use crate::trial::{Trial, trial};
use p4shield_attest::{Attester, CONFIGFS, ConfigfsTsm, ReportData, claimed_report_data};
use p4shield_image::Image;
use p4shield_probe::{Area, Finding, Host, State, probe};
use p4shield_qemu::{Accelerator, Guest, QemuVersion, Request, Tee, options};
use p4shield_text::chain;
use rustix::rand::{GetRandomFlags, getrandom};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Bytes of memory of a machine in a trial: the default of tenants.
const MEMORY: u64 = 512 << 20;
/// Processors of a machine in a trial: the default of tenants.
const PROCESSORS: u32 = 2;

const BOOTS: &str = "the image of P4 VMs boots in a machine";
const EXPOSED: &str = "without a TEE, the host finds the guest's kernel in its memory: the search works";
const HIDDEN: &str = "the host finds nothing of the guest's kernel in its memory";
const REPORTS: &str = "this machine is in a TEE, whose report is about a number made just now";

/// The outcome of a proof on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It was shown.
    Proven,
    /// The opposite was shown.
    Refuted,
    /// Nothing was shown.
    Open,
}

impl Verdict {
    /// Returns its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Proven => "proven",
            Self::Refuted => "refuted",
            Self::Open => "open",
        }
    }
}

/// A claim with its verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Proof {
    /// The area of the machine that has to work for it.
    pub area: Area,
    /// The claim.
    pub claim: &'static str,
    /// The outcome.
    pub verdict: Verdict,
    /// The finding, with a remedy if something is missing.
    pub found: String,
}

impl Proof {
    fn new(area: Area, claim: &'static str, verdict: Verdict, found: impl Into<String>) -> Self {
        Self { area, claim, verdict, found: found.into() }
    }
}

/// The parts of the machines of all trials.
#[derive(Clone, Debug)]
pub struct Ground {
    /// This machine, with QEMU and firmware.
    pub host: Host,
    /// The folder of the image.
    pub image: PathBuf,
    /// QEMU's model of the processor, for SEV-SNP; `None`: the default.
    pub processor: Option<String>,
}

/// Starts a machine for each TEE, and one without. Takes at most two minutes for each. `each` gets the
/// proofs one by one. Must be called while the process starts no other one.
pub fn prove(ground: &Ground, each: &mut dyn FnMut(Proof)) {
    let accelerator = Accelerator::probe(&ground.host.qemu);
    let kvm = probe(Area::Kvm, &ground.host);
    let verdict = if kvm.state == State::Works { Verdict::Proven } else { Verdict::Open };
    each(Proof::new(Area::Kvm, "KVM runs an ordinary guest", verdict, text(&kvm)));
    match Image::open(&ground.image) {
        Err(e) => {
            let build = format!("; build it with `p4shield image build -o {}`", ground.image.display());
            for area in [Area::Qemu, Area::SevSnp, Area::Tdx] {
                each(Proof::new(area, BOOTS, Verdict::Open, chain(&e) + &build));
            }
        }
        Ok(image) => machines(ground, &image, accelerator, each),
    }
    each(report(Path::new(CONFIGFS)));
}

/// Proves what machines show: the one without a TEE first.
fn machines(ground: &Ground, image: &Image, accelerator: Accelerator, each: &mut dyn FnMut(Proof)) {
    let area = if accelerator == Accelerator::Kvm { Area::Kvm } else { Area::Qemu };
    let plain = start(ground, image, Tee::None, accelerator);
    let control = exposes(&plain);
    each(boots(area, &plain, accelerator));
    let (verdict, found) = match &control {
        Ok(true) => (Verdict::Proven, "found".to_owned()),
        Ok(false) => (Verdict::Refuted, "not found".to_owned()),
        Err(why) => (Verdict::Open, why.clone()),
    };
    each(Proof::new(area, EXPOSED, verdict, found));
    for (tee, area) in [(Tee::SevSnp, Area::SevSnp), (Tee::Tdx, Area::Tdx)] {
        let finding = probe(area, &ground.host);
        if finding.state != State::Works {
            for claim in [BOOTS, HIDDEN] {
                each(Proof::new(area, claim, Verdict::Open, text(&finding)));
            }
            continue;
        }
        let started = start(ground, image, tee, Accelerator::Kvm);
        each(boots(area, &started, Accelerator::Kvm));
        each(hidden(area, &exposes(&started), &control));
    }
}

fn text(finding: &Finding) -> String {
    let remedy = finding.remedy.as_ref().map(|remedy| format!("; {remedy}")).unwrap_or_default();
    format!("{}{remedy}", finding.found)
}

/// Starts a machine, as one of a tenant would start.
fn start(ground: &Ground, image: &Image, tee: Tee, accelerator: Accelerator) -> Result<Trial, String> {
    let Host { qemu, firmware, .. } = &ground.host;
    let packaged = tee.firmware().map(|(path, _)| Path::new(path));
    let request = Request {
        guest: Guest::for_this_host(tee, ground.processor.as_deref()),
        version: QemuVersion::of(qemu).map_err(|e| chain(&e))?,
        accelerator,
        memory: MEMORY,
        processors: PROCESSORS,
        firmware: packaged.map(|packaged| firmware.as_deref().unwrap_or(packaged)),
    };
    let machine = Machine {
        qemu: qemu.clone(),
        options: options(&request).map_err(|e| chain(&e))?,
        kernel: image.kernel.clone(),
        initramfs: image.initramfs.clone(),
        arguments: Vec::new(),
    };
    trial(&machine).map_err(|e: VmmError| chain(&e))
}

fn boots(area: Area, started: &Result<Trial, String>, accelerator: Accelerator) -> Proof {
    match started {
        Ok(trial) => {
            let found = format!("after {:.1} s, with {}", trial.boot.as_secs_f64(), accelerator.name());
            Proof::new(area, BOOTS, Verdict::Proven, found)
        }
        Err(why) => Proof::new(area, BOOTS, Verdict::Refuted, why),
    }
}

/// Returns whether the search found text of the guest's kernel, or why there was none.
fn exposes(started: &Result<Trial, String>) -> Result<bool, String> {
    let trial = started.as_ref().map_err(|_| "the machine does not boot".to_owned())?;
    let unreadable = |e| format!("QEMU's memory cannot be read: {e}; run the command as root");
    trial.exposes_kernel.as_ref().copied().map_err(unreadable)
}

/// Judges the search in the memory of a machine with a TEE, which counts only if the control found the text.
fn hidden(area: Area, found: &Result<bool, String>, control: &Result<bool, String>) -> Proof {
    let (verdict, found) = match (found, control) {
        (Ok(true), _) => (Verdict::Refuted, "found: the memory is not encrypted".to_owned()),
        (Ok(false), Ok(true)) => (Verdict::Proven, "not found".to_owned()),
        (Ok(false), _) => (Verdict::Open, "not found, but neither in a machine without a TEE".to_owned()),
        (Err(why), _) => (Verdict::Open, why.clone()),
    };
    Proof::new(area, HIDDEN, verdict, found)
}

/// Asks this machine's kernel for a report, as a P4 VM or an agent does.
fn report(folder: &Path) -> Proof {
    let proof = |verdict, found: String| Proof::new(Area::GuestTee, REPORTS, verdict, found);
    let attester = match ConfigfsTsm::detect(folder) {
        Ok(attester) => attester,
        Err(e) => return proof(Verdict::Open, chain(&e)),
    };
    let mut number = [0; ReportData::SIZE];
    if let Err(e) = getrandom(&mut number, GetRandomFlags::empty()) {
        return proof(Verdict::Open, format!("the kernel gives no random number: {e}"));
    }
    let number = ReportData::new(number);
    let bytes = attester.evidence(&number).map_err(|e| chain(&e));
    let claimed = bytes
        .and_then(|evidence| evidence.encode().map_err(|e| chain(&e)))
        .and_then(|bytes| claimed_report_data(&bytes).map_err(|e| chain(&e)));
    match claimed {
        Ok(claimed) if claimed == number => proof(Verdict::Proven, format!("a report of {}", attester.tee())),
        Ok(_) => proof(Verdict::Refuted, "the report is about another number".to_owned()),
        Err(why) => proof(Verdict::Refuted, why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn memory_in_the_hosts_reach_refutes_a_tee() {
        let verdict = |found: Result<bool, &str>, control: Result<bool, &str>| {
            let [found, control] = [found, control].map(|result| result.map_err(str::to_owned));
            hidden(Area::SevSnp, &found, &control).verdict
        };
        assert_eq!(verdict(Ok(true), Ok(true)), Verdict::Refuted);
        assert_eq!(verdict(Ok(true), Err("")), Verdict::Refuted);
        assert_eq!(verdict(Ok(false), Ok(true)), Verdict::Proven);
    }

    #[test]
    fn a_search_without_a_control_proves_nothing() {
        for control in [Ok(false), Err("unreadable".to_owned())] {
            assert_eq!(hidden(Area::Tdx, &Ok(false), &control).verdict, Verdict::Open);
        }
        assert_eq!(hidden(Area::Tdx, &Err("unreadable".to_owned()), &Ok(true)).verdict, Verdict::Open);
    }

    #[test]
    fn a_machine_that_does_not_boot_is_a_refutation() {
        let failed = Err("QEMU ended".to_owned());
        assert_eq!(boots(Area::Tdx, &failed, Accelerator::Kvm).verdict, Verdict::Refuted);
        assert!(exposes(&failed).unwrap_err().contains("does not boot"));
        let unreadable =
            Trial { boot: Duration::ZERO, exposes_kernel: Err(std::io::ErrorKind::Other.into()) };
        assert!(exposes(&Ok(unreadable)).unwrap_err().contains("as root"));
    }

    #[test]
    fn a_kernel_without_reports_proves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let proof = report(&folder.path().join("report"));
        assert_eq!(proof.verdict, Verdict::Open, "{proof:?}");
    }
}
