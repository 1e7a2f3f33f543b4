//! A report, its signature, and what a policy demands of it.

use sev::Generation;
use sev::certs::snp::Verifiable;
use sev::firmware::guest::AttestationReport;
use sev::firmware::host::TcbVersion;
use sev::parser::ByteParser;

use super::certificate::{Certificate, CertifiedTcb};
use super::chain::Product;
use crate::policy::{Accepted, MinimumTcb, SevSnpPolicy};
use crate::refusal::Refusal;
use crate::tee::Hex;

/// Bytes of a report that are signed; the signature follows.
const SIGNED: usize = 0x2a0;
/// Bytes of a number of the signature, and how many of them a number of P-384 has.
const NUMBER: usize = 72;
const P384: usize = 48;
/// Versions of reports that this version knows.
const VERSIONS: std::ops::RangeInclusive<u32> = 2..=5;
/// ECDSA with P-384 and SHA-384.
const ECDSA_P384: u32 = 1;

/// The key that signed a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SigningKey {
    Vcek,
    Vlek,
}

/// A report that is not verified yet.
#[derive(Clone, Debug)]
pub(crate) struct Report(AttestationReport);

impl Report {
    /// Parses a report. Reports that say more than this version knows are refused: `sev` verifies the
    /// signature of the report that it encodes again.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        let version = bytes.first_chunk().map(|v| u32::from_le_bytes(*v));
        if !version.is_some_and(|v| VERSIONS.contains(&v)) {
            return Err(Refusal::malformed("the report is not of version 2 to 5 of SEV-SNP"));
        }
        let report = AttestationReport::from_bytes(bytes)
            .map_err(|e| Refusal::malformed(format!("the report is not SEV-SNP's: {e}")))?;
        let same = report.to_bytes().is_ok_and(|again| again.as_slice() == bytes);
        let number = |at: usize| bytes.get(SIGNED + at + P384..SIGNED + at + NUMBER);
        let short = |n: Option<&[u8]>| n.is_some_and(|n| n.iter().all(|b| *b == 0));
        if !same || !short(number(0)) || !short(number(NUMBER)) {
            return Err(Refusal::malformed("the report has bits that this version does not know"));
        }
        if report.sig_algo != ECDSA_P384 {
            return Err(Refusal::malformed("the report is not signed with ECDSA P-384"));
        }
        Ok(Self(report))
    }

    pub(crate) const fn fields(&self) -> &AttestationReport {
        &self.0
    }

    /// Returns the kind of the key that signed.
    pub(crate) fn signing_key(&self) -> Result<SigningKey, Refusal> {
        match self.0.key_info.signing_key() {
            0 if !self.0.key_info.mask_chip_key() => Ok(SigningKey::Vcek),
            1 => Ok(SigningKey::Vlek),
            _ => Err(Refusal::SigningKey {
                found: "no key".to_owned(),
                remedy: "have the host's configuration not mask the chip's key",
            }),
        }
    }

    /// Verifies the signature.
    pub(crate) fn verify(&self, endorsement: &Certificate) -> Result<(), Refusal> {
        let signed = (endorsement.as_sev(), &self.0).verify();
        signed.map_err(|_| Refusal::Signature { what: "report" })
    }

    /// Checks that the certificate is of the chip and the TCB that the report names.
    pub(crate) fn is_of(&self, endorsement: &Certificate) -> Result<(), Refusal> {
        let certified =
            endorsement.tcb().ok_or_else(|| Refusal::malformed("the certificate names no TCB"))?;
        let reported = self.reported_tcb();
        if reported != certified {
            let (found, certified) = (reported.to_string(), certified.to_string());
            return Err(Refusal::OtherChip { field: "TCB", found, certified });
        }
        // A VLEK belongs to no chip. A chip without a number (MASK_CHIP_ID) is of no VCEK.
        if endorsement.certifies("VLEK") {
            return Ok(());
        }
        let chip = self.0.chip_id;
        let id = endorsement.hardware_id().unwrap_or_default();
        let padded = chip.iter().eq(id.iter().chain(std::iter::repeat_n(&0, 64 - id.len().min(64))));
        if id.len() < 8 || !padded || chip == [0; 64] {
            let (found, certified) = (Hex(&chip).to_string(), Hex(id).to_string());
            return Err(Refusal::OtherChip { field: "chip", found, certified });
        }
        Ok(())
    }

    /// Checks that the report is of the product whose root was used.
    pub(crate) fn is_of_product(&self, product: Product) -> Result<(), Refusal> {
        let of_turin = self.0.reported_tcb.fmc.is_some();
        let same = match (self.0.cpuid_fam_id, self.0.cpuid_mod_id) {
            (Some(family), Some(model)) => match Generation::identify_cpu(family, model) {
                Ok(Generation::Milan) => product == Product::Milan,
                Ok(Generation::Genoa) => product == Product::Genoa,
                Ok(Generation::Turin) => product == Product::Turin,
                _ => false,
            },
            _ => of_turin == (product == Product::Turin),
        };
        if same {
            return Ok(());
        }
        let found = "another".to_owned();
        Err(Refusal::OtherChip { field: "product", found, certified: product.name().to_owned() })
    }

    /// Checks what the policy demands.
    pub(crate) fn satisfies(&self, policy: &SevSnpPolicy) -> Result<(), Refusal> {
        let r = &self.0;
        self.check_guest_policy(policy)?;
        listed(&policy.measurements, &r.measurement)
            .map_err(|found| Refusal::Measurement { register: "the measurement", found })?;
        listed(&policy.host_data, &r.host_data)
            .map_err(|found| Refusal::HostData { field: "HOST_DATA", found })?;
        listed(&policy.id_key_digests, &r.id_key_digest)
            .map_err(|found| Refusal::Identity { field: "the digest of the identity key", found })?;
        if policy.author_key_digests.is_some() && !r.key_info.author_key_en() {
            let found = "absent".to_owned();
            return Err(Refusal::Identity { field: "the digest of the author key", found });
        }
        listed(&policy.author_key_digests, &r.author_key_digest)
            .map_err(|found| Refusal::Identity { field: "the digest of the author key", found })?;
        listed(&policy.family_ids, &r.family_id)
            .map_err(|found| Refusal::Identity { field: "the family ID", found })?;
        listed(&policy.image_ids, &r.image_id)
            .map_err(|found| Refusal::Identity { field: "the image ID", found })?;
        if r.guest_svn < policy.minimum_guest_svn {
            return Err(old("the guest's security version", r.guest_svn, policy.minimum_guest_svn));
        }
        for (which, tcb) in
            [("reported", r.reported_tcb), ("committed", r.committed_tcb), ("launch", r.launch_tcb)]
        {
            check_tcb(which, &tcb, &policy.minimum_tcb)?;
        }
        let committed = [r.committed.major, r.committed.minor, r.committed.build];
        if committed < policy.minimum_firmware {
            let [found, minimum] =
                [committed, policy.minimum_firmware].map(|v| format!("{}.{}.{}", v[0], v[1], v[2]));
            return Err(old("the committed firmware", found, minimum));
        }
        Ok(())
    }

    fn check_guest_policy(&self, policy: &SevSnpPolicy) -> Result<(), Refusal> {
        let guest = &self.0.policy;
        if guest.debug_allowed() && !policy.debug {
            return Err(Refusal::Debug("bit 19 of the guest policy"));
        }
        if guest.migrate_ma_allowed() && !policy.migration_agent {
            return Err(Refusal::Migration("bit 18 of the guest policy"));
        }
        if guest.smt_allowed() && !policy.smt {
            return Err(Refusal::Property {
                property: "the guest policy allows SMT".to_owned(),
                remedy: "start the machine without bit 16 of the guest policy",
            });
        }
        if self.0.vmpl > policy.highest_vmpl {
            return Err(Refusal::Property {
                property: format!("the report was requested at VMPL {}", self.0.vmpl),
                remedy: "request it at a more privileged level, or raise highest_vmpl in the policy",
            });
        }
        Ok(())
    }

    /// Returns the TCB that the signing key is derived from.
    pub(crate) fn reported_tcb(&self) -> CertifiedTcb {
        let TcbVersion { fmc, bootloader, tee, snp, microcode } = self.0.reported_tcb;
        CertifiedTcb { bootloader, tee, snp, microcode, fmc }
    }
}

fn check_tcb(which: &str, tcb: &TcbVersion, minimum: &MinimumTcb) -> Result<(), Refusal> {
    let components = [
        ("bootloader", tcb.bootloader, minimum.bootloader),
        ("TEE", tcb.tee, minimum.tee),
        ("SNP", tcb.snp, minimum.snp),
        ("microcode", tcb.microcode, minimum.microcode),
        ("FMC", tcb.fmc.unwrap_or(u8::MAX), minimum.fmc),
    ];
    match components.into_iter().find(|(_, found, minimum)| found < minimum) {
        Some((name, found, minimum)) => Err(old(format!("{name} of the {which} TCB"), found, minimum)),
        None => Ok(()),
    }
}

fn old(component: impl Into<String>, found: impl ToString, minimum: impl ToString) -> Refusal {
    Refusal::OldTcb { component: component.into(), found: found.to_string(), minimum: minimum.to_string() }
}

/// Returns the value in hexadecimal if the list is there and does not have it.
fn listed<const N: usize>(accepted: &Accepted<N>, value: &[u8; N]) -> Result<(), String> {
    match accepted {
        Some(list) if !list.contains(value) => Err(Hex(value).to_string()),
        _ => Ok(()),
    }
}
