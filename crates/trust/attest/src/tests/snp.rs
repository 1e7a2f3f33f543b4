//! Each reason for which a report of SEV-SNP is refused.

use sev::firmware::guest::{AttestationReport, KeyInfo};
use x509_cert::Certificate as X509;
use x509_cert::TbsCertificate;
use x509_cert::der::Encode;

use super::amd::{NOW, amd, set_extension};
use super::genuine::{at, data, milan, policy, verify};
use super::hierarchy::{serial, time};
use crate::UnixSeconds;
use crate::appraise::Appraise;
use crate::evidence::{CertificateKind, Evidence, EvidenceCertificate};
use crate::snp::{RevocationList, SevSnp};
use crate::verifier::{claimed_report_data, sev_snp};
use crate::{Claims, Refusal, ReportData};

/// A policy for the hierarchy of the tests, without revocation lists.
const ANY: &str = "[sev-snp]\nany_measurement = true\nunchecked_revocation = true\n";

/// A verifier with the test's root in the place of AMD's.
fn verifier(policy_text: &str) -> SevSnp {
    let policy = policy(policy_text);
    sev_snp(policy.sev_snp.as_ref().unwrap(), amd().roots()).unwrap()
}

fn appraise(verifier: &SevSnp, evidence: &Evidence) -> Result<Claims, Refusal> {
    let expected = claimed_report_data(&evidence.encode().unwrap())?;
    verifier.appraise(evidence, &expected, at(NOW))
}

/// A verifier of one report with this report data.
pub(super) fn bound(report_data: &ReportData) -> impl Fn(&ReportData) -> Result<Claims, Refusal> {
    let report = amd().report(|r| r.report_data = *report_data.as_bytes());
    let evidence = amd().evidence(report, &amd().vcek(|_| {}));
    move |expected| verifier(ANY).appraise(&evidence, expected, at(NOW))
}

/// Appraises a report that a chip of the test's hierarchy signed.
fn of_report(policy_text: &str, edit: impl FnOnce(&mut AttestationReport)) -> Result<Claims, Refusal> {
    let evidence = amd().evidence(amd().report(edit), &amd().vcek(|_| {}));
    appraise(&verifier(policy_text), &evidence)
}

fn of_vcek(edit: impl FnOnce(&mut TbsCertificate)) -> Result<Claims, Refusal> {
    appraise(&verifier(ANY), &amd().evidence(amd().report(|_| {}), &amd().vcek(edit)))
}

fn reason(result: Result<Claims, Refusal>) -> &'static str {
    result.map_or_else(|refusal| refusal.reason(), |_| "accepted")
}

#[test]
fn a_report_of_the_tests_own_hierarchy_verifies_there_only() {
    assert_eq!(reason(of_report(ANY, |_| {})), "accepted");
    // The verifier of the product trusts the manufacturer's root.
    let evidence = amd().evidence(amd().report(|_| {}), &amd().vcek(|_| {}));
    assert_eq!(reason(verify(ANY, &evidence, at(NOW))), "chain");
    // And the verifier of the tests does not trust the manufacturer's.
    assert_eq!(reason(appraise(&verifier(ANY), &milan())), "chain");
}

#[test]
fn a_debug_guest_is_refused_unless_the_policy_allows_it() {
    let debug = |r: &mut AttestationReport| r.policy.set_debug_allowed(true);
    assert!(matches!(of_report(ANY, debug), Err(Refusal::Debug(_))));
    assert_eq!(reason(of_report(&format!("{ANY}debug = true"), debug)), "accepted");
}

#[test]
fn a_guest_that_may_migrate_is_refused() {
    let migrate = |r: &mut AttestationReport| r.policy.set_migrate_ma_allowed(true);
    assert!(matches!(of_report(ANY, migrate), Err(Refusal::Migration(_))));
    assert_eq!(reason(of_report(&format!("{ANY}migration_agent = true"), migrate)), "accepted");
}

