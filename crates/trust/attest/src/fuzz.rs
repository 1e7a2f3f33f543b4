//! Entry points of fuzz targets: arbitrary bytes in the place of what a host or a network delivers.
//!
//! The fuzz targets and a seeded campaign share them. They panic if a promise breaks.

use std::path::Path;

use crate::appraise::Appraise;
use crate::evidence::{CertificateKind, Evidence, EvidenceCertificate};
use crate::policy::Policy;
use crate::snp::certificate::Certificate;
use crate::snp::chain::Roots;
use crate::snp::{RevocationList, table};
use crate::tdx::{Collateral, Tdx, TdxRoot};
use crate::tee::{ReportData, Tee, UnixSeconds};
use crate::verifier::{claimed_report_data, sev_snp};

/// Within the validity of the genuine evidence in `tests/data`.
const NOW: UnixSeconds = UnixSeconds(1_751_328_000);
/// Bytes of a report of SEV-SNP.
const REPORT: usize = 1184;

fn policy(text: &str) -> Policy {
    Policy::parse(Path::new("fuzz.toml"), text).expect("the policy is valid")
}

fn appraise(appraiser: &dyn Appraise, evidence: &Evidence) {
    let Ok(bytes) = evidence.encode() else { return };
    assert_eq!(Evidence::decode(&bytes).as_ref(), Ok(evidence), "evidence has one encoding");
    let expected = claimed_report_data(&bytes).unwrap_or(ReportData::new([0; 64]));
    if let Ok(claims) = appraiser.appraise(evidence, &expected, NOW) {
        assert!(!claims.measurement.is_empty());
        let other = ReportData::new(expected.as_bytes().map(|b| !b));
        assert!(appraiser.appraise(evidence, &other, NOW).is_err(), "the binding is checked");
    }
}

/// A report of SEV-SNP with the certificate of its key, and what else comes from a host or a file.
pub fn snp(bytes: &[u8]) {
    let text = "[sev-snp]\nany_measurement = true\nunchecked_revocation = true";
    let roots = Roots::of_amd().expect("the roots are certificates");
    let verifier = sev_snp(policy(text).sev_snp.as_ref().expect("a table"), roots).expect("no file");
    let (report, der) = bytes.split_at(bytes.len().min(REPORT));
    let certificate = EvidenceCertificate { kind: CertificateKind::Vcek, der: der.to_vec() };
    let certificates = if der.is_empty() { Vec::new() } else { vec![certificate] };
    appraise(&verifier, &Evidence { tee: Tee::SevSnp, report: report.to_vec(), certificates });
    let _table = table::certificates(bytes);
    if let Ok(certificate) = Certificate::from_file(bytes, "certificate") {
        let _facts = (certificate.tcb(), certificate.hardware_id(), certificate.check_validity(NOW));
        if let Ok(list) = RevocationList::from_file(bytes) {
            let _ = list.check(&certificate, &[&certificate], NOW);
        }
    }
}

/// A quote of TDX, and collateral.
pub fn tdx(bytes: &[u8]) {
    let genuine = include_bytes!("../tests/data/tdx_quote_collateral.json");
    let collateral = Collateral::from_file(genuine).expect("the collateral is genuine");
    let policy = policy("[tdx]\nany_mrtd = true\ncollateral = [\"none\"]");
    let policy = policy.tdx.expect("a table");
    let verifier = Tdx { policy, root: TdxRoot::of_intel(), collateral: vec![collateral] };
    appraise(&verifier, &Evidence { tee: Tee::Tdx, report: bytes.to_vec(), certificates: Vec::new() });
    let _collateral = Collateral::from_file(bytes);
}

/// Encoded evidence.
pub fn evidence(bytes: &[u8]) {
    if let Ok(evidence) = Evidence::decode(bytes) {
        assert_eq!(evidence.encode().expect("it was short enough"), bytes, "evidence has one encoding");
        let _data = claimed_report_data(bytes);
    }
}

/// A policy file.
pub fn policy_file(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(policy) = Policy::parse(Path::new("fuzz.toml"), text)
    {
        assert!(!policy.explain().is_empty());
    }
}
