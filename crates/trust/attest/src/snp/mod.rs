//! AMD SEV-SNP: reports, certificates, revocation lists.
//!
//! `sev` parses reports and verifies the signatures of certificates and reports. It checks neither time,
//! revocation, names, chip nor TCB: `chain` and `report` do. See the decision
//! `docs/decisions/036-attestation.md`.

pub(crate) mod certificate;
pub(crate) mod chain;
mod crl;
mod report;
pub(crate) mod table;

use crate::appraise::Appraise;
use crate::claims::{Attested, Claims};
use crate::evidence::{CertificateKind, Evidence};
use crate::policy::SevSnpPolicy;
use crate::refusal::Refusal;
use crate::tee::{ReportData, Tee, UnixSeconds};

use certificate::Certificate;
use chain::Roots;
pub(crate) use crl::RevocationList;
use report::{Report, SigningKey};

/// Appraises reports of SEV-SNP.
#[derive(Debug)]
pub(crate) struct SevSnp {
    pub(crate) policy: SevSnpPolicy,
    pub(crate) roots: Roots,
    /// `None`: revocation is not checked.
    pub(crate) crl: Option<Vec<RevocationList>>,
    /// Certificates for evidence without any.
    pub(crate) endorsements: Vec<Certificate>,
}

/// Returns the report data that a report claims.
pub(crate) fn claimed_report_data(report: &[u8]) -> Option<ReportData> {
    Some(ReportData::new(Report::parse(report).ok()?.fields().report_data))
}

impl SevSnp {
    /// Returns the certificate of the key that signed the report: the evidence's, or one of the policy's.
    fn endorsement(&self, evidence: &Evidence, report: &Report) -> Result<Certificate, Refusal> {
        let (kind, key) = match report.signing_key()? {
            SigningKey::Vcek => (CertificateKind::Vcek, "VCEK"),
            SigningKey::Vlek if self.policy.vlek => (CertificateKind::Vlek, "VLEK"),
            SigningKey::Vlek => {
                return Err(Refusal::SigningKey {
                    found: "a key of the cloud provider (VLEK)".to_owned(),
                    remedy: "have the host use the chip's own key (VCEK), or write vlek = true in the policy",
                });
            }
        };
        if let Some(der) = evidence.certificate(kind)? {
            let certificate = Certificate::from_der(der, key)?;
            // Otherwise a provider's key could pass for a chip's, which the policy may demand.
            if !certificate.certifies(key) {
                let found = format!("the certificate {:?} in place of that of a {key}", certificate.name());
                let remedy = "have the host pass the certificates on as AMD issued them";
                return Err(Refusal::SigningKey { found, remedy });
            }
            return Ok(certificate);
        }
        let fits = |c: &&Certificate| c.certifies(key) && report.is_of(c).is_ok();
        self.endorsements.iter().find(fits).cloned().ok_or(Refusal::NoCertificate { key })
    }

    fn check_revocation(&self, chain: &chain::Chain, now: UnixSeconds) -> Result<(), Refusal> {
        let Some(lists) = &self.crl else { return Ok(()) };
        // A list of a later time has all entries of those before.
        let newest = |issuer| lists.iter().filter(|list| list.is_of(issuer)).max_by_key(|list| list.issued());
        // The root's list is demanded: it is the one that AMD publishes.
        let of_root = newest(&chain.root);
        let of_root =
            of_root.ok_or_else(|| Refusal::NoRevocationList { issuer: chain.root.name().to_owned() })?;
        of_root.check(&chain.root, &[&chain.root, &chain.authority], now)?;
        match newest(&chain.authority) {
            Some(of_authority) => of_authority.check(&chain.authority, &[&chain.endorsement], now),
            None => Ok(()),
        }
    }
}

impl Appraise for SevSnp {
    fn appraise(
        &self,
        evidence: &Evidence,
        expected: &ReportData,
        now: UnixSeconds,
    ) -> Result<Claims, Refusal> {
        let report = Report::parse(&evidence.report)?;
        let endorsement = self.endorsement(evidence, &report)?;
        let chain = self.roots.chain(endorsement, evidence.certificate(CertificateKind::Asvk)?)?;
        chain.verify(now)?;
        self.check_revocation(&chain, now)?;
        report.verify(&chain.endorsement)?;
        report.is_of(&chain.endorsement)?;
        report.is_of_product(chain.product)?;
        let fields = report.fields();
        if ReportData::new(fields.report_data) != *expected {
            return Err(Refusal::OtherBinding);
        }
        report.satisfies(&self.policy)?;
        Ok(Claims {
            attested: Attested::By(Tee::SevSnp),
            measurement: fields.measurement.to_vec(),
            host_data: fields.host_data.to_vec(),
            tcb: format!("TCB {}", report.reported_tcb()),
        })
    }
}