#[test]
fn a_tcb_below_the_minimum_is_refused_in_each_component() {
    // The genuine report has bootloader 3, TEE 0, SNP 8, microcode 115.
    let minimum = |text: &str| of_report(&format!("{ANY}minimum_tcb = {{ {text} }}"), |_| {});
    assert_eq!(reason(minimum("bootloader = 3, tee = 0, snp = 8, microcode = 115")), "accepted");
    for older in [
        "bootloader = 4, tee = 0, snp = 8, microcode = 115",
        "bootloader = 3, tee = 1, snp = 8, microcode = 115",
        "bootloader = 3, tee = 0, snp = 9, microcode = 115",
        "bootloader = 3, tee = 0, snp = 8, microcode = 116",
    ] {
        assert_eq!(reason(minimum(older)), "old_tcb", "{older}");
    }
    // Firmware that was older when the guest started, or that the host can return to, is as bad.
    let text = format!("{ANY}minimum_tcb = {{ bootloader = 3, tee = 0, snp = 8, microcode = 115 }}");
    assert_eq!(reason(of_report(&text, |r| r.launch_tcb.microcode = 114)), "old_tcb");
    assert_eq!(reason(of_report(&text, |r| r.committed_tcb.snp = 7)), "old_tcb");
    let text = format!("{ANY}minimum_firmware = \"1.55.22\"");
    let firmware = |r: &mut AttestationReport| {
        (r.committed.major, r.committed.minor, r.committed.build) = (1, 55, 21);
    };
    assert_eq!(reason(of_report(&text, firmware)), "old_tcb");
}

#[test]
fn properties_that_the_policy_forbids_are_refused() {
    assert_eq!(reason(of_report(ANY, |r| r.vmpl = 1)), "property");
    assert_eq!(reason(of_report(&format!("{ANY}highest_vmpl = 1"), |r| r.vmpl = 1)), "accepted");
    assert_eq!(
        reason(of_report(&format!("{ANY}smt = false"), |r| r.policy.set_smt_allowed(true))),
        "property"
    );
    assert_eq!(reason(of_report(&format!("{ANY}minimum_guest_svn = 2"), |r| r.guest_svn = 1)), "old_tcb");
}

#[test]
fn values_that_the_policy_does_not_list_are_refused() {
    let zeros = |bytes: usize| "00".repeat(bytes);
    let listed = |key: &str, bytes: usize| {
        let text = format!("{ANY}{key} = [\"{}\"]", zeros(bytes));
        of_report(&text, |r| {
            (r.host_data, r.id_key_digest, r.author_key_digest) = ([1; 32], [1; 48], [1; 48]);
            (r.family_id, r.image_id) = ([1; 16], [1; 16]);
            r.key_info = KeyInfo::from(1);
        })
    };
    assert_eq!(reason(listed("host_data", 32)), "host_data");
    for (key, bytes) in
        [("id_key_digests", 48), ("author_key_digests", 48), ("family_ids", 16), ("image_ids", 16)]
    {
        assert_eq!(reason(listed(key, bytes)), "identity", "{key}");
        let text = format!("{ANY}{key} = [\"{}\", \"{}\"]", zeros(bytes), "01".repeat(bytes));
        let other = of_report(&text, |r| {
            (r.id_key_digest, r.author_key_digest) = ([1; 48], [1; 48]);
            (r.family_id, r.image_id) = ([1; 16], [1; 16]);
            r.key_info = KeyInfo::from(1);
        });
        assert_eq!(reason(other), "accepted", "{key}");
    }
    // Without an author key the field is zeros, which are no digest.
    let text = format!("{ANY}author_key_digests = [\"{}\"]", zeros(48));
    assert_eq!(reason(of_report(&text, |r| r.author_key_digest = [0; 48])), "identity");
}

