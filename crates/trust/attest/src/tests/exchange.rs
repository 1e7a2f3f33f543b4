//! What a report is bound to, and which TEE it is of.

use rsa::sha2::{Digest, Sha512};

use super::amd::amd;
use super::genuine::{MILAN, NOW, TDX, at, data, milan, tdx, verify, verify_bound};
use crate::attester::Attester;
use crate::evidence::Evidence;
use crate::tee::Tee;
use crate::{Attested, Refusal, ReportData, SampleAttester};

const SAMPLE: &str = "sample = true";

/// Report data as a handshake may compute them.
fn bound_to(nonce: &str, key: &str, tenant: &str) -> ReportData {
    let mut digest = Sha512::new();
    for part in ["a test of p4shield-attest", nonce, key, tenant] {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part);
    }
    ReportData::new(digest.finalize().into())
}

#[test]
fn a_report_with_a_stale_nonce_other_key_or_tenant_is_refused() {
    let report_data = bound_to("nonce", "key", "alice");
    let of_tdx = super::intel::Intel::new();
    let snp = super::snp::bound(&report_data);
    let quote = of_tdx.quote(|r| r.report_data = *report_data.as_bytes());
    let quote = |expected: &ReportData| super::tdx::bound(&of_tdx, &quote, expected);
    let sample = SampleAttester.evidence(&report_data).unwrap();
    let sample = |expected: &ReportData| verify_bound(SAMPLE, &sample, expected, at(NOW));
    for verify in [&snp as &dyn Fn(&ReportData) -> _, &quote, &sample] {
        assert!(verify(&bound_to("nonce", "key", "alice")).is_ok());
        for other in [("stale", "key", "alice"), ("nonce", "other", "alice"), ("nonce", "key", "mallory")] {
            assert_eq!(verify(&bound_to(other.0, other.1, other.2)), Err(Refusal::OtherBinding), "{other:?}");
        }
    }
}

#[test]
fn evidence_of_the_wrong_tee_is_refused() {
    let reason = |policy: &str, evidence: &Evidence| verify(policy, evidence, at(NOW)).unwrap_err().reason();
    assert_eq!(reason(TDX, &milan()), "wrong_tee");
    assert_eq!(reason(MILAN, &tdx("tdx_quote")), "wrong_tee");
    assert_eq!(reason(SAMPLE, &milan()), "wrong_tee");
    // A quote of SGX is signed by the same enclave and root.
    let sgx = Evidence { report: data("sgx_quote"), ..tdx("tdx_quote") };
    let expected = ReportData::new([0; 64]);
    assert_eq!(verify_bound(TDX, &sgx, &expected, at(NOW)).unwrap_err().reason(), "wrong_tee");
    // Evidence that pretends to be of another TEE is none.
    let both = format!("{MILAN}\n{TDX}");
    for (tee, report) in [(Tee::Tdx, milan().report), (Tee::SevSnp, tdx("tdx_quote").report)] {
        let evidence = Evidence { tee, report, certificates: Vec::new() };
        let refused = verify_bound(&both, &evidence, &expected, at(NOW)).unwrap_err();
        assert_eq!(refused.reason(), "malformed");
    }
}

#[test]
fn a_downgrade_to_a_sample_is_refused() {
    let report_data = bound_to("nonce", "key", "alice");
    let sample = SampleAttester.evidence(&report_data).unwrap();
    for policy in
        [MILAN.to_owned(), TDX.to_owned(), format!("{MILAN}\n{TDX}"), format!("sample = false\n{TDX}")]
    {
        let refusal = verify_bound(&policy, &sample, &report_data, at(NOW)).unwrap_err();
        assert_eq!(refusal.reason(), "downgrade_to_sample");
        assert!(refusal.to_string().contains("not attested"), "{refusal}");
    }
    // Evidence that says to be of a TEE and contains a sample.
    let disguised = Evidence { tee: Tee::SevSnp, ..sample };
    let policy = format!("{SAMPLE}\n{MILAN}");
    assert_eq!(verify_bound(&policy, &disguised, &report_data, at(NOW)).unwrap_err().reason(), "malformed");
}

#[test]
fn an_accepted_sample_is_not_attested_in_words() {
    let report_data = bound_to("nonce", "key", "alice");
    let sample = SampleAttester.evidence(&report_data).unwrap();
    let claims = verify_bound(SAMPLE, &sample, &report_data, at(NOW)).unwrap();
    assert_eq!(claims.attested, Attested::No);
    assert!(claims.to_string().starts_with("not attested: "), "{claims}");
    assert!(sample.report.windows(12).any(|w| w == b"not attested"));
    // Whoever accepts samples accepts nothing less of a TEE.
    let both = format!("{SAMPLE}\n{MILAN}");
    assert_eq!(verify(&both, &milan(), at(NOW)).unwrap().attested, Attested::By(Tee::SevSnp));
    let evidence = amd().evidence(amd().report(|_| {}), &amd().vcek(|_| {}));
    assert_eq!(verify(&both, &evidence, at(NOW)).unwrap_err().reason(), "chain");
}
