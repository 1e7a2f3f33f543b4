//! Evidence that hardware of AMD and Intel signed (`tests/data/README.md`).

use std::path::{Path, PathBuf};

use crate::evidence::{CertificateKind, Evidence, EvidenceCertificate};
use crate::policy::Policy;
use crate::refusal::Refusal;
use crate::tee::{Hex, Tee, UnixSeconds};
use crate::verifier::{Verifier, claimed_report_data};
use crate::{Attested, Claims, ReportData};

pub(super) fn data(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    std::fs::read(path).unwrap()
}

pub(super) fn milan_report() -> Vec<u8> {
    let text = String::from_utf8(data("report_milan.hex")).unwrap();
    crate::tee::from_hex::<1184>(&text).unwrap().to_vec()
}

pub(super) fn milan() -> Evidence {
    let certificates = vec![EvidenceCertificate { kind: CertificateKind::Vcek, der: data("vcek_milan.der") }];
    Evidence { tee: Tee::SevSnp, report: milan_report(), certificates }
}

pub(super) fn tdx(name: &str) -> Evidence {
    Evidence { tee: Tee::Tdx, report: data(name), certificates: Vec::new() }
}

pub(super) fn at(text: &str) -> UnixSeconds {
    text.parse().unwrap()
}

/// A policy in the folder of the data.
pub(super) fn policy(text: &str) -> Policy {
    let file: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests/data/policy.toml"].iter().collect();
    Policy::parse(&file, text).unwrap_or_else(|e| panic!("{e}"))
}

pub(super) fn verify(policy_text: &str, evidence: &Evidence, now: UnixSeconds) -> Result<Claims, Refusal> {
    let encoded = evidence.encode().unwrap();
    let expected = claimed_report_data(&encoded)?;
    verify_bound(policy_text, evidence, &expected, now)
}

pub(super) fn verify_bound(
    policy_text: &str,
    evidence: &Evidence,
    expected: &ReportData,
    now: UnixSeconds,
) -> Result<Claims, Refusal> {
    let verifier = Verifier::new(&policy(policy_text)).unwrap();
    verifier.verify(&evidence.encode().unwrap(), expected, now)
}

pub(super) const MILAN: &str = "[sev-snp]\nany_measurement = true\nunchecked_revocation = true";
pub(super) const TDX: &str = "[tdx]\nany_mrtd = true\ncollateral = [\"tdx_quote_collateral.json\", \
                              \"tdx_quote_outdated_collateral.json\"]";
pub(super) const NOW: &str = "2025-07-01T00:00:00Z";

fn reason(result: Result<Claims, Refusal>) -> &'static str {
    result.map_or_else(|refusal| refusal.reason(), |_| "accepted")
}

const MILAN_MEASUREMENT: &str =
    "7a1e5c266c0108dbc9bb94fa926951320940915d0aafb42464bd88b579ea158d3e1a0dc39b2c60bd95b9c480cd81841f";

#[test]
fn a_genuine_report_of_sev_snp_verifies() {
    let claims = verify(MILAN, &milan(), at(NOW)).unwrap();
    assert_eq!(claims.attested, Attested::By(Tee::SevSnp));
    assert_eq!(Hex(&claims.measurement).to_string(), MILAN_MEASUREMENT);
    assert_eq!(claims.tcb, "TCB bootloader 3, TEE 0, SNP 8, microcode 115");
    assert!(claims.to_string().starts_with("attested by sev-snp: measurement 7a1e5c"), "{claims}");
}

#[test]
fn genuine_quotes_of_tdx_verify() {
    let claims = verify(TDX, &tdx("tdx_quote"), at(NOW)).unwrap();
    assert_eq!(claims.attested, Attested::By(Tee::Tdx));
    assert!(Hex(&claims.measurement).to_string().starts_with("91eb2b44d141d4ec"));
    assert_eq!(claims.tcb, "TCB status UpToDate, TEE_TCB_SVN 06010300000000000000000000000000");
    let newer = TDX.replace("tdx_quote_collateral", "tdx_quote_td15ex_collateral");
    let claims = verify(&newer, &tdx("tdx_quote_td15ex"), at("2026-10-20T00:00:00Z")).unwrap();
    assert!(Hex(&claims.measurement).to_string().starts_with("2a674327c50218db"));
    assert!(Hex(&claims.host_data).to_string().starts_with("0151ed70bddb5f12"));
}

#[test]
fn measurements_that_the_policy_does_not_list_are_refused() {
    let other = "00".repeat(48);
    let snp = |listed: &str| {
        let text = format!("[sev-snp]\nunchecked_revocation = true\nmeasurements = [{listed}]");
        reason(verify(&text, &milan(), at(NOW)))
    };
    assert_eq!(snp(&format!("\"{other}\", \"{MILAN_MEASUREMENT}\"")), "accepted");
    assert_eq!(snp(&format!("\"{other}\"")), "measurement");
    let tdx = |key: &str| {
        let text = TDX.replace("any_mrtd = true", &format!("{key} = [\"{other}\"]"));
        reason(verify(&text, &tdx("tdx_quote"), at(NOW)))
    };
    assert_eq!(tdx("mrtd"), "measurement");
    for (key, expected) in [("rtmr0", "measurement"), ("rtmr2", "measurement"), ("mr_config_id", "accepted")]
    {
        assert_eq!(tdx(&format!("any_mrtd = true\n{key}")), expected, "{key}");
    }
    let listed = |digits: &str| {
        format!("[sev-snp]\nany_measurement = true\nunchecked_revocation = true\nhost_data = [\"{digits}\"]")
    };
    assert_eq!(reason(verify(&listed(&"01".repeat(32)), &milan(), at(NOW))), "host_data");
}

#[test]
fn evidence_has_one_encoding() {
    for evidence in [milan(), tdx("tdx_quote")] {
        let bytes = evidence.encode().unwrap();
        assert_eq!(Evidence::decode(&bytes).unwrap(), evidence);
        let mut two = evidence.clone();
        two.certificates = vec![EvidenceCertificate { kind: CertificateKind::Vcek, der: vec![1; 9] }; 2];
        assert!(two.certificate(CertificateKind::Vcek).is_err());
        two.certificates = vec![two.certificates[0].clone(); 5];
        assert!(two.encode().is_err());
        two.certificates = vec![EvidenceCertificate { kind: CertificateKind::Vcek, der: vec![1; 1 << 16] }];
        assert!(two.encode().is_err());
    }
    // A length of one byte in two.
    let encoded = Evidence { tee: Tee::Sample, report: vec![7], certificates: Vec::new() }.encode().unwrap();
    assert_eq!(encoded[6..], [1, 7, 0]);
    let longer = [&encoded[..6], &[0x81, 0, 7, 0]].concat();
    assert_eq!(Evidence::decode(&longer).unwrap_err().reason(), "malformed");
}