#[test]
fn a_certificate_of_another_chip_or_tcb_is_refused() {
    assert_eq!(reason(of_vcek(|tbs| set_extension(tbs, "1.3.6.1.4.1.3704.1.4", &[7; 64]))), "other_chip");
    for component in [1, 2, 3, 8] {
        let oid = format!("1.3.6.1.4.1.3704.1.3.{component}");
        assert_eq!(reason(of_vcek(|tbs| set_extension(tbs, &oid, &[2, 1, 99]))), "other_chip", "{component}");
    }
    // A chip without a number (MASK_CHIP_ID) could be any.
    let masked = amd().report(|r| {
        (r.version, r.cpuid_fam_id, r.cpuid_mod_id, r.cpuid_step, r.chip_id) =
            (3, Some(0x19), Some(1), Some(1), [0; 64])
    });
    let vcek = amd().vcek(|tbs| set_extension(tbs, "1.3.6.1.4.1.3704.1.4", &[0; 64]));
    assert_eq!(reason(appraise(&verifier(ANY), &amd().evidence(masked, &vcek))), "other_chip");
    // A number that is too short says little about the chip.
    let mut chip = [0; 64];
    chip[..4].fill(7);
    let short = amd().report(|r| {
        (r.version, r.cpuid_fam_id, r.cpuid_mod_id, r.cpuid_step, r.chip_id) =
            (3, Some(0x19), Some(1), Some(1), chip);
    });
    let vcek = amd().vcek(|tbs| set_extension(tbs, "1.3.6.1.4.1.3704.1.4", &[7; 4]));
    assert_eq!(reason(appraise(&verifier(ANY), &amd().evidence(short, &vcek))), "other_chip");
    // A chip of Genoa under the root of Milan.
    let genoa = |r: &mut AttestationReport| {
        (r.version, r.cpuid_fam_id, r.cpuid_mod_id, r.cpuid_step) = (3, Some(0x19), Some(0x11), Some(1));
    };
    assert_eq!(reason(of_report(ANY, genoa)), "other_chip");
    // Two genuine parts that do not belong together.
    let mut mixed = milan();
    mixed.certificates[0].der = data("vcek_turin.der");
    assert_eq!(reason(verify(ANY, &mixed, at(NOW))), "signature");
}

#[test]
fn expired_and_future_certificates_are_refused() {
    let of_period = |begin: &str, end: &str| {
        of_vcek(|tbs| {
            tbs.validity.not_before = time(at(begin).0);
            tbs.validity.not_after = time(at(end).0);
        })
    };
    assert_eq!(reason(of_period("2025-06-01T00:00:00Z", "2025-07-01T00:00:00Z")), "accepted");
    assert_eq!(reason(of_period("2025-06-01T00:00:00Z", "2025-06-30T23:59:59Z")), "expired");
    assert_eq!(reason(of_period("2025-07-01T00:00:01Z", "2026-07-01T00:00:00Z")), "not_yet_valid");
    // The genuine certificate is valid from April 2023 to April 2030.
    assert_eq!(reason(verify(ANY, &milan(), at("2030-04-03T19:23:43Z"))), "accepted");
    assert_eq!(reason(verify(ANY, &milan(), at("2030-04-03T19:23:44Z"))), "expired");
    assert_eq!(reason(verify(ANY, &milan(), at("2023-04-03T19:23:42Z"))), "not_yet_valid");
}

#[test]
fn revoked_certificates_are_refused() {
    let vcek = amd().vcek(|tbs| tbs.serial_number = serial(7));
    let evidence = amd().evidence(amd().report(|_| {}), &vcek);
    let with = |lists: &[x509_cert::crl::CertificateList]| {
        let mut verifier = verifier(ANY);
        let list =
            |l: &x509_cert::crl::CertificateList| RevocationList::from_file(&l.to_der().unwrap()).unwrap();
        verifier.crl = Some(lists.iter().map(list).collect());
        reason(appraise(&verifier, &evidence))
    };
    let good = amd().root_list(&[]);
    assert_eq!(with(std::slice::from_ref(&good)), "accepted");
    assert_eq!(with(&[good.clone(), amd().authority_list(&[])]), "accepted");
    assert_eq!(with(&[amd().root_list(&[&amd().authority])]), "revoked");
    assert_eq!(with(&[good.clone(), amd().authority_list(&[&vcek])]), "revoked");
    // The newest list of an issuer counts, wherever it stands among the policy's files.
    let older = amd().root_list_of(&[], UnixSeconds(at(NOW).0 - 3_600));
    let newer = amd().root_list(&[&amd().authority]);
    assert_eq!(with(&[older.clone(), newer.clone()]), "revoked");
    assert_eq!(with(&[newer, older]), "revoked");
    // Lists that are missing, forged or of another time say nothing.
    assert_eq!(with(&[]), "no_revocation_list");
    assert_eq!(with(&[amd().authority_list(&[])]), "no_revocation_list");
    assert_eq!(with(&[amd().forged_root_list()]), "signature");
    let mut altered = amd().root_list(&[&amd().authority]);
    altered.tbs_cert_list.revoked_certificates = None;
    assert_eq!(with(&[altered]), "signature");
    let mut verifier = verifier(ANY);
    verifier.crl = Some(vec![RevocationList::from_file(&good.to_der().unwrap()).unwrap()]);
    let expected = claimed_report_data(&evidence.encode().unwrap()).unwrap();
    let after = |now| reason(verifier.appraise(&evidence, &expected, at(now)));
    assert_eq!(after("2025-07-02T00:00:00Z"), "accepted");
    assert_eq!(after("2025-07-02T00:00:01Z"), "expired");
    assert_eq!(after("2025-06-29T23:59:59Z"), "not_yet_valid");
}

#[test]
fn a_providers_key_signs_only_if_the_policy_allows_it() {
    let (vlek, asvk) = amd().vlek();
    let certificate = |kind, x509: &X509| EvidenceCertificate { kind, der: x509.to_der().unwrap() };
    let report = amd().report(|r| r.key_info = KeyInfo::from(1 << 2));
    let mut evidence = amd().evidence(report, &vlek);
    evidence.certificates =
        vec![certificate(CertificateKind::Vlek, &vlek), certificate(CertificateKind::Asvk, &asvk)];
    assert_eq!(reason(appraise(&verifier(ANY), &evidence)), "signing_key");
    let allowed = verifier(&format!("{ANY}vlek = true"));
    assert_eq!(reason(appraise(&allowed, &evidence)), "accepted");
    evidence.certificates.pop();
    assert_eq!(reason(appraise(&allowed, &evidence)), "no_certificate");
    // An authority that the root did not issue.
    let (_, mut forged) = amd().vlek();
    forged.signature = asvk.tbs_certificate.subject_public_key_info.subject_public_key.clone();
    evidence.certificates.push(certificate(CertificateKind::Asvk, &forged));
    assert_eq!(reason(appraise(&allowed, &evidence)), "chain");
    // An authority of the same root under another name than the key's issuer.
    evidence.certificates[1] = certificate(CertificateKind::Asvk, &amd().authority);
    assert_eq!(reason(appraise(&allowed, &evidence)), "chain");
    // A provider's key that pretends to be a chip's, for a policy that demands the latter.
    let posing = amd().evidence(amd().report(|_| {}), &vlek);
    assert_eq!(reason(appraise(&verifier(ANY), &posing)), "signing_key");
    // A report without signature.
    assert_eq!(reason(of_report(ANY, |r| r.key_info = KeyInfo::from(7 << 2))), "signing_key");
    assert_eq!(reason(of_report(ANY, |r| r.key_info = KeyInfo::from(2))), "signing_key");
}

#[test]
fn a_certificate_of_the_policy_serves_evidence_without_one() {
    let mut bare = milan();
    bare.certificates.clear();
    assert_eq!(reason(verify(ANY, &bare, at(NOW))), "no_certificate");
    let other = format!("{ANY}endorsements = [\"vcek_turin.der\"]");
    assert_eq!(reason(verify(&other, &bare, at(NOW))), "no_certificate");
    let with = format!("{ANY}endorsements = [\"vcek_turin.der\", \"vcek_milan.der\"]");
    assert_eq!(reason(verify(&with, &bare, at(NOW))), "accepted");
}

#[test]
fn a_certificate_that_another_authority_signed_is_refused() {
    let mut vcek = amd().vcek(|_| {});
    vcek.signature = amd().vcek(|tbs| tbs.serial_number = serial(3)).signature;
    let evidence = amd().evidence(amd().report(|_| {}), &vcek);
    assert_eq!(reason(appraise(&verifier(ANY), &evidence)), "chain");
    assert_eq!(reason(of_vcek(|tbs| tbs.issuer = tbs.subject.clone())), "chain");
}
